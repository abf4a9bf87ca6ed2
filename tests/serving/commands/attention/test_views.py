"""Views by words: what looks is averaged, what is looked at is summed, and nothing is lost."""

import numpy as np
import pytest

from serving.commands.attention_views import View, text_of, with_labels

TOKENS = ("The", " anim", "al", " didn", "'t", ".", "")


def view(kind: str, tokens: tuple[str, ...], weights: np.ndarray | None = None) -> View:
    size = len(tokens)
    if weights is None:
        drawn = np.random.default_rng(0).random((2, 3, size, size), np.float32)
        weights = drawn / drawn.sum(axis=-1, keepdims=True)
    return View(kind, tokens, tokens, weights, (0, 1), (0, 1, 2))


def test_words_are_looked_at_by_the_sum_of_their_pieces() -> None:
    pieces = view("encoder", TOKENS)
    words = with_labels(pieces, by_pieces=False)

    assert words.rows == words.columns == ("The", "animal", "didn't", ".", "<end>")
    assert words.weights.shape == (2, 3, 5, 5)
    assert words.weights.sum(axis=-1) == pytest.approx(1, abs=1e-6)
    animal = pieces.weights[:, :, 1:3, 3:5].sum(axis=-1).mean(axis=-1)
    assert words.weights[:, :, 1, 2] == pytest.approx(animal, abs=1e-6)


def test_pieces_stay_as_they_are() -> None:
    pieces = view("encoder", TOKENS)
    drawn = with_labels(pieces, by_pieces=True)

    assert drawn.rows == ("The", "▁anim", "al", "▁didn", "'t", ".", "<end>")
    assert np.array_equal(drawn.weights, pieces.weights)


def test_what_is_no_word_stands_at_its_place() -> None:
    tokens = ("", "Hi", "", "you", "\n", "\n", " ", " there", " ", "")

    assert with_labels(view("decoder", tokens), by_pieces=False).rows == (
        *("<start>", "Hi", "<tag>", "you", "⏎", "⏎", "there", "␣", "<end>"),
    )


def test_characters_of_several_tokens_are_one_word() -> None:
    cut = ("bytes:\\xe7\\x8c", "bytes:\\xab", " cat")

    drawn = with_labels(view("decoder", cut), by_pieces=False)

    assert drawn.rows == ("猫", "cat")
    assert text_of(cut) == "猫 cat"
