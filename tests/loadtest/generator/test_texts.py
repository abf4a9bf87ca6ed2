"""No text comes twice unless asked, and lengths are what was asked for."""

from pathlib import Path

import pytest

from loadtest.errors import PlanError
from loadtest.generator.texts import (
    CORPORA,
    Texts,
    Work,
    num_sentences,
    num_words,
    read_texts,
    varied,
)
from loadtest.plan import WorkPlan

LINES = [f"Sentence number {number} is here." for number in range(50)]


def test_no_text_comes_twice_in_many_rounds() -> None:
    texts = Texts(LINES, seed=3)
    dealt = [texts[index] for index in range(500)]
    assert sorted(dealt[:50]) == sorted(LINES) != dealt[:50]
    assert len(set(dealt)) == 500


def test_texts_repeat_when_asked_to() -> None:
    texts = Texts(LINES, seed=3, repeats=True)
    assert sorted(texts[index] for index in range(50, 100)) == sorted(LINES)


def test_the_seed_decides_the_order() -> None:
    first, same, other = ([Texts(LINES, seed)[i] for i in range(120)] for seed in (1, 1, 2))
    assert first == same != other


def test_every_sentence_of_a_later_round_is_new() -> None:
    text = "It was late. He had seen Mr. Weston. Was it true?"
    assert varied(text, 0) == text
    assert varied(text, 4) == (
        "In 1004, It was late. In 1004, He had seen Mr. Weston. In 1004, Was it true?"
    )
    assert num_sentences(text) == 3


def test_a_second_run_can_go_on_where_the_first_one_stopped() -> None:
    first, second = Work(WorkPlan()), Work(WorkPlan(skipped_texts=10))
    texts = [first.item(number).text for number in range(30)]
    assert [second.item(number).text for number in range(20)] == texts[10:]


def test_a_share_of_the_requests_is_disconnected() -> None:
    work, again = (Work(WorkPlan(disconnect=0.3)) for _ in range(2))
    found = [work.item(number).hang_up for number in range(2000)]
    parts = [part for part in found if part is not None]
    assert len(parts) / len(found) == pytest.approx(0.3, abs=0.03)
    assert sum(parts) / len(parts) == pytest.approx(0.5, abs=0.05)
    assert [again.item(number).hang_up for number in range(2000)] == found


@pytest.mark.parametrize("name", CORPORA)
def test_the_built_in_texts_are_many_varied_and_different(name: str) -> None:
    texts = read_texts(None, name, None)
    assert len(texts) == len(set(texts)) > 350
    lengths = [num_words(text) for text in texts]
    low, high = {"sentences": (3, 30), "short": (3, 8), "long": (15, 30)}.get(name, (3, 160))
    assert low <= min(lengths)
    assert max(lengths) <= high


def test_texts_are_chosen_by_words() -> None:
    assert {num_words(text) for text in read_texts(None, "sentences", (9, 11))} == {9, 10, 11}


def test_texts_that_are_not_there_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n \n")
    with pytest.raises(PlanError, match="holds no text"):
        read_texts(path, "sentences", None)
    with pytest.raises(PlanError, match="holds no text of 200 to 300 words"):
        read_texts(None, "sentences", (200, 300))
    with pytest.raises(PlanError, match="cannot be read as text"):
        read_texts(tmp_path / "none.txt", "sentences", None)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="cannot be read as text"):
        read_texts(path, "sentences", None)
