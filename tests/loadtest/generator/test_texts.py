"""No text comes twice unless asked, and lengths are what was asked for."""

from pathlib import Path

import pytest

from loadtest.generator.texts import (
    CORPORA,
    RequestTexts,
    Work,
    num_sentences,
    num_words,
    read_texts,
    vary,
)
from loadtest.plan import WorkPlan
from loadtest.records import LoadTestError

LINES = [f"Sentence number {number} is here." for number in range(50)]


def test_no_text_comes_twice_in_many_rounds() -> None:
    texts = RequestTexts(LINES, seed=3)
    dealt = [texts[index] for index in range(500)]
    assert sorted(dealt[:50]) == sorted(LINES) != dealt[:50]
    assert len(set(dealt)) == 500


def test_texts_repeat_when_asked_to() -> None:
    texts = RequestTexts(LINES, seed=3, repeats=True)
    assert sorted(texts[index] for index in range(50, 100)) == sorted(LINES)


def test_the_seed_decides_the_order() -> None:
    first, same, other = ([RequestTexts(LINES, seed)[i] for i in range(120)] for seed in (1, 1, 2))
    assert first == same != other


def test_every_sentence_of_a_later_round_is_new() -> None:
    text = "It was late. He had seen Mr. Weston. Was it true?"
    assert vary(text, 0) == text
    assert vary(text, 4) == (
        "In 1004, It was late. In 1004, He had seen Mr. Weston. In 1004, Was it true?"
    )
    assert num_sentences(text) == 3


def test_a_second_run_can_go_on_where_the_first_one_stopped() -> None:
    first, second = Work(WorkPlan()), Work(WorkPlan(skipped_texts=10))
    texts = [first.text(number) for number in range(30)]
    assert [second.text(number) for number in range(20)] == texts[10:]


@pytest.mark.parametrize("name", CORPORA)
def test_the_built_in_texts_are_many_varied_and_different(name: str) -> None:
    texts = read_texts(None, name)
    assert len(texts) == len(set(texts)) > 350
    lengths = [num_words(text) for text in texts]
    low, high = {"sentences": (3, 30), "short": (3, 8), "long": (15, 30)}.get(name, (3, 160))
    assert low <= min(lengths)
    assert max(lengths) <= high


def test_texts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n \n")
    with pytest.raises(LoadTestError, match="holds no text"):
        read_texts(path, "sentences")
    with pytest.raises(LoadTestError, match="cannot be read as text"):
        read_texts(tmp_path / "none.txt", "sentences")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(LoadTestError, match="cannot be read as text"):
        read_texts(path, "sentences")
