"""A step's decision is a value: made by reading, of arrays alone, and carried out afterwards."""

import numpy as np
import pytest

from serving.engine.arrays import Array
from serving.engine.decoding.beam_search import BeamGroup
from serving.engine.decoding.scores import Scores
from serving.engine.decoding.search import Search
from serving.engine.rows import Batch, Decision, RowCopy
from serving.engine.scheduling.validation import RequestValidator
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import FinishReason, GenerationRequest
from tests.serving.engine.toy import BOS, STOP, VOCAB_SIZE, WINDOW, toy_bundle

SLOTS = 12


class Table:
    """A search over arrays: no states, no graphs. Each row's scores are put in by hand."""

    def __init__(self, *requests: GenerationRequest) -> None:
        self.manifest = toy_bundle(has_encoder=False).manifest
        self.batch = Batch(SLOTS)
        self.search = Search(self.manifest, self.batch)
        rules = RequestValidator(self.manifest, SLOTS)
        for request in requests:
            generation = rules.accept(request, 0.0)
            row = self.batch.add(generation, len(generation.prompt_ids) - 1)
            for observer in self.search.row_observers:
                observer.on_add(row, generation)

    def decide(self, *favourites: dict[int, float]) -> Decision:
        """Decide by these probabilities of tokens, a dictionary a row."""
        return self.search.decide(scores_of(favourites))

    def apply(self, decision: Decision) -> None:
        """Follow a decision that copies rows but ends nothing."""
        assert not decision.finished_rows
        for copy in decision.copies:
            if copy.target == self.batch.num_rows:
                self.batch.fork(copy.source)
            for observer in self.search.row_observers:
                observer.on_copy(copy.source, copy.target)
        for observer in self.search.row_observers:
            observer.on_step(decision)
        self.batch.advance(decision.token_ids)


def scores_of(favourites: tuple[dict[int, float], ...]) -> Scores:
    probabilities = np.full((len(favourites), VOCAB_SIZE), 1e-6)
    for row, of_tokens in enumerate(favourites):
        probabilities[row, [*of_tokens]] = [*of_tokens.values()]
    logp = np.log(probabilities).astype(np.float32)
    top_ids: Array = np.argsort(-logp, axis=1, kind="stable")[:, :WINDOW]
    top_logp = np.take_along_axis(logp, top_ids, axis=1)
    return Scores(logp, top_logp, top_ids, np.zeros(len(logp), np.float32))


def beam(num_beams: int = 2, **more: object) -> GenerationRequest:
    fields = {"prompt_ids": (9,), "max_new_tokens": 8, "beam": BeamParams(num_beams)} | more
    return GenerationRequest("beam", **fields)  # type: ignore[arg-type]


def beams_of(decision: Decision) -> list[tuple[int, tuple[int, ...]]]:
    """The rows and tokens of the beams that go on."""
    [group] = decision.searches
    assert isinstance(group, BeamGroup)
    parts = []
    for beam in group.beams:
        node, tokens = beam.node, []
        while node is not None:
            tokens.append(node.event.token_id)
            node = node.parent
        parts.append((beam.row, tuple(tokens[::-1])))
    return parts


def test_a_second_beam_gets_a_row_of_its_own() -> None:
    decision = Table(beam()).decide({4: 0.6, 5: 0.3})
    assert decision.copies == [RowCopy(source=0, target=1)]
    assert decision.token_ids.tolist() == [4, 5]
    assert beams_of(decision) == [(0, (4,)), (1, (5,))]
    assert not decision.events and not decision.endings and not decision.finished_rows


def test_a_row_that_goes_on_twice_takes_over_one_that_does_not() -> None:
    table = Table(beam(3))
    table.apply(table.decide({4: 0.4, 5: 0.3, 6: 0.2}))
    table.apply(table.decide({7: 0.9}, {8: 0.9}, {9: 0.9}))
    decision = table.decide({10: 0.5, 11: 0.4}, {12: 0.9}, {13: 0.001})
    positions = len((BOS, 9))  # what the rows had in common when they parted
    assert decision.copies == [RowCopy(source=0, target=2, num_shared=positions)]
    assert decision.token_ids.tolist() == [10, 12, 11]
    assert [row for row, _ in beams_of(decision)] == [1, 0, 2]


def test_a_search_waits_for_its_given_tokens_like_any_other_row() -> None:
    table = Table(beam(forced_ids=(4, 8)))
    for token_id in (4, 8):
        decision = table.decide({20: 0.9})
        assert decision.is_forced.tolist() == [True]
        assert decision.token_ids.tolist() == [token_id]
        assert [event.token_id for event in decision.token_outputs.values()] == [token_id]
        assert not decision.copies
        table.apply(decision)
    decision = table.decide({20: 0.5, 21: 0.4})
    assert beams_of(decision) == [(0, (4, 8, 20)), (1, (4, 8, 21))]


def test_what_is_given_may_be_all_there_is() -> None:
    [ending] = (
        Table(beam(prompt_ids=(9,), forced_ids=(STOP,), max_new_tokens=0)).decide({4: 0.9}).endings
    )
    assert ending.generation.request_id == "beam"
    assert ending.reason is FinishReason.STOP
    assert [hypothesis.tokens.ids for hypothesis in ending.hypotheses] == [[]]


REQUESTS = {
    "greedy": GenerationRequest("greedy", prompt_ids=(9,)),
    "drawn": GenerationRequest(
        "drawn", prompt_ids=(9,), sampling=SamplingParams(1.0, top_p=0.9, seed=7)
    ),
    "edited": GenerationRequest(
        "edited", prompt_ids=(9,), processors=ProcessorParams(no_repeat_ngram_size=2)
    ),
    "given": GenerationRequest("given", prompt_ids=(9,), forced_ids=(4, 5, 6, 7)),
    "beam": beam(3),
}


@pytest.mark.parametrize("names", [[name] for name in REQUESTS] + [[*REQUESTS]], ids=str)
def test_to_decide_twice_is_to_decide_the_same(names: list[str]) -> None:
    table = Table(*(REQUESTS[name] for name in names))
    rng = np.random.default_rng(1)
    for _ in range(4):
        favourites = [
            dict(zip(range(3, 40), rng.dirichlet(np.full(37, 0.3)), strict=True))
            for _ in range(table.batch.num_rows)
        ]
        first, second = table.decide(*favourites), table.decide(*favourites)
        assert comparable_decision(first) == comparable_decision(second)
        table.apply(first)


def comparable_decision(decision: Decision) -> list[object]:
    groups = [each for each in decision.searches if isinstance(each, BeamGroup)]
    return [
        decision.token_ids.tolist(),
        decision.is_forced.tolist(),
        decision.copies,
        decision.reported_rows,
        decision.token_outputs,
        decision.events,
        [(ending.generation.request_id, ending.reason) for ending in decision.endings],
        decision.finished_rows,
        [[(each.row, each.logprob) for each in group.beams] for group in groups],
        [group.num_shared for group in groups],
    ]
