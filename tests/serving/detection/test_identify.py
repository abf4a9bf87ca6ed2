"""Languages are identified among those that may be answered, by a model that is loaded late."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from serving import language_detection
from serving.errors import RequestError
from serving.language_detection import Identifier
from tests.serving.detection.accuracy import Accuracy, sentences, three_words


@pytest.fixture(scope="module")
def identifier() -> Identifier:
    return Identifier()


def test_accuracy_has_not_fallen() -> None:
    accuracy = Accuracy()

    assert accuracy.rightness(sentences()) >= 0.995
    assert accuracy.rightness(three_words()) >= 0.97
    assert min(accuracy.on_mixed_texts()) >= 0.97
    assert accuracy.when_none_is_right(sentences()) <= 0.05


def test_confidence_says_how_often_it_is_right() -> None:
    answers = Accuracy().answers(three_words())

    sure = [right for right, guess in answers if guess.confidence >= 0.8]
    unsure = [right for right, guess in answers if guess.confidence < 0.5]
    assert sum(sure) / len(sure) > 0.99
    assert sum(unsure) / len(unsure) < 0.9


def test_only_what_may_be_answered_is(identifier: Identifier) -> None:
    [en, de] = identifier.identify("Ceci n'est pas une pipe, mais une image.", ["en", "de"])

    assert {en.language, de.language} == {"en", "de"}
    assert en.confidence + de.confidence < 0.1
    assert identifier.identify("Ceci n'est pas une pipe.", []) == []


def test_codes_are_those_that_were_given(identifier: Identifier) -> None:
    among = ["deu_Latn", "eng_Latn", "en-US", "pt_BR", "zho_Hans", "nb"]
    asked = (
        "The weather is nice.",
        "O tempo está bom hoje.",
        "你好世界，今天天气很好",
        "Hva heter du?",
    )

    found = [identifier.identify(text, among)[0].language for text in asked]

    assert found == ["eng_Latn", "pt_BR", "zho_Hans", "nb"]


@pytest.mark.parametrize("text", ["", "   ", "123", "😀", "<p></p>", "https://example.org/a"])
def test_what_is_in_no_language_is_told_with_no_confidence(
    identifier: Identifier, text: str
) -> None:
    guesses = identifier.identify(text, ["fr", "en"])

    assert [guess.language for guess in guesses] == ["fr", "en"]
    assert guesses[0].confidence < 0.3


def test_tags_and_addresses_say_nothing(identifier: Identifier) -> None:
    text = '<div class="header main"><a href="https://the.example/page">Bonjour à tous</a></div>'

    assert identifier.identify(text, ["en", "fr"])[0].language == "fr"
    assert identifier.identify("BONJOUR LE MONDE ENTIER", ["en", "fr"])[0].language == "fr"


def test_of_a_long_text_the_beginning_is_read(identifier: Identifier) -> None:
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

    monkeypatch.setattr(language_detection, "_load", load)
    lazy = Identifier()
    assert loads == []

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda text: lazy.identify(text, ["en"]), ["a"] * 8))

    assert [guess.confidence for [guess] in answers] == [1.0] * 8
    assert len(loads) == 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Guten Morgen, wie geht es Ihnen heute?", "German"),
        ("こんにちは、元気ですか", "Japanese"),
        ("你好", "Chinese"),
    ],
)
def test_what_no_model_reads_is_refused_by_its_name(
    identifier: Identifier, text: str, name: str
) -> None:
    for texts in ([text], [text, "12"]):
        with pytest.raises(RequestError, match=f"seems to be {name}, which no model here"):
            language_detection._of_each(identifier, texts, ["en", "fr"], "it")


@pytest.mark.parametrize("text", ["", "123", "😀", "— «»", "Hi", "OK", "A dog runs.", "x = 3;"])
def test_what_says_little_is_not_refused(identifier: Identifier, text: str) -> None:
    [guess] = language_detection._of_each(identifier, [text], ["en"], None)
    assert guess.language == "en"


def test_a_sentence_in_another_language_among_others_goes_with_them(
    identifier: Identifier,
) -> None:
    texts = ["The dog runs in the snow.", "Guten Morgen, wie geht es Ihnen?", "They were old men."]
    found = language_detection._of_each(identifier, texts, ["en", "fr"], "it")
    assert {guess.language for guess in found} == {"en"}
