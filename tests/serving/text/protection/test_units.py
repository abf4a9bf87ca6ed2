"""Tests the measure of what survives."""

import pytest

from tests.serving.text.protection.lines import signs, units
from tests.serving.text.protection.units import lost


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("1,250 kg for $3.50", "1\u202f250 kg pour 3,50 $"),
        ("10000 or 2.5", "10 000 ou 2,5"),
        ("at 5 p.m. or 4:44 pm or 8 am", "\u00e0 17 h ou 16:44 ou 8h00"),
        ("from 8 to 9.30 am, 11-2 pm", "de 8 \u00e0 9h30, 11-14 h"),
        ("12 am", "0 h"),
        ("one dog and 2 cats", "1 chien et 2 chats"),
        ("Tom &amp; Jerry &lt;3", "Tom et Jerry <3"),
        ("See https://a.org/x. (Or b@c.com)", "Voir https://a.org/x. (Ou b@c.com)"),
        ("Louis XIV", "Louis"),
        ("The 1990s, the 21st", "Les ann\u00e9es 1990, le 21e"),
        ("Salt & pepper", "Sel et poivre"),
        ("He/she", "Il ou elle"),
        ("J. R. Smith", "Jean R. Smith"),
        ("{a, select, b {He} other {}}", "{a, select, b {Il} other {}}"),
        ("\u2022 A dog", "\u2022 Un chien"),
        ("-5 \u00b0C", "\u22125\u00a0\u00b0C"),
    ],
)
def test_what_survives(source: str, answer: str) -> None:
    assert lost(source, answer) == []


@pytest.mark.parametrize(
    ("source", "answer", "losses"),
    [
        ("born in 1950-51", "n\u00e9 en 51", ["digits 1950", "joined 1950-51"]),
        ("5 dogs", "5 5 chiens", ["digits 5"]),
        ("7 to 8", "8 \u00e0 7", []),
        ("7-8", "8-7", ["joined 7-8"]),
        ("at 5 pm", "\u00e0 18 h", ["digits 18", "digits 5"]),
        ("see a@b.org", "voir", ["address a@b.org", "sign @"]),
        ("{x} and %s", "{x}", ["placeholder %s", "sign %"]),
        ("{n, plural, other {#}}", "{n, pluriel, other {#}}", ["message {n, plural,"]),
        ("1/2", "12", ["digits 1", "digits 12", "digits 2", "joined 1/2", "sign /"]),
        ("List<String>", "<String>", ["code List<String>"]),
        ("<Ctrl+S>", "Ctrl+S", ["keys <Ctrl+S>", "sign <", "sign >"]),
        ("H2O", "H 2O", ["identifier H2O"]),
        ("ok \U0001f44d", "ok \U0001f44d\U0001f44d", ["emoji \U0001f44d"]),
        ("\u00a9 me", "moi", ["sign \u00a9"]),
        ("a dog", "un\u00ae chien", ["sign \u00ae"]),
        ("-5 degrees", "5 degr\u00e9s", ["minus -"]),
        ("AT&amp;T", "AT T", ["sign &"]),
        ("a) Bowl", "Bol", ["sign )", "list mark a)"]),
        ("- [ ] Buy", "- [] Acheter", ["list mark - [ ]"]),
    ],
)
def test_what_is_lost(source: str, answer: str, losses: list[str]) -> None:
    assert lost(source, answer) == losses


def test_lines_are_all_different_and_survive_as_they_are() -> None:
    assert len(set(units())) == 300
    for line in [*units(), *signs()]:
        assert lost(line, line) == []
