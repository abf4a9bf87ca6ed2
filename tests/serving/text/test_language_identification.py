"""Languages are identified among those that may be answered, by a model that is loaded late."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from serving.errors import RequestError
from serving.text import language_identification
from serving.text.language_identification import LanguageIdentifier, SourceDetector
from serving.text.languages import language_name
from tests.serving.text.language_accuracy import DATA, Accuracy, sentences, three_words

EN_FR = DATA.with_name("en-fr-200.tsv")


@pytest.fixture(scope="module")
def identifier() -> LanguageIdentifier:
    return LanguageIdentifier()


def test_accuracy_has_not_fallen() -> None:
    accuracy = Accuracy()

    assert accuracy.rightness(sentences()) >= 0.995
    assert accuracy.rightness(three_words()) >= 0.97
    assert min(accuracy.on_mixed_texts()) >= 0.97
    assert accuracy.when_none_is_right(sentences()) <= 0.05


def test_confidence_says_how_often_it_is_right() -> None:
    answers = Accuracy().answers(three_words())

    sure = [right for right, detection in answers if detection.confidence >= 0.8]
    unsure = [right for right, detection in answers if detection.confidence < 0.5]
    assert sum(sure) / len(sure) > 0.99
    assert sum(unsure) / len(unsure) < 0.9


def test_only_what_may_be_answered_is(identifier: LanguageIdentifier) -> None:
    [en, de] = identifier.identify("Ceci n'est pas une pipe, mais une image.", ["en", "de"])

    assert {en.language, de.language} == {"en", "de"}
    assert en.confidence + de.confidence < 0.1
    assert identifier.identify("Ceci n'est pas une pipe.", []) == []


def test_codes_are_those_that_were_given(identifier: LanguageIdentifier) -> None:
    among = ["deu_Latn", "eng_Latn", "en-US", "pt_BR", "zho_Hans", "nb"]
    texts = (
        "The weather is nice.",
        "O tempo está bom hoje.",
        "你好世界，今天天气很好",
        "Hva heter du?",
    )

    languages = [identifier.identify(text, among)[0].language for text in texts]

    assert languages == ["eng_Latn", "pt_BR", "zho_Hans", "nb"]


@pytest.mark.parametrize("text", ["", "   ", "123", "😀", "<p></p>", "https://example.org/a"])
def test_what_is_in_no_language_is_told_with_no_confidence(
    identifier: LanguageIdentifier, text: str
) -> None:
    detections = identifier.identify(text, ["fr", "en"])

    assert [detection.language for detection in detections] == ["fr", "en"]
    assert detections[0].confidence < 0.3


def test_tags_and_addresses_say_nothing(identifier: LanguageIdentifier) -> None:
    text = '<div class="header main"><a href="https://the.example/page">Bonjour à tous</a></div>'

    assert identifier.identify(text, ["en", "fr"])[0].language == "fr"
    assert identifier.identify("BONJOUR LE MONDE ENTIER", ["en", "fr"])[0].language == "fr"


def test_of_a_long_text_the_beginning_is_read(identifier: LanguageIdentifier) -> None:
    text = "Un chien court dans la rue. " * 200 + "A dog runs. " * 100_000

    assert identifier.identify(text, ["en", "fr"])[0].language == "fr"


def test_the_model_is_loaded_once_and_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Any] = []

    class Model:
        def rank(self, text: str) -> list[tuple[str, float]]:
            return [("en", 1.0)]

    def load() -> Model:
        loads.append(1)
        return Model()

    monkeypatch.setattr(language_identification, "_load_model", load)
    lazy = LanguageIdentifier()
    assert loads == []

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: lazy.identify(text, ["en"]), ["a"] * 8))

    assert [detection.confidence for [detection] in answers] == [1.0] * 8
    assert len(loads) == 1


def detector(identifier: LanguageIdentifier, translated: str, target: str) -> SourceDetector:
    return SourceDetector(identifier, tuple(translated.split()), target, target)


# text, languages that can be translated into the target, the target, the language to be found
ALONE = """
A dog runs in the snow.|en|fr|en
Un chien court dans la neige.|en|fr|fr
UN CHIEN COURT DANS LA NEIGE|en|fr|fr
Un chien court.|en|fr|fr
Bonjour le monde|en|fr|fr
Bonjour|en|fr|fr
Merci beaucoup|en|fr|fr
Le chat est noir|en|fr|fr
<p>Un <b>chien</b> court dans la neige.</p>|en|fr|fr
<img src="a.png" alt="Un chien dans la neige" title='Il court'>|en|fr|fr
<style>body{color:red}</style><p>Le chien court.</p><SCRIPT>var title = "the"</SCRIPT>|en|fr|fr
<p>Le chien court.</p><script>function test(){return document.title}|en|fr|fr
L&#39;&eacute;t&eacute; d&eacute;j&agrave;|en|fr|fr
D&eacute;j&agrave; vu et <i>entendu</i> hier soir|en|fr|fr
Voir https://the.example/page pour le reste|en|fr|fr
The dog|en|fr|en
Good morning|en|fr|en
Thanks!|en|fr|en
OK|en|fr|en
Taxi|en|fr|en
Information|en|fr|en
Restaurant|en|fr|en
Table|en|fr|en
Chat|en|fr|en
Menu|en|fr|en
Service client|en|fr|en
Paris, London|en|fr|en
x = 3;|en|fr|en
12.5|en|fr|en
|en|fr|en
😀|en|fr|en
https://the.example/|en|fr|en
<img src="a.png">|en|fr|en
aGVsbG8gd29ybGQ=|en|fr|en
{"a": [1, 2], "b": null}|en|fr|en
Hello world|fr|en|en
Good morning|fr|en|en
The dog runs.|fr|en|en
How are you?|fr|en|en
Hello|fr|en|fr
Hello||en|en
OK||en|en
12||en|en
||en|en
Der Hund läuft in den Garten.|de pt|en|de
Der Hund läuft in den Garten.|de pt|fr|de
O cão corre no jardim.|de pt|en|pt
The dog runs in the garden.|de pt|en|en
The dog runs in the garden.|de pt|en-GB|en-GB
O cão corre no jardim.|en|pt-BR|pt-BR
你好世界，今天天气很好|en|zh|zh
你好世界，今天天氣很好，我們去學校|en|zh-Hant|zh-Hant
你好世界，今天天氣很好，我們去學校|en zh-Hans|zh-Hant|zh-Hant
你好世界，今天天气很好，我们去学校|en zh-Hans|zh-Hant|zh-Hans
你好世界，今天天气很好，我们去学校|en zho_Hant|zho_Hans|zho_Hans
你好世界，今天天氣很好，我們去學校|en zho_Hant|zho_Hans|zho_Hant
<p class="some long name of a class">我们去学校。</p>|en|zh-Hans|zh-Hans
使用 Python 和 NumPy 编程是一件很有意思的事情|en|zh-Hans|zh-Hans
The word 学校 means school, and 国 means country.|de|en-US|en-US
The word 学校 means school, and 国 means country.|en|zh-Hans|en
Пас трчи у башти и лаје на мачку.|en|sr-Cyrl|sr-Cyrl
"""


@pytest.mark.parametrize("case", ALONE.strip().splitlines())
def test_a_text_alone_is_in_the_target_language_or_in_one_that_is_translated(
    identifier: LanguageIdentifier, case: str
) -> None:
    text, translated, target, language = case.split("|")

    [detection] = detector(identifier, translated, target).detect([text])

    assert detection.language == language


FOREIGN = """
Guten Morgen, wie geht es Ihnen heute?|en|fr|German
Ich habe einen Hund und eine Katze.|en|fr|German
こんにちは、元気ですか|en|fr|Japanese
Ich bin müde.|en|fr|German
Как вас зовут?|en|fr|
你好，今天天气很好|en|fr|Chinese
Donaudampfschifffahrtsgesellschaft|en|fr|German
¿Dónde está la biblioteca?|en|fr|Spanish
Un chien court dans la neige.||en|French
Un chien court dans la neige.|de|en|French
The dog runs in the garden while the children are playing.|de|fr|English
你好世界，今天天气很好，我们去学校|en|zh-Hant|Chinese
你好世界，今天天氣很好，我們去學校|en|zh_CN|Chinese
Пас трчи у башти и лаје на мачку.|en|sr-Latn|Serbian
"""


@pytest.mark.parametrize("case", FOREIGN.strip().splitlines())
@pytest.mark.parametrize("before", [[], ["12"], ["The dog runs in the garden.", "OK"]])
def test_what_no_model_translates_is_refused_by_its_name_alone_and_among_others(
    identifier: LanguageIdentifier, case: str, before: list[str]
) -> None:
    text, translated, target, name = case.split("|")
    if before and "en" not in (*translated.split(), target):
        before = ["12"]

    with pytest.raises(RequestError) as caught:
        detector(identifier, translated, target).detect([*before, text])

    place = f"the text at index {len(before)}" if before else "the text"
    assert f"{place} seems to be {name}" in str(caught.value)
    assert f"which no model here translates into {language_name(target)}" in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "languages"),
    [
        (["The dog runs in the snow.", "Le chien court dans la neige."], "en fr"),
        (["Le chien court dans la neige.", "The dog runs in the snow."], "fr en"),
        (["Le chien court dans la neige.", "OK", "12", ""], "fr fr fr fr"),
        (["The dog runs in the snow.", "OK", "12", ""], "en en en en"),
        (["Bonjour tout le monde", "Hello"], "fr en"),
        (["Ouvrir le fichier", "Fermer la fenêtre", "Enregistrer"], "fr fr fr"),
        (["Open the file", "Close the window", "Table", "Adresse"], "en en en en"),
    ],
)
def test_a_text_that_says_little_goes_with_the_others(
    identifier: LanguageIdentifier, texts: list[str], languages: str
) -> None:
    detections = detector(identifier, "en", "fr").detect(texts)

    assert [detection.language for detection in detections] == languages.split()


NAMES = (
    "Dvořák|Antonín Dvořák|Reykjavík|Nguyễn|Søren Kierkegaard|Lech Wałęsa|München|Pizza|Łódź|İzmir"
)
WORDS_IN_OTHER_LETTERS = (
    "Москва|Лев Толстой|Αθήνα|東京|你好|こんにちは|안녕하세요|สวัสดี|مرحبا|نجيب محفوظ|שלום|नमस्ते"
)


@pytest.mark.parametrize("name", NAMES.split("|"))
def test_a_name_in_latin_letters_is_never_refused(
    identifier: LanguageIdentifier, name: str
) -> None:
    for texts in ([name], ["The dog runs in the garden.", name], [name, "12"]):
        assert detector(identifier, "en", "fr").detect(texts)


@pytest.mark.parametrize("word", WORDS_IN_OTHER_LETTERS.split("|"))
def test_a_word_in_other_letters_is_refused_only_alone(
    identifier: LanguageIdentifier, word: str
) -> None:
    texts = ["The dog runs in the garden.", word, "Open the file"]

    detections = detector(identifier, "en", "fr").detect(texts)

    assert [detection.language for detection in detections] == ["en"] * 3
    for alone in ([word], [word, word], ["12", word]):
        with pytest.raises(RequestError, match="seems to be"):
            detector(identifier, "en", "fr").detect(alone)


def test_small_words_that_are_foreign_together_are_refused(identifier: LanguageIdentifier) -> None:
    texts = ["Gute Nacht", "vielen Dank", "bitte sehr", "mein Herr"]
    for text in texts:
        assert detector(identifier, "en", "fr").detect([text])
    with pytest.raises(RequestError, match="the whole seems to be German"):
        detector(identifier, "en", "fr").detect(texts)


def test_a_thousand_short_texts_take_no_time_to_speak_of(identifier: LanguageIdentifier) -> None:
    texts = [f"Open the file number {number}" for number in range(1_000)]
    begun = time.perf_counter()

    detections = detector(identifier, "en", "fr").detect(texts)

    assert {detection.language for detection in detections} == {"en"}
    assert time.perf_counter() - begun < 5


def test_labels_and_phrases_are_seldom_taken_for_another_language(
    identifier: LanguageIdentifier,
) -> None:
    """Every row of both columns, which nobody has chosen for this, in one array each."""
    rows = [line.split("\t") for line in EN_FR.read_text(encoding="utf-8").splitlines()]
    english, french = [row[1] for row in rows], [row[2] for row in rows]

    to_french, to_english = (detector(identifier, *pair) for pair in (("en", "fr"), ("fr", "en")))

    assert {detection.language for detection in to_french.detect(english)} == {"en"}
    assert {detection.language for detection in to_french.detect(french)} == {"fr"}
    assert {detection.language for detection in to_english.detect(english)} == {"en"}
    assert {detection.language for detection in to_english.detect(french)} == {"fr"}


def test_a_document_has_paragraphs_in_other_languages(identifier: LanguageIdentifier) -> None:
    english, french = "The dog runs in the garden.", "Le chien court dans le jardin."
    german, word = "Der Hund läuft in den Garten und bellt.", "Bonjour"

    mostly_english = [english, french, german, word, "12", english, english]
    detected = detector(identifier, "en", "fr").detect_document(mostly_english)
    to_each = detector(identifier, "en de", "fr").detect_document(mostly_english)
    alone = detector(identifier, "en", "fr").detect_document([french, word])

    assert detected == ("en", {"fr": [1, 2]})
    assert to_each == ("en", {"fr": [1], "de": [2]})
    assert alone == ("fr", {})
    with pytest.raises(RequestError, match="the text seems to be German"):
        detector(identifier, "en", "fr").detect_document([german, german])
