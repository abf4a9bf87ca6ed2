"""Everyday sentences: references say their facts, and a table shows what does not."""

from pathlib import Path

import pytest

from models.scores import read_everyday, table

PATH = Path(__file__).parents[1] / "data" / "everyday.tsv"


def test_references_say_the_facts_they_are_judged_by() -> None:
    sentences = read_everyday(PATH)
    assert len(sentences) == 40
    assert all(each.is_said_by(each.pair.target) for each in sentences)
    assert not any(each.is_said_by("") for each in sentences)


def test_one_of_the_words_for_a_fact_is_enough() -> None:
    home = next(each for each in read_everyday(PATH) if "home" in each.pair.source)
    assert home.is_said_by("Je VOUDRAIS aller chez moi.")
    assert not home.is_said_by("Je veux partir.")


def test_the_table_says_which_translation_lacks_a_fact() -> None:
    sentences = read_everyday(PATH)[:2]
    rows = table(sentences, ["Bonjour, comment ça va ?", "Salut | !"]).splitlines()
    assert rows[2].endswith("| Bonjour, comment ça va ? | yes |")
    assert rows[3].endswith(r"| Salut \| ! | no |")


def test_facts_must_belong_to_sentences_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "few.tsv").write_text("x\ta\tb\nx\tc\td\n")
    (tmp_path / "few-facts.txt").write_text("b\n")
    with pytest.raises(ValueError, match="2 sentences, and facts of 1"):
        read_everyday(tmp_path / "few.tsv")
