"""Sampling against the exact distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.draws import Draws, draw_filtered, draw_from_window
from serving.engine.generation import Generation
from serving.engine.memory import Array
from serving.engine.randomness import uniforms
from serving.engine.sampling import Sampling
from serving.engine.search import Scores
from serving.errors import RequestError
from serving.parameters import SamplingParams
from serving.request import GenerationRequest

WINDOW = 32
FILTERS = [
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.5, seed=2),
    SamplingParams(temperature=2.0, seed=3),
    SamplingParams(temperature=1.0, top_k=10, seed=4),
    SamplingParams(temperature=1.3, top_k=60, seed=5),
    SamplingParams(temperature=1.0, top_p=0.5, seed=6),
    SamplingParams(temperature=1.0, top_p=0.97, seed=7),
    SamplingParams(temperature=0.8, top_k=40, top_p=0.9, seed=8),
    SamplingParams(temperature=3.0, top_k=5, top_p=0.6, seed=9),
]


def random_logp(rng: np.random.Generator, vocab_size: int, spread: float) -> Array:
    logits = (rng.standard_normal(vocab_size) * spread).astype(np.float32)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum(dtype=np.float32))


def scores_of(logp: Array) -> Scores:
    top_ids = np.argsort(-logp, axis=1, kind="stable")[:, :WINDOW]
    return Scores(logp, np.take_along_axis(logp, top_ids, 1), top_ids, np.zeros(len(logp)))


def exact(logp: Array, params: SamplingParams) -> Array:
    """The distribution that the parameters mean, by their definitions."""
    p = np.exp(logp.astype(np.float64) / params.temperature)
    order = np.argsort(-p)
    p[order[params.top_k or len(p) :]] = 0
    p /= p.sum()
    if params.top_p < 1:
        is_before = p[order].cumsum() - p[order] < params.top_p
        p[order[~is_before]] = 0
    return p / p.sum()


def generation(params: SamplingParams, count: int) -> Generation:
    request = GenerationRequest("r", (3,), sampling=params)
    return Generation(request, (1,), count, frozenset(), False, params.seed or 0, 0.0, None)


@pytest.mark.parametrize("params", FILTERS, ids=str)
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_draws_follow_the_exact_distribution(params: SamplingParams, spread: float) -> None:
    num_draws, vocab_size = 20_000, 100
    logp = random_logp(np.random.default_rng(5), vocab_size, spread)
    rows = 50
    sampling = Sampling(rows, vocab_size, num_draws // rows)
    for row in range(rows):
        seeded = SamplingParams(params.temperature, params.top_k, params.top_p, seed=row)
        sampling.admit(row, generation(seeded, num_draws // rows))
    scores = scores_of(np.tile(logp, (rows, 1)))
    counts = np.zeros(vocab_size)
    for drawn in range(num_draws // rows):
        chosen = sampling.choose(scores, np.full(rows, drawn)).token_ids
        counts += np.bincount(chosen, minlength=vocab_size)
    assert_follows(counts, exact(logp, params))


def assert_follows(counts: Array, probabilities: Array) -> None:
    """Chi-square over the tokens that are expected at least 5 times, the rest together."""
    expected = probabilities * counts.sum()
    assert not counts[expected == 0].any()
    is_rare = expected < 5
    observed = np.append(counts[~is_rare], counts[is_rare].sum())
    expected = np.append(expected[~is_rare], expected[is_rare].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    degrees = max(len(expected) - 1, 1)
    chi_square = ((observed - expected) ** 2 / expected).sum()
    assert chi_square < degrees + 4.5 * np.sqrt(2 * degrees) + 5


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    spread=st.floats(0.01, 12),
    temperature=st.floats(0.05, 8),
    top_k=st.integers(1, 400),
    top_p=st.floats(0.01, 1.0),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_the_window_decides_as_the_whole_vocabulary_does(
    seed: int, spread: float, temperature: float, top_k: int, top_p: float, draw: float
) -> None:
    logp = random_logp(np.random.default_rng(seed), 300, spread)
    scores = scores_of(logp[None])
    top_k, exponent = min(top_k, 300), 1 / temperature
    draws = Draws(*(np.array([each]) for each in (exponent, top_k, top_p, draw)))
    index = draw_from_window(scores.top_logp, 300, draws)[0]
    if index >= 0:
        whole = draw_filtered(logp[None], draws)[0]
        weights = np.exp(exponent * logp.astype(np.float64))
        assert weights[scores.top_ids[0, index]] == pytest.approx(weights[whole], rel=1e-3)


@pytest.mark.parametrize("params", FILTERS, ids=str)
def test_a_row_draws_the_same_in_any_company(params: SamplingParams) -> None:
    rng = np.random.default_rng(0)
    logp = np.stack([random_logp(rng, 2000, 1 + i % 4) for i in range(64)])
    crowd = Sampling(64, 2000, 1)
    for row in range(64):
        crowd.admit(
            row,
            generation(SamplingParams(params.temperature, params.top_k, params.top_p, seed=row), 1),
        )
    together = crowd.choose(scores_of(logp), np.zeros(64, int))
    for row in range(64):
        single = Sampling(1, 2000, 1)
        single.admit(
            0,
            generation(SamplingParams(params.temperature, params.top_k, params.top_p, seed=row), 1),
        )
        alone = single.choose(scores_of(logp[row : row + 1]), np.zeros(1, int))
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs[0] == together.logprobs[row] == logp[row, alone.token_ids[0]]


def test_candidates_draw_as_the_whole_vocabulary_does() -> None:
    rng = np.random.default_rng(0)
    logp = np.stack([random_logp(rng, 2000, 0.5 + i % 5) for i in range(200)])
    logp[:, 7] = logp[:, 1900]  # equals
    draws = Draws(
        exponents=rng.choice([0.5, 1.0, 2.0], 200),
        top_k=rng.choice([1, 60, 800, 2000], 200),
        top_p=rng.choice([0.5, 0.9, 1.0], 200),
        numbers=rng.random(200),
    )
    assert (draw_filtered(logp, draws) == draw_filtered(logp, draws, 2000)).all()


def test_greedy_and_sampled_rows_share_a_batch() -> None:
    logp = np.stack([random_logp(np.random.default_rng(0), 100, 1.0)] * 4)
    sampling = Sampling(4, 100, 1)
    for row in range(4):
        params = SamplingParams(temperature=float(row % 2) * 5, seed=row)
        sampling.admit(row, generation(params, 1))
    choices = sampling.choose(scores_of(logp), np.zeros(4, int))
    best = logp[0].argmax()
    assert choices.token_ids[0] == choices.token_ids[2] == best
    assert (choices.logprobs == logp[0, choices.token_ids]).all()


def test_random_numbers_depend_on_seed_position_and_sample_only() -> None:
    assert (uniforms(7, 0, 100)[:10] == uniforms(7, 0, 10)).all()
    assert not (uniforms(7, 0, 10) == uniforms(8, 0, 10)).any()
    assert not (uniforms(7, 0, 10) == uniforms(7, 1, 10)).any()
    # Philox 4x64-10 as published: the numbers must never change, or a seed means something else.
    assert uniforms(2**64 - 1, 0, 2).tolist() == [0.23494158814525556, 0.7173107484541781]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", "1"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("seed", 2**64),
        ("seed", "7"),
    ],
)
def test_refuses_what_makes_no_sense(field: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.value) == (field, value) or value != value
