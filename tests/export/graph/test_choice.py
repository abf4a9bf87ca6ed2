"""The likeliest tokens, found by blocks, are those that ranking all of them finds."""

from typing import Any

import numpy as np
import pytest

from export.graph.choice import BLOCK, LEAST_IN_BLOCKS, WINDOW, Columns, choose, filled_up
from export.graph.matrix import Matrix
from export.graph.writer import Array, GraphWriter
from serving.bundle.manifest import WANTS_LOGP
from tests.export.sessions import session_of

VOCAB_SIZE = LEAST_IN_BLOCKS + 3 * BLOCK
OUTPUTS = ["log_normaliser", "top_logp", "top_ids"]


def choosing(vocab_size: int, width: int) -> Any:
    graph = GraphWriter("step")
    logits = graph.input("scores", "float32", (width,))
    choose(graph, graph.op.Identity(logits), Columns(vocab_size, width))
    return session_of(graph)


def logits_with_equals() -> Array:
    """Rows of few different values; of one row they are in order, of one the best lie at the end,
    and one is all the same.
    """
    random = np.random.default_rng(0)
    logits = random.integers(0, 300, (9, VOCAB_SIZE)).astype(np.float32)
    logits[0].sort()
    logits[1, -WINDOW:] = 500
    logits[2] = -7
    return logits


@pytest.mark.parametrize("vocab_size", [VOCAB_SIZE, VOCAB_SIZE - 5])
def test_the_first_of_equals_comes_first_from_whole_and_filled_up_blocks(vocab_size: int) -> None:
    logits = logits_with_equals()
    logits[:, vocab_size:] = -np.inf
    session = choosing(vocab_size, VOCAB_SIZE)
    normaliser, top_logp, top_ids = session.run(OUTPUTS, {"scores": logits})
    logp = logits[:, :vocab_size] - normaliser[:, None]
    expected = np.argsort(-logits[:, :vocab_size], axis=1, kind="stable")[:, :WINDOW]
    np.testing.assert_array_equal(top_ids, expected)
    np.testing.assert_array_equal(top_logp, np.take_along_axis(logp, expected, axis=1))
    np.testing.assert_allclose(np.exp(logp.astype(np.float64)).sum(axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(
        logp + normaliser[:, None], logits[:, :vocab_size], rtol=0, atol=1e-4
    )


def test_the_likeliest_are_the_same_where_nobody_wants_log_probabilities() -> None:
    logits = np.random.default_rng(1).standard_normal((5, VOCAB_SIZE)).astype(np.float32)
    session = choosing(VOCAB_SIZE, VOCAB_SIZE)
    [ids] = session.run(["top_ids"], {"scores": logits})
    plain = {"scores": logits, WANTS_LOGP: np.array(False)}
    actual, normaliser, plain_ids = session.run(["logits", "log_normaliser", "top_ids"], plain)
    np.testing.assert_array_equal(actual, logits)
    np.testing.assert_array_equal(plain_ids, ids)
    np.testing.assert_array_equal(normaliser, logits.max(axis=1), "they are not normalised")


def test_an_output_layer_with_a_bias_is_filled_up_with_tokens_that_never_come() -> None:
    weight = Matrix.of_array(np.ones((VOCAB_SIZE - 5, 3), np.float32))
    wide, bias = filled_up(weight, np.zeros(VOCAB_SIZE - 5, np.float32))
    assert wide.shape == wide.read().shape == (VOCAB_SIZE, 3)
    assert bias is not None and np.isneginf(bias[-5:]).all() and not bias[:-5].any()
    assert filled_up(weight, None)[0] is weight
    few = Matrix.of_array(np.ones((100, 3), np.float32)), np.zeros(100, np.float32)
    assert filled_up(*few)[0] is few[0]
