"""Tests where written units lie: each is found whole, and every digit of a text is in one."""

import re

import pytest
from babel.localedata import locale_identifiers
from hypothesis import given
from hypothesis import strategies as st

from serving.text.markup.number_formats import scaled_amounts
from serving.text.markup.written_units import (
    UnitKind,
    written_units,
)

WHOLE, NUMBER = UnitKind.WHOLE, UnitKind.NUMBER
QUANTITY, AMOUNT, TIME = UnitKind.QUANTITY, UnitKind.AMOUNT, UnitKind.TIME


def units(text: str, has_elisions: bool = False) -> list[tuple[str, UnitKind]]:
    """List the units of a text in order, without those that overlap one that was found before."""
    used: set[int] = set()
    units = []
    for span, kind in written_units(text, has_elisions):
        if span.start < span.end and used.isdisjoint(range(*span)):
            used.update(range(*span))
            units.append((span, kind))
    return [(text[span.start : span.end], kind) for span, kind in sorted(units, key=lambda f: f[0])]


@pytest.mark.parametrize(
    "unit",
    [
        *["1961-63", "1618–1648", "2003/04", "24-26"],  # ranges
        *["12/05/1987", "1998-11-03", "3.11.1998", "2023-11-05T14:30:00Z"],  # dates
        *["06:05", "2:03:59", "9:00-17:30", "14:00–16:00", "22h30", "9.30 am", "9am-5pm"],  # times
        *["6 a.m", "12-2pm"],
        *["555-0147", "06.12.34.56.78", "0800 555 019", "+44 20 7946 0958", "+351-21-123-4567"],
        *["(212) 555-0147", "(0)20 7946 0958", "555 0182", "1-800-555-0199"],  # phones
        *["GB29 NWBK 6016 1331 9268 19", "PT50000201231234567890154"],  # IBANs
        *["SW1A 1AA", "K1A 0B1", "90210-1234", "02139", "1012 AB", "75008"],  # post codes
        *[
            "AB-123-CD",
            "AB 12 CDE",
            "07CZ68912",
            "INV-2024-00031",
            "#10045-3",
            "2.10.4",
            "v1.2-rc1",
        ],
        *["4111 1111 1111 1111", "**** 4242", "XXXX-1881", "978-3-16-148410-0"],
        *["3-2", "21:19", "9.5/10", "16:9", "3 - 2", "2:1:1"],  # scores and ratios
        *["48.8566, 2.3522", "41°43'32\"N", "51.5074° N", "5'11\""],
        *["1/2", "1 1/2", "3½", "m²", "10x15", "4x4", "10 × 15 cm"],
        *["10.0.0.1", "00:1B:44:11:3A:B7", "0x1F", "4d36e96e-e325"],
        *["H2O", "B-52", "3D", "A4", "iPhone15", "MP3", "[12]", "§ 5", "© 2024", "> 100", "x2"],
        *["10%-20%", "*#06#", "FR 40 303 265 045"],
        *["US$ 30", "CHF 12.50", "30 EUR", "$5-10", "€1,000–€2,000", "1,2,3"],
    ],
)
def test_a_unit_is_kept_whole(unit: str) -> None:
    for text in (f"We saw {unit} today.", f"See ({unit}), he said.", unit):
        assert units(text) == [(unit, WHOLE)], text


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("5 of 30 were here, in 1984.", ["5", "30", "1984"]),
        ("The 3rd and the 21st, 1990s style", ["3", "21", "1990"]),
        ("A 2-year-old, mid-1990s, top-10 dog", ["2", "1990", "10"]),
        ("The 20th-century dog", ["20"]),
        ("In 2024's summer (2 weeks) \u201c12\u201d!", ["2024", "2", "12"]),
        ("Room 12, floor 3.", ["12", "3"]),
    ],
)
def test_plain_numbers_are_left_to_the_model(text: str, numbers: list[str]) -> None:
    assert units(text) == [(number, NUMBER) for number in numbers]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 kg, -3.5 °C, 50%, 3-4 km", [("5 kg", QUANTITY), ("-3.5 °C", QUANTITY)]),
        ("9.58 s, 2 h, 5 lbs, 60 mph", [(f"{x}", QUANTITY) for x in ("9.58 s", "2 h")]),
        ("$3.50 or 5 €, £4", [("$3.50", AMOUNT), ("5 €", AMOUNT), ("£4", AMOUNT)]),
        ("at 7:45 pm or 9:05 a.m.", [("7:45 pm", TIME), ("9:05 a.m", TIME)]),
        ("to Python 3.12, version 2.5", [("3.12", WHOLE), ("2.5", WHOLE)]),
        ("$2 million", [("$2", WHOLE)]),
        ("3,000 or 7.5", [("3,000", QUANTITY), ("7.5", QUANTITY)]),
    ],
)
def test_other_kinds(text: str, expected: list[tuple[str, UnitKind]]) -> None:
    assert units(text)[: len(expected)] == expected


def test_words_in_one_with_what_follows_stay_apart() -> None:
    assert units("l'11 mai", has_elisions=True) == [("11", NUMBER)]


WRITTEN = st.lists(
    st.one_of(
        st.from_regex("[0-9]{1,4}", fullmatch=True),
        st.sampled_from([*"-–/:., ()x+#%°'\"*", " ", " ", "a", "kg", "pm", "€", "dog", "X", "²"]),
    ),
    max_size=12,
).map("".join)


@given(WRITTEN)
def test_every_digit_is_in_a_unit(text: str) -> None:
    outside = text
    for span, _ in written_units(text):
        outside = outside[: span.start] + " " * (span.end - span.start) + outside[span.end :]
    assert not re.search("[0-9]", outside), units(text)


@pytest.mark.parametrize("text", ["1-" * 50_000, "1 " * 50_000, "(" * 50_000 + "1", "12:" * 30_000])
def test_long_runs_take_no_time(text: str) -> None:
    assert [*written_units(text)]


AMOUNTS = """
de|Das kostet 3,2 Millionen € im Jahr.|3,2 Millionen €
pt|Isto custa R$ 3,2 milhões por ano.|R$ 3,2 milhões
ru|Это стоит 3,2 млн € в год.|3,2 млн €
ja|これは ¥5万。|¥5万
zh|这要 ¥5万。|¥5万
en|It is $5M a year.|$5M
de|Das kostet 5 € im Jahr.|
ja|これは¥5です。|
"""


@pytest.mark.parametrize("case", AMOUNTS.strip().splitlines())
def test_amounts_with_a_scale_in_languages_with_and_without_letters_for_scales(case: str) -> None:
    language, text, amount = case.split("|")

    assert [text[span.start : span.end] for span in scaled_amounts(text, language)] == (
        [amount] if amount else []
    )


@pytest.mark.parametrize(
    "step", [pytest.param(20, id="few"), pytest.param(1, id="all", marks=pytest.mark.full)]
)
def test_amounts_are_looked_for_in_every_language_of_the_locales(step: int) -> None:
    for language in locale_identifiers()[::step]:
        assert list(scaled_amounts("5 m", language)) == []
