"""The graph that chooses tokens on a device, on the CPU's kernels: against the exact distribution,
and against the edits of the host.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from export.graph.choice import select_graph
from serving.engine.arrays import Array
from serving.requests.parameters import SamplingParams
from tests.export.sessions import session_of
from tests.grid import in_turns
from tests.serving.engine.decoding.naive_sampling import distribution
from tests.serving.engine.decoding.test_sampling import (
    FILTERS,
    assert_follows,
    is_a_close_call,
    random_logp,
    sampling_params,
)

HOST_ONLY = {"typical_p"}
SERVED = [filters for filters in FILTERS if not filters.keys() & HOST_ONLY]
VOCAB = 600  # more than two blocks
COUNT = 500
SESSIONS: dict[int, Any] = {}


def choose(logp: Array, params: SamplingParams, uniforms: Array, **changes: Any) -> list[Array]:
    """token_ids, token_logp, is_dead of rows that share parameters."""
    rows, vocab_size = logp.shape
    if vocab_size not in SESSIONS:
        SESSIONS[vocab_size] = session_of(select_graph(vocab_size))
    is_greedy, top_k = params.is_greedy, params.top_k if params.top_k < vocab_size else 0
    column = {
        "exponent": np.float32(1 if is_greedy else 1 / params.temperature),
        "top_k": np.int64(1 if is_greedy else top_k),
        "top_p": np.float64(params.top_p),
        "min_p": np.float32(params.min_p),
    }
    inputs: dict[str, Any] = {name: np.full(rows, value) for name, value in column.items()}
    inputs |= {"logp": logp, "uniform": uniforms, "log_normaliser": np.zeros(rows, np.float32)}
    inputs |= {"is_excluded": np.zeros(vocab_size, bool)}
    inputs |= {"edit_ids": np.zeros((rows, 1), np.int64), "edit_penalty": np.ones((rows, 1))}
    inputs |= {"edit_bias": np.zeros((rows, 1)), "edit_toll": np.zeros((rows, 1))}
    actual: list[Array] = SESSIONS[vocab_size].run(None, inputs | changes)
    return actual


def assert_draws(logp: Array, params: SamplingParams, expected: Array) -> None:
    """As the uniform number goes from 0 to 1, every token comes for its share of the way, which is
    in at most two pieces. That is stricter than chi-square of random draws.
    """
    counts = np.zeros(len(logp))
    for uniforms in np.split((np.arange(COUNT) + 0.5) / COUNT, 10):
        drawn = choose(np.tile(logp, (len(uniforms), 1)), params, uniforms)[0]
        counts += np.bincount(drawn, minlength=len(logp))
    assert not counts[expected == 0].any()
    assert np.abs(counts - COUNT * expected).max() <= 3


@pytest.mark.parametrize(("filters", "spread"), in_turns(SERVED, [0.5, 1.5, 3.0]))
def test_draws_follow_the_exact_distribution(filters: dict[str, float], spread: float) -> None:
    logp, params = random_logp(np.random.default_rng(5), VOCAB, spread), sampling_params(filters)
    assert_draws(logp, params, distribution(logp, params))


@pytest.mark.parametrize("filters", SERVED, ids=str)
def test_random_draws_follow_it_too(filters: dict[str, float]) -> None:
    rng = np.random.default_rng(6)
    logp, params = random_logp(rng, VOCAB, 2.0), sampling_params(filters)
    drawn = choose(np.tile(logp, (3000, 1)), params, rng.random(3000))[0]
    assert_follows(np.bincount(drawn, minlength=VOCAB), distribution(logp, params))


@pytest.mark.parametrize("filters", SERVED, ids=str)
def test_equals_are_kept_by_their_ids(filters: dict[str, float]) -> None:
    """Scores of half precision have many."""
    logp, params = random_logp(np.random.default_rng(5), VOCAB, 1.0), sampling_params(filters)
    logp = logp.astype(np.float16).astype(np.float32)
    logp[100:160] = logp.max()
    assert_draws(logp, params, distribution(logp, params))


filter_values = st.fixed_dictionaries(
    {"temperature": st.floats(0.2, 5)},
    optional={
        "top_k": st.integers(2, 700),
        "top_p": st.floats(0.01, 0.999),
        "min_p": st.floats(1e-4, 0.99),
    },
)


@settings(max_examples=50)
@example(54, 0.02, {"temperature": 3.9135896147434157, "top_p": 0.587462768881724})
@given(seed=st.integers(0, 2**32), spread=st.floats(0.01, 12), filters=filter_values)
def test_draws_what_the_naive_sampler_keeps(
    seed: int, spread: float, filters: dict[str, float]
) -> None:
    logp = random_logp(np.random.default_rng(seed), VOCAB, spread)
    params = sampling_params(filters)
    expected = distribution(logp, params)
    if not is_a_close_call(logp, filters, expected):
        assert_draws(logp, params, expected)


def test_greedy_is_the_first_of_the_likeliest() -> None:
    logp = np.stack([random_logp(np.random.default_rng(row), VOCAB, 1.0) for row in range(8)])
    logp[3, [77, 500]] = 0.5
    token_ids, token_logp, is_dead = choose(logp, SamplingParams(), np.zeros(8))
    assert token_ids.tolist() == logp.argmax(axis=1).tolist()
    assert token_logp.tolist() == logp.max(axis=1).tolist()
    assert not is_dead.any()


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("filters", [*SERVED, {"temperature": 0.0}], ids=str)
def test_what_must_not_come_never_comes(filters: dict[str, float], uniform: float) -> None:
    logp = np.full((3, VOCAB), -np.inf, np.float32)
    logp[0, [5, 300, 599]] = -1.0
    logp[1, 256] = -80.0
    params = sampling_params(filters)
    token_ids, _, is_dead = choose(logp, params, np.full(3, uniform))
    assert token_ids[0] in (5, 300, 599)
    assert token_ids[1] == 256
    assert is_dead.tolist() == [False, False, True]
    assert 0 <= token_ids[2] < VOCAB
