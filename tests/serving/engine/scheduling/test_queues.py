"""A heap from which anything can be removed, against a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.scheduling.fair_queue import RemovableHeap
from serving.engine.scheduling.validation import RequestValidator
from serving.requests.request import GenerationRequest
from tests.serving.engine.toy import toy_bundle

RULES = RequestValidator(toy_bundle().manifest, EngineConfig().slots)


def new_generation() -> Generation:
    return RULES.accept(GenerationRequest("r", (3,)), now=0.0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=300))
def test_the_lowest_key_is_first_and_anybody_may_leave(moves: list[tuple[bool, int]]) -> None:
    queue = RemovableHeap()
    expected: list[tuple[int, int, Generation]] = []
    for number, (comes, value) in enumerate(moves):
        if comes or not expected:
            generation = new_generation()
            queue.add((value,), generation)
            expected.append((value, number, generation))
            expected.sort(key=lambda entry: entry[:2])
        else:
            key, _, leaver = expected.pop(value % len(expected))
            assert queue.remove(leaver) == (key,)
        assert len(queue) == len(expected)
        assert queue.first is (expected[0][2] if expected else None)


def test_those_who_left_take_no_memory() -> None:
    queue = RemovableHeap()
    for _ in range(1000):
        generation = new_generation()
        queue.add((0,), generation)
        queue.remove(generation)
    assert len(queue._heap) < 200
