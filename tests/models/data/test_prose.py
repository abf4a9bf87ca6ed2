"""Bits per byte: each token is predicted once, as likely as the model has it."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from models.checkpoint import load_checkpoint
from models.conventions import Conventions
from models.data.corpus import DocumentScore, ProseReader, ProseWindow, windows
from models.decoding import nats, teacher_forced_log_probabilities
from models.loading import load_module
from tests.tiny import byte_tokenizer, tiny_checkpoint

OWN = Conventions(prompt_prefix=(1,), stop=(2,))


@pytest.mark.parametrize("count", [1, 5, 8, 9, 11, 12, 13, 40])
@pytest.mark.parametrize("num_unseen", [0, 1])
def test_every_token_is_predicted_once(count: int, num_unseen: int) -> None:
    stream = list(range(count))
    cut = windows(stream, length=8, stride=4, num_unseen=num_unseen)
    predicted = [i for each in cut for i in each.token_ids[each.num_known :]]
    assert predicted == stream[num_unseen:]
    assert all(each.num_known >= 4 for each in cut[1:])
    assert {len(each.token_ids) for each in cut} == {min(count, 8)}


def uniform(found: Sequence[ProseWindow]) -> np.ndarray:
    """A model to which all 259 tokens are alike."""
    return np.stack([np.full(len(w.token_ids) - w.num_known, math.log(259)) for w in found])


def test_bits_are_counted_per_byte_of_the_text() -> None:
    """Two documents of 3 and 4 bytes are nine tokens, with their ends."""
    actual = ProseReader(byte_tokenizer(), OWN, 6).score(["abc", "été"[:2] + "x"], uniform)
    assert (actual.documents, actual.bytes, actual.tokens) == (2, 7, 9)
    assert actual.bits_per_byte == pytest.approx(9 / 7 * math.log2(259), abs=1e-3)
    assert actual.perplexity == pytest.approx(259, rel=1e-3)
    assert (actual.window, actual.stride) == (6, 3)


@pytest.mark.parametrize("prefix", [(1,), ()])
def test_documents_have_the_bits_of_their_own_tokens(prefix: tuple[int, ...]) -> None:
    """To this model token t is worth t nats; without a prefix nothing predicts the first."""

    def telling(actual: Sequence[ProseWindow]) -> np.ndarray:
        return np.array([w.token_ids[w.num_known :] for w in actual], float)

    documents, tokenizer = ["abcdefg", "été", "x"], byte_tokenizer()
    conventions = Conventions(prompt_prefix=prefix, stop=(2,))
    actual = ProseReader(tokenizer, conventions, 6).score(documents, telling)
    tokens = [[*tokenizer.encode(text).ids, 2] for text in documents]
    tokens[0] = tokens[0] if prefix else tokens[0][1:]
    bits = [round(sum(each) / math.log(2), 1) for each in tokens]
    assert actual.by_document == tuple(map(DocumentScore, [7, 5, 1], bits))
    assert actual.bits_per_byte == pytest.approx(sum(bits) / 13, abs=0.1)


@pytest.mark.parametrize("prefix", [(1,), ()])
@pytest.mark.parametrize("architecture", ["llama", "ngram-lm", "recurrent-lm"])
def test_torch_says_what_teacher_forcing_says(
    architecture: str, prefix: tuple[int, ...], tmp_path: Path
) -> None:
    tiny_checkpoint(architecture, tmp_path, seed=5)
    module = load_module(load_checkpoint(tmp_path))
    ids = list(range(40, 60))
    logp = teacher_forced_log_probabilities(module, [], [*prefix, *ids])
    expected = [-float(logp[len(prefix) + i - 1, ids[i]]) for i in range(7, 20)]
    actual = nats(module, [ProseWindow(ids, 7)] * 11, prefix)
    np.testing.assert_allclose(actual, [expected] * 11, rtol=1e-4)
