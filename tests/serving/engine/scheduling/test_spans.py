"""Sources are encoded together where that takes little padding."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from serving.engine.generation import Generation
from serving.engine.scheduling.source_batches import MOST_PADDING, encode_groups, encode_span
from serving.requests.request import GenerationRequest


def generations_of(lengths: list[int]) -> list[Generation]:
    return [
        Generation(
            GenerationRequest(str(i), source_ids=(5,) * length, max_new_tokens=1),
            prompt_ids=(1,),
            max_new_tokens=1,
            stop_ids=frozenset(),
            has_own_stops=False,
            seed=0,
            submitted_at=0.0,
            deadline=None,
        )
        for i, length in enumerate(lengths)
    ]


def lengths_of(lengths: list[int], most_tokens: int = 1024) -> list[list[int]]:
    groups = encode_groups(generations_of(lengths), most_tokens)
    return [[generation.num_source_tokens for generation in group] for group in groups]


def test_sources_of_like_lengths_are_encoded_together() -> None:
    assert lengths_of([79, 9, 20, 11, 27]) == [[9, 11, 20, 27], [79]]
    assert lengths_of([8] * 8 + [12]) == [[8] * 8 + [12]]
    assert lengths_of([8] * 8 + [13]) == [[8] * 8, [13]]
    assert lengths_of([]) == []


@given(st.lists(st.integers(1, 300), max_size=30), st.integers(16, 400))
def test_every_source_is_in_one_group_that_there_is_room_for(
    lengths: list[int], most_tokens: int
) -> None:
    groups = list(encode_groups(generations_of(lengths), most_tokens))
    assert sorted(
        generation.num_source_tokens for group in groups for generation in group
    ) == sorted(lengths)
    for group in groups:
        span = encode_span(group[-1])
        assert all(encode_span(generation) <= span for generation in group)
        assert len(group) == 1 or len(group) * span <= most_tokens
        steps = pairwise(group)
        for number, (shorter, longer) in enumerate(steps, 1):
            assert number * (encode_span(longer) - encode_span(shorter)) <= MOST_PADDING
