"""A half typed word: whatever is generated begins with it, by any tokens that can spell it."""

import random
from pathlib import Path

import numpy as np
import pytest

from serving.text.constraints.prefix import PrefixConstraints
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

TEXTS = (" court", " chat", " cour", "été", " c", "ou", "ourt")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer(write_byte_tokenizer(folder / "tokenizer.json", TEXTS * 9, 300))


@pytest.mark.parametrize("prefix", [" c", " cou", "é", " étoile", "x", "日本"])
def test_every_way_to_go_on_begins_with_it(tokenizer: Tokenizer, prefix: str) -> None:
    beginnings, stop_id = PrefixConstraints(tokenizer), 2
    for seed in range(40):
        choose, matcher = random.Random(seed), beginnings.constraint(prefix).start()
        mask, said = np.empty(tokenizer.vocab_size, bool), b""
        while len(said) < len(prefix.encode()):
            matcher.fork().fill_mask(mask)
            assert not mask[stop_id]
            token_id = choose.choice(np.flatnonzero(mask).tolist())
            matcher.accept(token_id)
            said += tokenizer.token_bytes(token_id)
        assert said.startswith(prefix.encode())
        matcher.fill_mask(mask)
        assert mask.all()


def test_tokens_that_hold_more_than_was_typed_may_come(tokenizer: Tokenizer) -> None:
    mask = np.empty(tokenizer.vocab_size, bool)
    PrefixConstraints(tokenizer).constraint(" c").start().fill_mask(mask)
    texts = {tokenizer.token_bytes(i) for i in np.flatnonzero(mask).tolist()}
    assert {b" ", b" c"} < texts
    assert any(len(text) > 2 and text.startswith(b" c") for text in texts)


def test_forks_go_their_own_ways(tokenizer: Tokenizer) -> None:
    matcher = PrefixConstraints(tokenizer).constraint("ab").start()
    other = matcher.fork()
    [a] = tokenizer.encode("a")
    matcher.accept(a)
    mask = np.empty(tokenizer.vocab_size, bool)
    other.fill_mask(mask)
    assert mask[a]
    matcher.fill_mask(mask)
    assert not mask[a]
