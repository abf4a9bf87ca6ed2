"""Tests what must be carried over, on made test sets of 200 lines from frames that training has
not.
"""

from pathlib import Path

import pytest

from models.data.corpus import SentencePair, read_pairs
from models.scores import keeps, score, share_kept

SETS = sorted((Path(__file__).parents[1] / "data" / "made").glob("*.tsv"))


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_references_keep_everything_and_empty_translations_nothing(path: Path) -> None:
    pairs = read_pairs(path)
    assert len(pairs) == 200
    assert share_kept(pairs, [p.target for p in pairs]) == 100
    assert share_kept(pairs, [""] * 200) == 0


@pytest.mark.parametrize(
    ("source", "target", "hypothesis", "expected"),
    [
        ("It costs 1,500 euros.", "Ça coûte 1 500 euros.", "Cela coûte 1.500 euros.", True),
        ("Take 500 mg.", "Prenez 500 mg.", "Prenez 5000 mg.", False),
        ("At 2:30 pm.", "À 14 h 30.", "À 14 heures 30.", True),
        ("I met Ana Lopez.", "J'ai vu Ana Lopez.", "J'ai rencontré Ana Lopez.", True),
        ("I met Ana Lopez.", "J'ai vu Ana Lopez.", "J'ai rencontré Anne Lopez.", False),
        ("See www.a-b.org/x.", "Voir www.a-b.org/x.", "Voir www.a-b.org/y.", False),
        ("Run my_file now.", "Lancez my_file.", "Lancez mon_fichier.", False),
        ("Thanks \U0001f642", "Merci \U0001f642", "Merci", False),
        ("HELLO WORLD", "BONJOUR LE MONDE", "BONJOUR LE MONDE", True),
        ("HELLO WORLD", "BONJOUR LE MONDE", "HELOURLDD", False),
        ("HELLO WORLD", "BONJOUR LE MONDE", "Bonjour le monde", False),
        ("A dog runs.", "Un chien court.", "", None),
    ],
)
def test_what_is_carried_over(source: str, target: str, hypothesis: str, expected) -> None:
    assert keeps(SentencePair("x", source, target), hypothesis) == expected


def test_the_table_says_what_was_kept() -> None:
    pairs = [SentencePair("a", "Take 5.", "Prenez 5."), SentencePair("b", "A dog.", "Un chien.")]
    table = score(pairs, ["Prenez 6.", "Un chien."]).as_table()
    assert "| a | 1 |" in table
    assert table.splitlines()[2].endswith("| 0.0 % |")
    assert table.splitlines()[3].endswith("|  |")
