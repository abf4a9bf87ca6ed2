"""Sampling against the exact distribution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.arrays import Array
from serving.engine.decoding import sampler as sampler_module
from serving.engine.decoding import sampling_filters
from serving.engine.decoding.sampler import RANDOM_BLOCK, Sampler, WholeRows, draw_from_window
from serving.engine.decoding.sampling_inputs import RandomNumbers, SamplingInputs, sampling_column
from serving.engine.decoding.scores import Edited, Scores
from serving.engine.generation import Generation
from serving.errors import RequestError
from serving.requests.parameters import FILTER_OPTIONS, SamplingParams
from serving.requests.request import GenerationRequest
from tests.grid import in_turns
from tests.serving.engine.decoding.naive_sampling import distribution

WINDOW = 20
FILTERS: list[dict[str, float]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 10},
    {"top_k": 60, "temperature": 1.3},
    {"top_p": 0.5},
    {"top_p": 0.97},
    {"top_p": 0.9, "top_k": 40, "temperature": 0.8},
    {"top_p": 0.6, "top_k": 5, "temperature": 3.0},
    {"min_p": 0.1},
    {"min_p": 0.02, "temperature": 1.5},
    {"typical_p": 0.2},
    {"typical_p": 0.6, "temperature": 1.4},
    {"typical_p": 0.95},
    {"typical_p": 0.9, "min_p": 0.02},
    {"typical_p": 0.7, "top_p": 0.9, "min_p": 0.01},
    {
        "temperature": 1.2,
        "top_k": 70,
        "top_p": 0.95,
        "min_p": 0.02,
        "typical_p": 0.9,
    },
]


def sampling_params(filters: dict[str, float], seed: int = 0) -> SamplingParams:
    return SamplingParams(**({"temperature": 1.0} | filters), seed=seed)  # type: ignore[arg-type]


def random_logp(rng: np.random.Generator, vocab_size: int, spread: float) -> Array:
    logits = (rng.standard_normal(vocab_size) * spread).astype(np.float32)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum(dtype=np.float32))


def scores_of(logp: Array, edited: Edited | None = None) -> Scores:
    top_ids = np.argsort(-logp, axis=1, kind="stable")[:, :WINDOW]
    top_logp = np.take_along_axis(logp, top_ids, 1)
    return Scores(logp, top_logp, top_ids, np.zeros(len(logp)), edited=edited)


def sampling_of(params: list[SamplingParams], vocab_size: int, count: int) -> Sampler:
    sampling = Sampler(len(params), vocab_size)
    for row, each in enumerate(params):
        request = GenerationRequest("r", (3,), sampling=each)
        sampling.on_add(
            row, Generation(request, (1,), count, frozenset(), False, each.seed or 0, 0.0, None)
        )
    return sampling


def assert_draws_follow(scores: Scores, params: dict[str, float], expected: Array) -> None:
    """All rows have the same scores."""
    rows, vocab_size = scores.logp.shape
    num_steps = 20_000 // rows
    seeded = [sampling_params(params, seed=row) for row in range(rows)]
    sampling = sampling_of(seeded, vocab_size, num_steps)
    counts = np.zeros(vocab_size)
    for step in range(num_steps):
        chosen = sampling.choose(scores, np.full(rows, step)).token_ids
        counts += np.bincount(chosen, minlength=vocab_size)
    assert_follows(counts, expected)


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


@pytest.mark.parametrize(("filters", "spread"), in_turns(FILTERS, [0.5, 1.5, 3.0]))
def test_draws_follow_the_exact_distribution(filters: dict[str, float], spread: float) -> None:
    logp = random_logp(np.random.default_rng(5), 150, spread)
    expected = distribution(logp, sampling_params(filters))
    assert_draws_follow(scores_of(np.tile(logp, (500, 1))), filters, expected)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_edited_rows_draw_from_the_edited_scores(filters: dict[str, float]) -> None:
    rng = np.random.default_rng(6)
    logp = np.tile(random_logp(rng, 150, 2.0), (500, 1))
    edited_logp = logp[0] + rng.standard_normal(150).astype(np.float32)
    edited_logp[rng.permutation(150)[:50]] = -np.inf
    edited_logp[logp[0].argmax()] = -np.inf
    scores = scores_of(logp, edited_rows(np.tile(edited_logp, (500, 1)), range(500)))
    expected = distribution(edited_logp, sampling_params(filters))
    assert_draws_follow(scores, filters, expected)


def edited_rows(logp: Array, rows: range, dead: tuple[int, ...] = ()) -> Edited:
    is_edited, is_dead = np.zeros((2, len(logp)), bool)
    is_edited[rows] = True
    is_dead[list(dead)] = True
    return Edited(is_edited, is_edited.copy(), is_dead, np.zeros_like(is_dead), logp)


def test_never_draws_what_must_not_come() -> None:
    """Fewer tokens are left than a filter would keep."""
    logp = np.tile(random_logp(np.random.default_rng(0), 3000, 1.0), (32, 1))
    edited_logp = np.full_like(logp, -np.inf)
    edited_logp[:, [5, 900, 2999]] = [120.0, 119.0, 121.0]
    scores = scores_of(logp, edited_rows(edited_logp, range(32)))
    params = [
        sampling_params(FILTERS[row % len(FILTERS)] | {"top_k": 50}, seed=row) for row in range(32)
    ]
    sampling = sampling_of(params, 3000, 1)
    assert set(sampling.choose(scores, np.zeros(32, int)).token_ids) <= {5, 900, 2999}


def test_edited_rows_report_the_models_own_probabilities() -> None:
    logp = np.stack([random_logp(np.random.default_rng(row), 100, 1.0) for row in range(6)])
    edited_logp = np.full_like(logp, -np.inf)
    edited_logp[np.arange(6), 40 + np.arange(6)] = 3.5
    edited_logp[5] = -np.inf
    params = [SamplingParams(float(row % 2), seed=row) for row in range(6)]
    scores = scores_of(logp, edited_rows(edited_logp, range(2, 6), dead=(5,)))
    choices = sampling_of(params, 100, 1).choose(scores, np.zeros(6, int))
    assert choices.token_ids[0] == logp[0].argmax()
    assert choices.token_ids[2:5].tolist() == [42, 43, 44]
    assert 0 <= choices.token_ids[5] < 100
    assert (choices.logprobs == logp[np.arange(6), choices.token_ids]).all()


filter_values = st.fixed_dictionaries(
    {"temperature": st.floats(0.2, 5)},
    optional={
        "top_k": st.integers(2, 400),
        "top_p": st.floats(0.01, 0.999),
        "min_p": st.floats(1e-4, 0.99),
        "typical_p": st.floats(0.01, 0.999),
    },
)


def draws_of(filters: dict[str, float], numbers: Array, second_numbers: Array) -> SamplingInputs:
    column = sampling_column(sampling_params(filters), vocab_size=10**6)
    return SamplingInputs(np.tile(np.array(column)[:, None], len(numbers)), numbers, second_numbers)


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32),
    spread=st.floats(0.01, 12),
    num_candidates=st.sampled_from([20, 100, 300]),
    filters=filter_values,
)
def test_whole_rows_draw_what_the_naive_sampler_keeps(
    seed: int, spread: float, num_candidates: int, filters: dict[str, float]
) -> None:
    """In the middle of a token's share of the distribution it is drawn; shares are in the order of
    likelihood where filters need it, else of ids.
    """
    logp = random_logp(np.random.default_rng(seed), 300, spread)
    expected = distribution(logp, sampling_params(filters))
    is_ranked = any(
        sampling_filters.FILTERS[name].needs_ranking for name in {*filters} - {"temperature"}
    )
    order = np.argsort(-logp, kind="stable") if is_ranked else np.arange(300)
    shares = expected[order]
    middles = (shares.cumsum() - shares / 2)[shares > 1e-6]
    draws = draws_of(filters, middles, middles)
    values = np.tile(logp, (len(middles), 1))
    drawn = draw_whole(values, np.full(len(middles), np.inf), draws, num_candidates)
    assert (logp[drawn] == logp[order[shares > 1e-6]]).mean() > 0.99 or is_a_close_call(
        logp, filters, expected
    )


def draw_whole(
    values: Array, proposals: Array, draws: SamplingInputs, num_candidates: int
) -> Array:
    rows, no_window = np.arange(len(values)), np.empty((len(values), 0), np.int64)
    whole_rows = WholeRows(values.shape[1], (num_candidates,))
    return whole_rows.draw(values, rows, no_window, proposals, draws)


def is_a_close_call(logp: Array, filters: dict[str, float], expected: Array) -> bool:
    """Whether a filter's value is so close to a border that rounding decides."""
    is_moved = filters.keys() - {"temperature", "top_k"}
    for factor in (1 - 1e-5, 1 + 1e-5):
        moved = filters | {name: filters[name] * factor for name in is_moved}
        if ((distribution(logp, sampling_params(moved)) > 0) != (expected > 0)).any():
            return True
    return False


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), spread=st.floats(0.01, 12), filters=filter_values)
def test_the_window_draws_only_what_the_naive_sampler_keeps(
    seed: int, spread: float, filters: dict[str, float]
) -> None:
    """And what it draws at once, it draws as often as the distribution has it."""
    logp = random_logp(np.random.default_rng(seed), 300, spread)
    scores = scores_of(logp[None])
    numbers = (np.arange(2000) + 0.5) / 2000
    draws = draws_of(filters, numbers, numbers)
    ranks, _ = draw_from_window(np.tile(scores.top_logp, (2000, 1)), 300, draws)
    expected = distribution(logp, sampling_params(filters))[scores.top_ids[0]]
    counts = np.bincount(ranks[ranks >= 0], minlength=WINDOW)
    if is_a_close_call(logp, filters, distribution(logp, sampling_params(filters))):
        return
    assert not counts[expected == 0].any()
    drawn = np.flatnonzero(counts)
    if len(drawn):
        scale = counts[drawn[0]] / expected[drawn[0]]
        assert scale <= 2000 * 1.01 + 1 / expected[drawn[0]]
        assert counts[drawn[:-1]] == pytest.approx(expected[drawn[:-1]] * scale, abs=2, rel=0.1)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_row_draws_the_same_in_any_company(filters: dict[str, float]) -> None:
    rng = np.random.default_rng(0)
    logp = np.stack([random_logp(rng, 2000, 1 + i % 4) for i in range(64)])
    params = [
        sampling_params(filters if i % 3 else FILTERS[i % len(FILTERS)], seed=i) for i in range(64)
    ]
    edited = edited_rows(logp[:, ::-1].copy(), range(40, 64))
    together = sampling_of(params, 2000, 1).choose(scores_of(logp, edited), np.zeros(64, int))
    for row in range(64):
        one = slice(row, row + 1)
        edited_row = edited_rows(edited.logp[one], range(int(edited.is_edited[row])))
        own_scores = scores_of(
            logp[one], edited_row if row % 2 else None if row < 40 else edited_row
        )
        alone = sampling_of(params[one], 2000, 1).choose(own_scores, np.zeros(1, int))
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs[0] == together.logprobs[row] == logp[row, alone.token_ids[0]]


def test_rows_move_with_their_parameters_and_numbers() -> None:
    logp = np.tile(random_logp(np.random.default_rng(0), 2000, 1.0), (3, 1))
    params = [SamplingParams(), SamplingParams(1.0, seed=1), SamplingParams(1.0, 5, seed=2)]
    sampling = sampling_of(params, 2000, 1)
    before = sampling.choose(scores_of(logp), np.zeros(3, int)).token_ids
    sampling.on_remove(0)
    sampling.on_move(2, 0)
    after = sampling.choose(scores_of(logp[:2]), np.zeros(2, int)).token_ids
    assert after.tolist() == [before[2], before[1]]


def test_candidates_draw_as_the_whole_vocabulary_does() -> None:
    rng = np.random.default_rng(0)
    logp = np.stack([random_logp(rng, 2000, 0.5 + i % 5) for i in range(200)])
    logp[:, 7] = logp[:, 1900]  # equals
    values: dict[str, list[float]] = {
        "temperature": [0.5, 1.0, 2.0],
        "top_k": [1, 60, 800, 0],
        "top_p": [0.5, 0.9, 1.0],
        "min_p": [0, 0.01],
        "typical_p": [0.5, 0.9, 1.0, 1.0],
    }
    chosen = [{name: rng.choice(some).item() for name, some in values.items()} for _ in range(200)]
    columns = [
        sampling_column(sampling_params(filters | {"top_k": int(filters["top_k"])}), 2000)
        for filters in chosen
    ]
    draws = SamplingInputs(np.array(columns).T, rng.random(200), rng.random(200))
    proposals = rng.random(200) * 30
    few, all_of_them = (draw_whole(logp, proposals, draws, count) for count in (512, 2000))
    assert (few == all_of_them).all()


def test_greedy_and_sampled_rows_share_a_batch() -> None:
    logp = np.stack([random_logp(np.random.default_rng(0), 100, 1.0)] * 4)
    params = [SamplingParams(temperature=float(row % 2) * 5, seed=row) for row in range(4)]
    sampling = sampling_of(params, 100, 1)
    choices = sampling.choose(scores_of(logp), np.zeros(4, int))
    best = logp[0].argmax()
    assert choices.token_ids[0] == choices.token_ids[2] == best
    assert (choices.logprobs == logp[0, choices.token_ids]).all()


def test_random_numbers_depend_on_seed_and_position_only() -> None:
    numbers = RandomNumbers()
    assert (numbers.draw(7, 0, 100)[:10] == numbers.draw(7, 0, 10)).all()
    assert (numbers.draw(7, 0, 100)[64:] == numbers.draw(7, 64, 36)).all()
    assert not (numbers.draw(7, 0, 10) == numbers.draw(8, 0, 10)).any()
    # Philox 4x64-10 as published: the numbers must never change, or a seed means something else.
    published = np.random.Generator(np.random.Philox(key=np.array([2**64 - 1, 0], np.uint64)))
    assert numbers.draw(2**64 - 1, 0, 2).tolist() == published.random((2, 2)).tolist()
    assert numbers.draw(2**64 - 1, 0, 1).tolist() == [[0.23494158814525556, 0.7173107484541781]]


def test_the_numbers_of_rows_are_one_whole_draw_whatever_they_are_asked_for() -> None:
    """Positions come in turn, twice, ahead of the row's own, and after rows have moved."""
    count, seeds = 5 * RANDOM_BLOCK + 7, [0, 7, 2**64 - 1]
    params = [SamplingParams(temperature=1.0, seed=seed) for seed in seeds]
    sampler = sampling_of(params, 100, count)
    whole = [
        np.random.Generator(np.random.Philox(key=np.array([seed, 0], np.uint64))).random((count, 2))
        for seed in seeds
    ]
    rows = np.arange(3)

    def check(positions: Array) -> None:
        draws = sampler.sampling_inputs(rows, positions)
        expected = [whole[row][position] for row, position in enumerate(positions)]
        assert (
            np.stack([draws.numbers, draws.second_numbers], axis=1).tolist()
            == np.array(expected).tolist()
        )

    for position in range(count - 3):
        check(position + rows)
        check(position + rows)
    check(np.array([count - 1, 0, RANDOM_BLOCK]))
    sampler.on_remove(0)
    sampler.on_move(2, 0)
    for position in (0, RANDOM_BLOCK - 1, RANDOM_BLOCK, count - 1):
        draws = sampler.sampling_inputs(np.array([0]), np.array([position]))
        assert [draws.numbers[0], draws.second_numbers[0]] == whole[2][position].tolist()


def test_admission_draws_one_block_whatever_the_request_may_generate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []

    class CountingNumbers(RandomNumbers):
        def draw(self, seed: int, first: int, count: int) -> Array:
            counts.append(count)
            return super().draw(seed, first, count)

    monkeypatch.setattr(sampler_module, "RandomNumbers", CountingNumbers)
    sampling_of([SamplingParams(temperature=1.0, seed=7)], 100, 131_072)
    assert counts == [RANDOM_BLOCK]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", "1"),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("seed", 2**64),
        ("seed", "7"),
    ],
)
def test_refuses_what_makes_no_sense(field: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.value) == (field, value) or value != value


def test_every_declared_filter_is_in_the_table() -> None:
    """In the order of declaration; and `FILTERS` above, which is drawn from, has each."""
    declared = [option.name for option in FILTER_OPTIONS]
    assert [*sampling_filters.FILTERS] == declared
    assert {name for filters in FILTERS for name in filters} == {"temperature", *declared}
    after_typical = declared[declared.index("typical_p") + 1 :]
    assert not any(sampling_filters.FILTERS[name].needs_ranking for name in after_typical)
