"""Tests the measure of what survives."""

import pytest

from tests.serving.text.protection.lines import marks, placeholder_lines, signs, units
from tests.serving.text.protection.units import lost, lost_placeholders


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("1,250 kg for $3.50", "1\u202f250 kg pour 3,50 $"),
        ("10000 or 2.5", "10 000 ou 2,5"),
        ("at 5 p.m. or 4:44 pm or 8 am", "à 17 h ou 16:44 ou 8h00"),
        ("from 8 to 9.30 am, 11-2 pm", "de 8 à 9h30, 11-14 h"),
        ("12 am", "0 h"),
        ("one dog and 2 cats", "1 chien et 2 chats"),
        ("Tom &amp; Jerry &lt;3", "Tom et Jerry <3"),
        ("See https://a.org/x. (Or b@c.com)", "Voir https://a.org/x. (Ou b@c.com)"),
        ("Louis XIV", "Louis"),
        ("The 1990s, the 21st", "Les années 1990, le 21e"),
        ("Salt & pepper", "Sel et poivre"),
        ("He/she", "Il ou elle"),
        ("J. R. Smith", "Jean R. Smith"),
        ("{a, select, b {He} other {}}", "{a, select, b {Il} other {}}"),
        ("• A dog", "• Un chien"),
        ("10x15 cm", "10×15 cm"),
        ('"A dog!!!" (red)', '"Un chien !!!" (rouge)'),
        ("It's the dogs' 'red' house", "C'est la maison 'rouge' des chiens"),
        ("I left at 5 p.m.!", "Je suis parti à 5 p.m. !"),
        ("-5 °C", "−5\u00a0°C"),
    ],
)
def test_what_survives(source: str, answer: str) -> None:
    assert lost(source, answer) == []


@pytest.mark.parametrize(
    ("source", "answer", "losses"),
    [
        ("born in 1950-51", "né en 51", ["digits 1950", "joined 1950-51"]),
        ("5 dogs", "5 5 chiens", ["digits 5"]),
        ("7 to 8", "8 à 7", []),
        ("7-8", "8-7", ["joined 7-8"]),
        ("at 5 pm", "à 18 h", ["digits 18", "digits 5"]),
        ("see a@b.org", "voir", ["address a@b.org", "sign @"]),
        ("{x} and %s", "{x}", ["placeholder %s", "sign %"]),
        ("{n, plural, other {#}}", "{n, pluriel, other {#}}", ["message {n, plural,"]),
        ("1/2", "12", ["digits 1", "digits 12", "digits 2", "joined 1/2", "sign /"]),
        ("List<String>", "<String>", ["code List<String>"]),
        ("<Ctrl+S>", "Ctrl+S", ["keys <Ctrl+S>", "sign <", "sign >"]),
        ("H2O", "H 2O", ["identifier H2O"]),
        ("ok 👍", "ok 👍👍", ["emoji 👍"]),
        ("© me", "moi", ["sign ©"]),
        ("a dog", "un® chien", ["sign ®"]),
        ("a dog", "un chi×en", ["sign ×"]),
        ("-5 degrees", "5 degrés", ["minus -"]),
        ("AT&amp;T", "AT T", ["sign &"]),
        ("a) Bowl", "Bol", ["sign )", "list mark a)"]),
        ("- [ ] Buy", "- [] Acheter", ["list mark - [ ]"]),
        (
            "#A-4471-X",
            "#A-471-X",
            ["digits 4471", "digits 471", "identifier A-4471-X", "order #A-4471-X"],
        ),
        ("@a.b", "@a", ["order @a.b"]),
        ('"A dog"', "Un chien", ['quote "']),
        ("'red'", "rouge", ["quote '"]),
        ("Hey!!!!", "Hé ! ! ! !", ["run !!!!"]),
        ("Hey?!", "Hé ?", ["run ?!"]),
        ("Why ಠ_ಠ", "Pourquoi ಠ ಠ", ["sign _", "face ಠ_ಠ"]),
        ("A dog", "Un chien.", ["end ."]),
        ("A (red) dog", "Un chien ( rouge)", ["loose ( "]),
    ],
)
def test_what_is_lost(source: str, answer: str, losses: list[str]) -> None:
    assert lost(source, answer) == losses


def test_lines_are_all_different_and_survive_as_they_are() -> None:
    assert len(set(units())) == 300
    for line in [*units(), *signs(), *marks()]:
        assert lost(line, line) == []


@pytest.mark.parametrize(
    ("source", "answer", "losses"),
    [
        ("{n} dogs", "{n} chiens", []),
        ("{n}px wide", "large de {n}px", []),
        ("{n} dogs", "n chiens", ["placeholder {n}"]),
        ("{n} dogs", "{n} {n} chiens", ["placeholder {n}"]),
        ("{n} dogs", "des{n} chiens", ["placeholder {n}"]),
        ("{n} dogs", "{n}chiens", ["placeholder {n}"]),
        ("{n} dogs", "{n} % chiens", ["placeholder %"]),
    ],
)
def test_what_placeholders_are_lost(source: str, answer: str, losses: list[str]) -> None:
    assert lost_placeholders(["{n}"], source, answer) == losses


def test_lines_with_placeholders_survive_as_they_are() -> None:
    lines = placeholder_lines()
    assert len(lines) == 300 and all(lines.values())
    for line, placeholders in lines.items():
        assert lost_placeholders(placeholders, line, line) == []
