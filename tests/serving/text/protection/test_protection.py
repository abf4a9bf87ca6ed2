"""Tests what is found that must not change, and how numbers are written in other languages."""

import random
import time
from decimal import Decimal

import pytest

from serving.text.markup.markdown_tokens import tokenize_plain_text
from serving.text.markup.number_formats import (
    localize_amount,
    localize_number,
    possible_values,
)
from serving.text.markup.patterns import (
    EMOJI,
    MAY_BE_NON_TRANSLATABLE,
    NON_TRANSLATABLE,
    SIGNS,
    words_with_signs,
)
from serving.text.markup.protection import Protection
from serving.text.markup.tokens import Role, join_raw, join_translations, text_tokens
from serving.text.markup.written_units import written_units
from tests.serving.text.markup.fake_model import by_table, layout, translate


def find_texts(text: str, role: Role = Role.NON_TRANSLATABLE) -> list[str]:
    tokens = Protection(None, True, "en", "fr").protect(text_tokens(text, False, True))
    return [token.translation for token in tokens if token.role is role]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://a.b/c(d)?e=f. Or (www.g.h).", ["https://a.b/c(d)?e=f", "(www.g.h)"]),
        ("Ask jo.e+x@a-b.co.uk, please.", ["jo.e+x@a-b.co.uk"]),
        ("{a} {{ b }} ${c} {0} %{d}", ["{a}", "{{ b }}", "${c}", "{0}", "%{d}"]),
        ("{n, plural, one {# {x} a} other {b}} c", ["{n, plural, one {# {x} a} other {b}}"]),
        ("%s %1$d %.2f %(who)s 50% of", ["%s", "%1$d", "%.2f", "%(who)s", "50%"]),
        ("v1.2 1.2.3-rc.1 2026-11-22", ["v1.2", "1.2.3-rc.1", "2026-11-22"]),
        ("~/a/b.txt C:\\x\\y.z report.pdf and/or", ["~/a/b.txt", "C:\\x\\y.z", "report.pdf"]),
        ("a_b f() MAX_N @me #tag AB-12", ["a_b", "f()", "MAX_N", "@me", "#tag", "AB-12"]),
        ("5 kg, 3.5 km and 1,200 mg", ["5 kg", "3,5 km", "1\u202f200 mg"]),
        ("$3.50 or €5 or $2 million", ["3,50\u00a0$", "5\u00a0€", "2 millions\u00a0$"]),
        ("Tom, don't say it. We are 5!", []),
    ],
)
def test_what_is_kept(text: str, expected: list[str]) -> None:
    assert find_texts(text) == expected


@pytest.mark.parametrize(
    ("text", "kept_as"),
    [
        ("at 4:44 pm", "at 16:44"),
        ("12:05 a.m. to 12:05PM, 1:30 p.m., 2:30 p.m.", "0:05 to 12:05, 13:30, 14:30."),
        ("9:15\u00a0AM.", "9:15."),
        ("13:00 pm, 4:44 pmx, 3:4:44 pm, 6 pm", "13:00 pm, 4:44 pmx, 3:4:44 pm, 6 pm"),
        ("9:00-10:00 am", "9:00-10:00 am"),
    ],
)
def test_times_are_kept_as_those_of_24_hours(text: str, kept_as: str) -> None:
    tokens = [*text_tokens(text, False, True)]
    protected = [*Protection(None, True, "en", "fr").protect(tokens)]
    assert (join_raw(protected), join_translations(protected)) == (text, kept_as)
    assert join_raw(Protection(None, True, "fr", "en").protect(tokens)) == text


def test_emoji_are_marks() -> None:
    assert find_texts("a 👩‍👩‍👧 b 👍🏽🎉 ❤️ 🇫🇷 c 1️⃣", Role.POINT) == ["👩‍👩‍👧", "👍🏽🎉 ❤️ 🇫🇷", "1️⃣"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("If n <= 10 && m > 2 then a != b.", ["n <= 10 && m > 2", "a != b"]),
        ("f(x) = x^2 + 1 is a curve", ["f(x) = x^2 + 1"]),
        ("a Map<String, Integer> and vector<int>", ["Map<String, Integer>", "vector<int>"]),
        ("Ann <ann.lee@example.com> wrote", ["<ann.lee@example.com>"]),
        ("Press <Esc>, Alt+F4 or Ctrl-C.", ["<Esc>", "Alt+F4", "Ctrl-C"]),
        ("C++, C# and .NET at AT&T, R&D", ["C++", "C#", ".NET", "AT&T", "R&D"]),
        ("key=value, a|b, std::map, x[0]", ["key=value", "a|b", "std::map", "x[0]"]),
        ("Bread &amp; butter &lt;3 &copy;", ["&amp;", "&lt;3", "&copy;"]),
        ("over TCP/IP and I/O, not and/or", ["TCP/IP", "I/O"]),
        ("%d %'d %*d %-5s %n %zu, 20 % d'eau", ["%d", "%'d", "%*d", "%-5s", "%n", "%zu", "20 %"]),
        ("<%= name %> %NAME% ${a.b} #{c} %1 %L2", ["<%= name %>", "%NAME%", "${a.b}", "#{c}"]),
        ("https://a.b/{id}?q=${x}.", ["https://a.b/{id}?q=${x}"]),
        ("an old дом and 東京", ["дом", "東京"]),
        ("[ ] buy, [x] done", ["[ ]", "[x]"]),
        ("He left [...] and came […] back", ["[...]", "[…]"]),
        ("Lego® and Kleenex™", ["Lego®", "Kleenex™"]),
        ("the letter π, Привет", ["π, Привет"]),
        ("from A & B to C &amp; D", ["A & B", "C &amp; D"]),
        ("Dial *#06# now", ["*#06#"]),
        ("it is a < b", ["a < b"]),
        ("He said and/or left (now); it's fine - so.", []),
    ],
)
def test_signs_and_code_are_kept(text: str, expected: list[str]) -> None:
    assert find_texts(text)[: len(expected)] == expected
    assert expected or find_texts(text) == []


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("{% if x %}a dog{% endif %} <% a %>", ["{% if x %}", "{% endif %}", "<% a %>"]),
        ("left ® and ™ → left • right", ["®", "™", "→", "•"]),
        ("&Open § here", ["&", "§"]),
        ("a‎b ‪c‬", ["‎", "‪", "‬"]),
        ("I am sad :( or ;-)", [":(", ";-)"]),
    ],
)
def test_signs_that_stand_for_no_word_are_marks(text: str, marks: list[str]) -> None:
    assert find_texts(text, Role.POINT) == marks


@pytest.mark.parametrize(
    ("text", "breaks"),
    [
        ("Home > Products > Dogs", [" > ", " > "]),
        ("Settings | Help | About us", [" | ", " | "]),
        ("Red / Green, and go to File → Save", [" / ", " → "]),
        ("[laughs] I see [him] Mary", [" "]),
        ("See the dog (Rex / Bello), dogs > cats and x > Y", []),
    ],
)
def test_items_of_menus_and_titles_are_translated_one_by_one(text: str, breaks: list[str]) -> None:
    assert find_texts(text, Role.BREAK) == breaks


def test_brackets_are_pairs_around_words() -> None:
    tokens = [
        *Protection(None, True, "en", "fr").protect(text_tokens("a [b c] {d e}", False, True))
    ]
    pairs = [token.raw for token in tokens if token.role in (Role.OPEN, Role.CLOSE)]
    assert pairs == ["[", "]", "{", "}"]


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("a dog runs !", "a dog runs !"),
        ("wait… “yes” — «no»—ok", 'wait... "yes" - "no" - ok'),
        ("ﬁnd hid­den ​wor​ds﻿", "find hidden words"),
        ("café ＡＢ", "café AB"),
        ("A&nbsp;caf&eacute;", "A café"),
        ("don’t", "don’t"),
    ],
)
def test_unusual_characters_are_read_as_usual_ones(text: str, read_as: str) -> None:
    tokens = [*Protection(None, True, "en", "fr").protect(text_tokens(text, False, True))]
    assert (join_raw(tokens), "".join(token.text for token in tokens)) == (text, read_as)


def test_dashes_quotes_and_ellipses_are_written_as_in_the_source() -> None:
    text = "“a” — b… c—d"
    assert translate(layout(text, protection=True), by_table({})) == text


def test_brackets_that_a_model_left_out_come_back_around_their_words() -> None:
    marked = layout("a (b c) 9:00 d", protection=True)
    table = {"(b": "x", "c)": "y)"}
    assert translate(marked, by_table(table)) == "a (x y) 9:00 d"


def test_numbers_are_what_has_no_other_way_to_be_said() -> None:
    text = "5 of 3,000 at 10:37, 6 pm, 1st, 1/2, 1990s, in 1984."
    assert find_texts(text, Role.NUMBER) == ["5", "1", "1990", "1984"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("500", {500}),
        ("3,5", {Decimal("3.5")}),
        ("1,500", {1500, Decimal("1.5")}),
        ("72 187,50", {Decimal("72187.5")}),
        ("1.2.3", set()),
    ],
)
def test_what_numbers_may_mean(text: str, meant: set[Decimal]) -> None:
    assert possible_values(text) == meant


def test_numbers_in_other_languages() -> None:
    assert localize_number("1,234.5 kg", "en", "fr") == "1\u202f234,5 kg"
    assert localize_number("1.234,5", "de", "en") == "1,234.5"
    assert localize_number("1.2.3", "en", "fr") == "1.2.3"
    assert localize_number("3.5", "en", "xx") == "3.5"
    assert localize_amount("€ 3.50", "en", "fr") == "3,50\u00a0€"
    assert localize_amount("3,50 €", "fr", "en") == "€3.50"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"500": "5000"}, "a 500 b"),
        ({"500": "500"}, "a 500 b"),
        ({"500": "cinq"}, "a 500 b"),
    ],
)
def test_a_number_that_came_out_wrong_is_put_right(wrong: dict[str, str], expected: str) -> None:
    assert translate(layout("a 500 b", protection=True), by_table(wrong)) == expected


@pytest.mark.parametrize("text", ["a mid-1990s b", "a top-10 b", "a pre-5th b"])
def test_what_a_number_is_joined_to_stays(text: str) -> None:
    assert translate(layout(text, protection=True), by_table({})) == text


@pytest.mark.parametrize(
    "text",
    [
        "{a} / {b}",
        "a@b.org, c@d.org",
        "{a} — {b}",
        "`a`+`b`",
        "http://a.b/c`x y`",
        "¥5000 / €40",
    ],
)
def test_what_is_kept_is_one_with_the_signs_between(text: str) -> None:
    [segment] = layout(f"a {text} b", protection=True).segments
    assert segment.text == "a %1 b"


@pytest.mark.parametrize(
    ("text", "table", "expected"),
    [
        ("a 🎾, b 😀.", {}, "a 🎾, b 😀."),
    ],
)
def test_a_sign_has_the_space_before_it(text: str, table: dict[str, str], expected: str) -> None:
    assert translate(layout(text, protection=True), by_table(table)) == expected


def test_a_small_number_stays_in_figures() -> None:
    assert translate(layout("a 5 b", protection=True), by_table({"5": "cinq"})) == "a 5 b"
    assert translate(layout("a 5 b", protection=True), by_table({"5": "6"})) == "a 5 b"


def test_what_is_kept_is_there_once_whatever_the_model_does_with_its_name() -> None:
    text = layout("a {x} b", protection=True)
    for said in ("%", "%3", "%1", "%1 %1", "nom", "% 1", "%12"):
        assert translate(text, by_table({"%1": said})) == "a {x} b", said
    assert translate(text, by_table({}, order=[0, 2])) == "a {x} b"


@pytest.mark.parametrize("text", ["`" * 200_000, "```x\n" * 20_000, "~" * 200_000])
def test_marks_of_code_that_is_never_closed_take_no_time(text: str) -> None:
    assert "".join(token.raw for token in tokenize_plain_text(text, True, True)) == text


def test_a_fence_ends_at_the_mark_that_began_it() -> None:
    text = "a\n~~~\nb\n```\nc\n```\n~~~\nd\n```\ne"

    breaks = [t.raw for t in tokenize_plain_text(text, True, False) if t.role is Role.BREAK]

    assert breaks == ["~~~\nb\n```\nc\n```\n~~~"]


RUNS = [
    *["(", "[", "{", "<", "&", "#", "-", "'", "a", "1", "%", "_", ".", "/", "@", "~", "+"],
    *["1-", "1 ", "1 x ", "1 - ", "12:", "a.", "(a", "a(", "&a;", "a_", "A/", "x = ", "{a "],
    *["+1 ", "0 1", "$1", "a::", "<a", "%(", "\u0436 ", "\u2014", "**** ", "A1 ", "1'", "a;1"],
]


@pytest.mark.parametrize(
    "piece",
    [pytest.param(piece, marks=[pytest.mark.full] * (i % 4 > 0)) for i, piece in enumerate(RUNS)],
)
def test_long_runs_take_no_time(piece: str) -> None:
    text = "9 " + piece * (30_000 // len(piece)) + "!"
    start = time.process_time()
    protected = [*Protection(None, True, "en", "fr").protect(text_tokens(text, False, True))]
    assert join_raw(protected) == text
    assert time.process_time() - start < 3  # a square of its length would take longer


@pytest.mark.parametrize("seed", range(20))
def test_what_is_passed_over_at_a_glance_has_nothing(seed: int) -> None:
    """Texts of pieces that protected parts are made of, and of what looks like them."""
    generator = random.Random(seed)
    pieces = [*"ab1.:/@_-%{}()$`#~\\ ©®️⃣🙂€é", "www.", "mailto:", "pm", "kg", "http", ".com", "--"]
    for _ in range(300):
        text = "".join(generator.choices(pieces, k=generator.randint(1, 8)))
        matches = [*NON_TRANSLATABLE.finditer(text), *EMOJI.finditer(text), *SIGNS.finditer(text)]
        if matches or any(written_units(text)) or any(words_with_signs(text)):
            assert MAY_BE_NON_TRANSLATABLE.search(text), text
