"""No text comes twice unless asked, and lengths are what was asked for."""

from pathlib import Path

import pytest

from loadtest.errors import PlanError
from loadtest.generator.texts import (
    CORPORA,
    Prompts,
    Texts,
    beginnings,
    num_sentences,
    num_words,
    read_texts,
    varied,
)

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


def test_prompts_have_the_words_they_should_and_do_not_repeat() -> None:
    prompts = Prompts(Texts(LINES, seed=1), (20, 30), seed=1)
    made = [prompts[index] for index in range(200)]
    lengths = {num_words(prompt) for prompt in made}
    assert lengths == set(range(20, 31))
    assert len({prompt[:30] for prompt in made}) == 200


def test_beginnings_are_as_many_and_as_long_as_asked() -> None:
    made = beginnings(Texts(LINES, seed=1), words=12, count=3)
    assert [num_words(beginning) for beginning in made] == [12, 12, 12]
    assert len(set(made)) == 3
    assert beginnings(Texts(LINES, seed=1), words=0, count=3) == []


@pytest.mark.parametrize("name", CORPORA)
def test_the_shipped_texts_are_many_varied_and_different(name: str) -> None:
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
