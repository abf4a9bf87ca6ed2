"""Byte-level tokenizers: every string comes back as it went in."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.bpe_dropout import Segmenter
from models.data.tokenizer import encode_all, load_tokenizer, train_tokenizer
from serving.text.tokenizer import Tokenizer as Served

TEXTS = ["The cat sat on the mat.", "Le chat s'est assis sur le tapis : voilà !", "12 345"] * 20
TOKENIZER = train_tokenizer(TEXTS, vocab_size=400)


def as_served() -> Served:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        TOKENIZER.save(str(path))
        return Served(path)


SERVED = as_served()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_string_round_trips(text: str) -> None:
    (ids,) = encode_all(TOKENIZER, [text])
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_special_tokens_in_a_text_stay_text() -> None:
    (ids,) = encode_all(TOKENIZER, ["</s><pad>"])
    assert not {0, 1, 2} & set(ids)


def test_special_tokens_have_their_fixed_ids_and_digits_stay_single(tmp_path) -> None:
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert [tokenizer.token_to_id(t) for t in ("<pad>", "<s>", "</s>")] == [0, 1, 2]
    (ids,) = encode_all(tokenizer, ["2014"])
    assert len(ids) == 4


def pieces(text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in TOKENIZER.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Aujourd'hui", ["Aujourd'hui"]),
        ("L'eau d'ici, qu'il a", ["L'", "eau", " d'", "ici", ",", " qu'", "il", " a"]),
        ("s\u2019il n\u2019est", ["s\u2019", "il", " n\u2019", "est"]),
        (
            "I'd say it's 'so', don't",
            ["I", "'d", " say", " it", "'s", " '", "so", "',", " don", "'t"],
        ),
        ("in 2014", ["in", " 2", "0", "1", "4"]),
        ("rock'n'roll", ["rock", "'", "n'", "roll"]),
    ],
)
def test_elisions_are_whole_and_digits_single(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_without_dropout_the_segmenter_is_the_tokenizer(text: str) -> None:
    segmenter = Segmenter(TOKENIZER, 0.0, seed=1)
    assert segmenter.encode(text, np.random.default_rng(0)) == encode_all(TOKENIZER, [text])[0]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9))
def test_with_dropout_every_text_still_round_trips(text: str, seed: int) -> None:
    ids = Segmenter(TOKENIZER, 0.5, seed).encode(text, np.random.default_rng(seed))
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_served_is_cut_as_in_training(text: str) -> None:
    assert SERVED.encode(text) == encode_all(TOKENIZER, [text])[0]
    assert SERVED.decode(SERVED.encode(text)) == text


def test_dropout_follows_from_the_seed_and_cuts_words_in_several_ways() -> None:
    def cut(seed: int) -> list[list[int]]:
        segmenter, rng = Segmenter(TOKENIZER, 0.3, seed), np.random.default_rng(seed)
        return [segmenter.encode("Le chat s'est assis", rng) for _ in range(20)]

    assert cut(1) == cut(1) != cut(2)
    assert len(set(map(tuple, cut(1)))) > 5
