"""Rows that processors edit: what they are told, what constrains them, and that they are apart."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.arrays import Array
from serving.engine.decoding.logits_processors import Processors
from serving.engine.decoding.scores import Scores
from serving.engine.generation import Generation
from serving.requests.parameters import ProcessorParams
from serving.requests.request import Mask, Matcher
from tests.serving.engine.decoding.editing import (
    SLOTS,
    VOCAB_SIZE,
    advance,
    banned_of,
    edit,
    edited_by,
    generation_of,
    processor_params,
    random_scores,
    row_of,
    taking,
)


def test_a_batch_without_processors_pays_nothing() -> None:
    processors = Processors(SLOTS, VOCAB_SIZE)
    for row in range(SLOTS):
        processors.on_add(row, generation_of(ProcessorParams()))
    advance(processors, 3, 4)
    scores = random_scores(SLOTS)
    processors.edit(scores)
    assert not processors.rows and scores.edited is None


def test_a_step_at_which_nothing_is_edited_leaves_the_scores_alone() -> None:
    processors = Processors(SLOTS, VOCAB_SIZE)
    params = ProcessorParams(
        min_tokens=1, no_repeat_ngram_size=3, bad_words=((3, 4),), frequency_penalty=0.0
    )
    processors.on_add(0, generation_of(params))
    advance(processors, 5)
    scores = random_scores(1)
    processors.edit(scores)
    assert processors.rows and scores.edited is None


def test_only_rows_with_processors_are_edited_and_raw_scores_stay() -> None:
    processors = Processors(SLOTS, VOCAB_SIZE)
    processors.on_add(0, generation_of(ProcessorParams()))
    processors.on_add(1, generation_of(ProcessorParams(bad_words=((4,),))))
    scores = random_scores(2)
    before = scores.logp.copy()
    edited = edit(processors, scores)
    assert edited.is_edited.tolist() == [False, True]
    assert banned_of(edited.logp[1]) == {4}
    np.testing.assert_array_equal(scores.logp, before)


@pytest.mark.parametrize(
    ("params", "is_raised"),
    [
        (ProcessorParams(logit_bias=((3, 0.5),)), True),
        (ProcessorParams(logit_bias=((3, 0.0),)), False),
        (ProcessorParams(logit_bias=((3, -0.5),)), False),
        (ProcessorParams(repetition_penalty=0.8), True),
        (ProcessorParams(repetition_penalty=1.2), False),
        (ProcessorParams(presence_penalty=-1.0), True),
        (ProcessorParams(frequency_penalty=1.0), False),
        (ProcessorParams(bad_words=((3,),)), False),
        (ProcessorParams(allowed_ids=(3,)), False),
    ],
)
def test_rows_in_which_a_token_rose_are_told(params: ProcessorParams, is_raised: bool) -> None:
    processors = Processors(SLOTS, VOCAB_SIZE)
    processors.on_add(0, generation_of(params))
    advance(processors, 5)
    assert edit(processors, random_scores(1)).is_raised.tolist() == [is_raised]


def test_scores_that_nothing_changes_come_back_bit_for_bit() -> None:
    params = ProcessorParams(logit_bias=tuple((token_id, 0.0) for token_id in range(VOCAB_SIZE)))
    np.testing.assert_array_equal(edited_by(params), random_scores(1).logp[0])


def test_a_row_without_any_token_left_is_dead() -> None:
    everything = tuple((token_id,) for token_id in range(VOCAB_SIZE))
    cases = [
        (ProcessorParams(bad_words=everything, min_tokens=1), True),
        (ProcessorParams(bad_words=everything), False),  # it can still stop
        (ProcessorParams(bad_words=everything[3:] * 2), False),
        (ProcessorParams(allowed_ids=(5,), bad_words=((5,),), min_tokens=1), True),
        (ProcessorParams(allowed_ids=(5,), bad_words=((5,),)), False),
    ]
    processors = Processors(len(cases), VOCAB_SIZE)
    for row, (params, _) in enumerate(cases):
        processors.on_add(row, generation_of(params))
    edited = edit(processors, random_scores(len(cases)))
    assert edited.is_dead.tolist() == [is_dead for _, is_dead in cases]
    assert np.isneginf(edited.logp.max(axis=1)).tolist() == [is_dead for _, is_dead in cases]


# --- constraints ----------------------------------------------------------------------------------


@dataclass
class Countdown:
    """A grammar: tokens `left`, left - 1, ... 3, then stop token 1."""

    left: int
    accepted: list[int] = field(default_factory=list)

    def start(self) -> Matcher:
        return Countdown(self.left)

    def fill_mask(self, mask: Mask) -> None:
        mask[:] = False
        mask[max(self.left, 1) if self.left >= 3 else 1] = True

    def accept(self, token_id: int) -> None:
        assert token_id == self.left
        self.left -= 1

    def fork(self) -> Matcher:
        return replace(self)


def test_a_constraint_follows_generated_tokens_only() -> None:
    constraint = Countdown(5)
    processors = Processors(SLOTS, VOCAB_SIZE)
    generation = generation_of(
        ProcessorParams(), prompt=(0, 9), forced_ids=(7, 7), constraint=constraint
    )
    processors.on_add(0, generation)
    processors.on_step(taking(7, is_forced=True))
    for token_id in (5, 4, 3, 1):
        edited = edit(processors, random_scores(1))
        assert set(range(VOCAB_SIZE)) - banned_of(edited.logp[0]) == {token_id}
        assert not edited.is_dead[0]
        if token_id >= 3:
            processors.on_step(taking(token_id))


def test_a_constraint_that_other_bans_leave_nothing_of_is_dead() -> None:
    processors = Processors(SLOTS, VOCAB_SIZE)
    params = ProcessorParams(bad_words=((5,),))
    processors.on_add(0, generation_of(params, constraint=Countdown(5)))
    assert edit(processors, random_scores(1)).is_dead.tolist() == [True]


def test_requests_that_share_a_constraint_do_not_share_their_place() -> None:
    constraint = Countdown(5)
    processors = Processors(SLOTS, VOCAB_SIZE)
    processors.on_add(0, generation_of(ProcessorParams(), constraint=constraint))
    processors.on_step(taking(5))
    processors.on_add(1, generation_of(ProcessorParams(), constraint=constraint))
    edited = edit(processors, random_scores(2))
    assert [np.argmax(edited.logp[row]) for row in range(2)] == [4, 5]


# --- rows that come, fork, move and go ------------------------------------------------------------

all_params = st.tuples(
    processor_params, st.sampled_from([0.0, 0.5, -1.0]), st.sampled_from([0.0, 0.3])
).map(lambda each: replace(each[0], presence_penalty=each[1], frequency_penalty=each[2]))
maybe_params = st.none() | all_params
events = st.lists(
    st.tuples(st.sampled_from(["admit", "fork", "overwrite", "remove", "step"]), st.integers(0, 9)),
    min_size=4,
    max_size=24,
)


@dataclass(frozen=True)
class Twin:
    """Holds what a row should be: a request and what it has generated."""

    generation: Generation
    generated: tuple[int, ...] = ()

    def alone(self, scores: Scores, row: int) -> Array:
        processors = Processors(1, VOCAB_SIZE)
        processors.on_add(0, self.generation)
        for token_id in self.generated:
            processors.on_step(taking(token_id))
        rows = slice(row, row + 1)
        scores_of_row = Scores(
            scores.logp[rows],
            scores.top_logp[rows],
            scores.top_ids[rows],
            scores.log_normaliser[rows],
        )
        processors.edit(scores_of_row)
        return row_of(scores_of_row, 0)


class Rows:
    """Processors, and beside them what every row should be."""

    def __init__(self, kinds: list[ProcessorParams | None], seed: int) -> None:
        self.processors, self.twins = Processors(8, VOCAB_SIZE), list[Twin]()
        self._kinds, self._random = kinds, np.random.default_rng(seed)

    def admit(self, number: int) -> None:
        if len(self.twins) < 8:
            params = self._kinds[number % 8] or ProcessorParams()
            self.twins.append(Twin(generation_of(params, (0, 3, number))))
            self.processors.on_add(len(self.twins) - 1, self.twins[-1].generation)

    def fork(self, number: int) -> None:
        if 0 < len(self.twins) < 8:
            row = number % len(self.twins)
            self.processors.on_copy(row, len(self.twins))
            self.twins.append(self.twins[row])

    def overwrite(self, number: int) -> None:
        if len(self.twins) > 1:
            row = 1 + number % (len(self.twins) - 1)
            self.processors.on_copy(row, 0)
            self.twins[0] = self.twins[row]

    def remove(self, number: int) -> None:
        if self.twins:
            row, last = number % len(self.twins), len(self.twins) - 1
            self.processors.on_remove(row)
            if row != last:
                self.processors.on_move(last, row)
            self.twins[row] = self.twins[last]
            self.twins.pop()

    def step(self, number: int) -> None:
        self.step_by(self._random.integers(0, 6, len(self.twins)).tolist())

    def step_by(self, token_ids: list[int]) -> None:
        self.processors.on_step(taking(*token_ids))
        self.twins = [
            Twin(twin.generation, (*twin.generated, token_id))
            for twin, token_id in zip(self.twins, token_ids, strict=True)
        ]

    def check(self, scores: Scores) -> None:
        self.processors.edit(scores)
        for row, twin in enumerate(self.twins):
            np.testing.assert_array_equal(row_of(scores, row), twin.alone(scores, row))


@pytest.mark.parametrize(
    "params",
    [
        ProcessorParams(repetition_penalty=1.5),
        ProcessorParams(presence_penalty=1.0, frequency_penalty=0.5),
        ProcessorParams(no_repeat_ngram_size=2),
        ProcessorParams(bad_words=((3, 4, 5), (4, 3, 6))),
        ProcessorParams(min_tokens=5),
    ],
)
def test_rows_that_fork_go_separate_ways(params: ProcessorParams) -> None:
    rows = Rows([params] * 8, seed=0)
    rows.admit(0)
    rows.step_by([4])
    rows.fork(0)
    for token_ids in ([3, 4], [4, 3], [4, 5], [3, 3]):
        rows.step_by(token_ids)
        rows.check(random_scores(2))
    rows.overwrite(0)
    for token_ids in ([4, 3], [3, 4], [5, 4]):
        rows.step_by(token_ids)
        rows.check(random_scores(2))


@given(events, st.lists(maybe_params, min_size=8, max_size=8), st.integers(0, 100))
@settings(max_examples=100)
def test_a_row_gets_what_it_would_get_alone_whatever_happens_around_it(
    events: list[tuple[str, int]], kinds: list[ProcessorParams | None], seed: int
) -> None:
    rows = Rows(kinds, seed)
    for event, number in events:
        getattr(rows, event)(number)
        rows.check(random_scores(len(rows.twins), seed))
    for row in range(len(rows.twins)):
        rows.processors.on_remove(row)
    assert not rows.processors.rows
