"""Tests that brackets, quotation marks, runs of marks and faces are written as in the source."""

import re
import time

import numpy as np
import pytest

from serving.text.markup.kaomoji import find_kaomoji
from serving.text.markup.number_formats import (
    localize_amount,
    scaled_amounts,
)
from serving.text.markup.paired_marks import (
    find_enclosed,
    find_pairs,
)
from serving.text.markup.protection import Protection
from serving.text.markup.tokens import (
    Markup,
    MarkupKind,
    Role,
    Token,
    join_raw,
    join_text,
    text_tokens,
)
from serving.text.markup.whole_words import with_whole_words
from tests.serving.text.markup.fake_model import HTML, by_table, layout, pieces, translate


def non_translatables(text: str) -> list[str]:
    tokens = Protection(None, True, "en", "fr").protect(text_tokens(text, False, True))
    return [token.raw for token in tokens if token.role is Role.NON_TRANSLATABLE]


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ('a "b" c (d)', ['"b"', "(d)"]),
        ("'red' and ‘blue’", ["'red'", "‘blue’"]),
        ("“a ‘b’ c” «d» „e“", ["“a ‘b’ c”", "‘b’", "«d»", "„e“"]),
        ("It's the dogs' bowl, rock 'n' roll, 'tis the '90s", []),
        ("It's the boys' 'red' ball", ["'red'"]),
        ("'The boys' ball is red', he said.", ["'The boys' ball is red'"]),
        ('("a") (b (c))', ['("a")', '"a"', "(b (c))", "(c)"]),
        ("»ja« sagt er", ["»ja«"]),
        ("« Oui », dit-il", ["« Oui »"]),
    ],
)
def test_pairs(text: str, pairs: list[str]) -> None:
    closing = sorted(find_pairs(text).closing.items())
    assert [text[start : end + 1] for start, end in closing] == pairs


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('"The dog runs."', "The dog runs."),
        ("“‘The dog.’”", "The dog."),
        ("('The dog')", "The dog"),
        ('"The dog" and "the cat"', '"The dog" and "the cat"'),
        ('"The dog".', '"The dog".'),
        ("The cat sleeps.”", "The cat sleeps."),
        ("“The dog runs.", "The dog runs."),
        ("...and the dog", "and the dog"),
        (": the dog runs", "the dog runs"),
        (", and the dog", "and the dog"),
        ("« Oui »", "Oui"),
        ('"..."', '"..."'),
        ("The dogs'", "The dogs'"),
        ("The dog --", "The dog"),
        ("(The dog)-", "The dog"),
    ],
)
def test_what_encloses_a_text_is_not_part_of_it(text: str, inner: str) -> None:
    span = find_enclosed(text)
    assert text[span.start : span.end] == inner


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ('"Dogs run. Cats sleep."', ["Dogs run.", "Cats sleep."]),
        ("“Dogs run.” Cats sleep.", ["Dogs run.", "Cats sleep."]),
        ("(Dogs run!!! Cats sleep??)", ["Dogs run!", "Cats sleep?"]),
        ("'red'", ["red"]),
    ],
)
def test_segments_are_without_what_encloses_them(text: str, segments: list[str]) -> None:
    marked = layout(text, protection=True)
    assert [segment.text for segment in marked.segments] == segments
    assert translate(marked, by_table({})) == text


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ('a "b" c', {'"b"': "x"}, 'a "x" c'),
        ('a "b" c', {'"b"': '" x "'}, 'a "x" c'),
        ('a "b" c', {'"b"': "« x »"}, "a « x » c"),  # as the target language writes it
        ("a “b” c", {'"b"': "« x »"}, "a “x” c"),
        ("a 'b' c", {"'b'": "x"}, "a 'x' c"),
        ("a (b) c", {"(b)": "(x"}, "a (x) c"),
        ("a (b) c", {"(b)": "( x)"}, "a (x) c"),
        ('"a b". ', {'"a': "x", 'b".': "y."}, '"x y". '),
        ("a ((b)) c", {"((b))": "x"}, "a ((x)) c"),
        ("a (b) c (d)", {"(b)": "x"}, "a (x) c (d)"),
    ],
)
def test_pairs_are_neither_lost_nor_doubled(text: str, said: dict[str, str], expected: str) -> None:
    assert translate(layout(text, protection=True), by_table(said)) == expected


@pytest.mark.parametrize(
    ("text", "read_as", "said", "expected"),
    [
        ("Hey!!!!", "Hey!", {"Hey!": "Hé !"}, "Hé !!!!"),
        ("Hey!!!!", "Hey!", {"Hey!": "Hé"}, "Hé !!!!"),
        ("Hey!!!!", "Hey!", {"Hey!": "Hé ! ! !"}, "Hé !!!!"),
        ("Hey?!", "Hey?", {"Hey?": "Hé?"}, "Hé?!"),
        ("Hey...", "Hey...", {"Hey...": "Hé"}, "Hé..."),
        ("Hey…", "Hey...", {"Hey...": "Hé..."}, "Hé…"),
        ("Hey?..", "Hey?", {}, "Hey?.."),
        ("Hey...!!", "Hey!", {"Hey!": "Hé !"}, "Hé...!!"),
        ("Hey!!1", "Hey!", {"Hey!": "Hé !"}, "Hé !!1"),
        ("Hey... you?!", "Hey... you?", {"you?": "toi"}, "Hey... toi ?!"),
        ("so... he said.", "so... he said.", {"so...": "si", "said.": "dit..."}, "si he dit..."),
        ("a dog🎾", "a dog", {"dog": "dog !"}, "a dog🎾"),
        ("a (dog).", "a (dog).", {"(dog).": "(chien)"}, "a (chien)."),
    ],
)
def test_the_end_and_runs_of_marks_are_the_sources(
    text: str, read_as: str, said: dict[str, str], expected: str
) -> None:
    marked = layout(text, HTML, protection=True)
    assert [segment.text for segment in marked.segments] == [read_as]
    assert translate(marked, by_table(said)) == expected


@pytest.mark.parametrize(
    "face",
    [
        *["¯\\_(ツ)_/¯", "ʕ•ᴥ•ʔ", "(╯°□°)╯︵ ┻━┻", "(^_^)", "(｡◕‿◕｡)", "( ͡° ͜ʖ ͡°)", "(-_-)"],
        *["ಠ_ಠ", "(ಥ﹏ಥ)", "m(_ _)m", "┬─┬ノ( º _ ºノ)", "༼ つ ◕_◕ ༽つ", "\\(^o^)/", "(>_<)"],
        *[
            "٩(◕‿◕｡)۶",
            "(*^▽^*)",
            "(=^･ω･^=)",
            "(づ｡◕‿‿◕｡)づ",
            "(ง'̀-'́)ง",
            "☜(ﾟヮﾟ☜)",
            "(*≧▽≦)",
            "ᕕ( ᐛ )ᕗ",
            "(o_O)",
        ],
    ],
)
def test_faces(face: str) -> None:
    for text in (face, f"A dog {face} runs", f"A dog runs. {face}", f"{face}!"):
        assert [text[start:end] for start, end in find_kaomoji(text)] == [face]


@pytest.mark.parametrize(
    "text",
    [
        *["C++ (or C#)", "a | b || c", "(a) [b] {c}", "5° − 3", "x = (a + b) * c", "«λόγος»"],
        *["नमस्ते दुनिया", "(!) (?) (...)", "§§ 3", "R&D", "→ here", "שלום", "¿Qué?", "/ˈdɒɡ/"],
    ],
)
def test_what_is_no_face(text: str) -> None:
    assert [*find_kaomoji(text)] == []


@pytest.mark.parametrize("piece", ["( ", "(^ ", "^_", "° ", "(", "ツ", "^ )"])
def test_long_runs_of_signs_take_no_time(piece: str) -> None:
    start = time.process_time()
    text = piece * (20_000 // len(piece))
    assert len([*find_kaomoji(text), *find_pairs(text).places]) >= 0
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    "identifier",
    [
        *["#A-4471-X", "#123-abc", "#12-B", "№A-12", "REF:2024/03-A", "SKU#4471/B", "X-12.5/A"],
        *["@john.smith", "@mary-ann", "#red-dogs", "#cat-2", "owner/repo#123", "4471-X/22#A"],
        *["PO-2024-00031-B", "v2.0-beta.3+exp.5", "ABC-1234-XY/7", "#a_b-c", "@a.b-c2"],
    ],
)
def test_identifiers_are_kept_from_border_to_border(identifier: str) -> None:
    for text in (f"See {identifier} here", f"See {identifier}, here", f"{identifier}."):
        assert non_translatables(text) == [identifier]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{0}'s dog", ["{0}"]),
        ("{count}-year-old", ["{count}"]),
        ("#123's dog", ["#123"]),
        ("key={x}", ["key={x}"]),
    ],
)
def test_words_joined_to_a_placeholder_are_translated(text: str, parts: list[str]) -> None:
    assert non_translatables(text) == parts


@pytest.mark.parametrize(
    ("text", "french", "portuguese"),
    [
        ("$3.2 million", "3,2 millions\u00a0$", "$3,2 milhões"),
        ("€1 million", "1 million\u00a0€", "€1 milhão"),
        ("€3.2m", "3,2\u00a0M\u00a0€", "€3,2\u00a0mi"),
        ("US$ 3.2 billion", "3,2 milliards\u00a0US$", "US$3,2 bilhões"),
        ("£5bn", "5\u00a0Md\u00a0£", "£5\u00a0bi"),
        ("$20 thousand", "20 mille\u00a0$", "$20 mil"),
        ("$5-10 million", "5-10 millions\u00a0$", "$5-10 milhões"),
        ("3 million USD", "3 millions\u00a0USD", "USD\u00a03 milhões"),
    ],
)
def test_amounts_with_a_scale(text: str, french: str, portuguese: str) -> None:
    assert [text[start:end] for start, end in scaled_amounts(text, "en")] == [text]
    assert localize_amount(text, "en", "fr") == french
    assert localize_amount(text, "en", "pt") == portuguese
    assert localize_amount(text, "en", "xx") == text


@pytest.mark.parametrize("text", ["€40 b", "$5 a month", "$5 mice", "3.2 million dollars"])
def test_amounts_without_a_scale(text: str) -> None:
    assert [*scaled_amounts(text, "en")] == []


@pytest.mark.parametrize("mark", [*"\u180e\u200b\u200c\u200d\u2060\ufeff"])
def test_marks_without_a_width_part_words_that_are_two(mark: str) -> None:
    vocabulary = {"dog", "runs", "garden", "a"}

    def num_tokens(text: str) -> int:
        return sum(1 if word in vocabulary else len(word) for word in text.split())

    text = f"a dog{mark}runs, a gar{mark}den"
    tokens = [*with_whole_words([Token(Role.TEXT, text, text)], num_tokens)]
    assert join_raw(tokens) == text
    assert join_text(tokens).replace(mark, "") == "a dog runs, a garden"


@pytest.mark.parametrize(
    "text",
    [
        *["Dog —", "Dog！！", "Dog.!", "¡Dog!", "¿Dog?", "Dog × dog", "</3 dog", "xD dog"],
        *["〝dog〞 a", "〔dog〕 a", "［dog］ a", "｢dog｣ a", "``dog'' a", "‚dog‘ a", "(*^▽^*) dog"],
        *["a <<dog>> a", "a <<<dog>>>", "Dog。。。", r"Dog.\0", "Dog？！"],
    ],
)
def test_signs_come_back_where_they_were(text: str) -> None:
    def model(read: str) -> tuple[list[str], np.ndarray]:
        words = re.findall(r"[^\W_]+|%\d|'s", read)  # it loses all signs
        rows = np.eye(len(read.split(" ")))[[0] * len(words)]
        return pieces(" ".join(words)), rows

    assert translate(layout(text, protection=True), model).replace("\u202f", " ") == text


@pytest.mark.parametrize(("source", "num_points"), [("en", 2), ("es", 0), ("gl", 0)])
def test_inverted_marks_are_left_to_models_of_languages_that_have_them(
    source: str, num_points: int
) -> None:
    text = "¿Dog? ¡Cat!"
    tokens = Protection(None, True, source, "fr").protect(text_tokens(text, False, True))
    assert [token.role for token in tokens].count(Role.POINT) == num_points


def test_quotation_marks_of_two_kinds_are_written_as_in_the_source() -> None:
    model = by_table({'"dog"': '« dog"'})
    assert translate(layout('a "dog" a', protection=True), model) == 'a "dog" a'


XML_WITH_MARKS = Markup(MarkupKind.XML, ignore_tags=frozenset({"k"}))


@pytest.mark.parametrize("french", ["« chien »", "'chien'", "chien"])
def test_quotes_of_gnu_stay_a_pair(french: str) -> None:
    [segment] = layout("a `dog' a", protection=True).segments
    assert "`" not in segment.text
    translation = translate(layout("a `dog' a", protection=True), by_table({"'dog'": french}))
    assert translation in ("a `chien' a", "a « chien » a")
    [of_a_mark] = layout("`<k>%s</k>' is here", XML_WITH_MARKS, protection=True).segments
    assert of_a_mark.text == "'%1' is here"
    [two] = layout("find `dog' in `cat' or ` a `", protection=True).segments
    assert two.text == "find 'dog' in 'cat' or %1"


@pytest.mark.parametrize("space", [*"\u00a0\u1680\u2002\u2009\u202f\u205f\u3000"])
def test_spaces_of_any_width_are_read_as_a_space(space: str) -> None:
    [segment] = layout(f"a{space}dog", protection=True).segments
    assert segment.text == "a dog"


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("He left at 5 p.m. She left.", ["He left at %1.", "She left."]),
        ("It is 9 a.m. The dog runs.", ["It is %1.", "The dog runs."]),
        ("He left at 5 p.m. Eastern time.", ["He left at %1 Eastern time."]),
        ("He left at 10:30 p.m. Eastern time.", ["He left at %1 Eastern time."]),
        ("He left at 10:30 p.m. She left.", ["He left at %1.", "She left."]),
        ("He left at 5 p.m. on Monday.", ["He left at %1 on Monday."]),
        ('He said "5 p.m." and left.', ['He said "%1" and left.']),
        ("The U.S. Army is here.", ["The U.S. Army is here."]),
        ("He is in the U.S. The dog is not.", ["He is in the U.S.", "The dog is not."]),
    ],
)
def test_sentences_after_a_time(text: str, segments: list[str]) -> None:
    marked = layout(text, protection=True)
    assert [segment.text for segment in marked.segments] == segments
