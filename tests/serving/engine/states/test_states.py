"""Spans: how sources of different lengths share a batch."""

from hypothesis import given
from hypothesis import strategies as st

from serving.engine.arrays import Array
from serving.engine.states.kind import RowExtent, round_span
from serving.engine.states.memory import HostMemory
from serving.engine.states.store import StateStore, row_bytes
from tests.serving.engine.toy import HIDDEN, HISTORY, MEMORY, SUMMARY, TALLY, toy_bundle


@given(st.integers(1, 100_000))
def test_a_span_is_a_multiple_of_16_and_little_longer_than_needed(num_tokens: int) -> None:
    span = round_span(num_tokens)
    assert span % 16 == 0
    assert num_tokens <= span <= max(num_tokens + 15, num_tokens * 1.25)
    assert round_span(span) == span


def test_a_span_grows_at_once_and_shrinks_only_by_half() -> None:
    store = StateStore(toy_bundle().manifest, 4, 64, HostMemory())

    def span_for(num_tokens: int, num_rows: int) -> int:
        store.fit_span(num_tokens, num_rows)
        return store.span

    assert span_for(40, 0) == 48
    assert span_for(20, 2) == 48
    assert span_for(50, 2) == 64
    assert span_for(32, 2) == 32
    assert span_for(5, 0) == 16


def test_rows_keep_their_values_when_the_span_changes_and_when_they_move() -> None:
    store = StateStore(toy_bundle().manifest, 4, 64, HostMemory())
    store.fit_span(16, 0)
    store.inputs(0, 3)["memory"][...] = [[[[1]]], [[[2]]], [[[3]]]]
    for longest in (90, 16):
        store.fit_span(longest, 3)
        memory = store.inputs(0, 3)["memory"]
        assert memory.shape == (3, 2, round_span(longest), 3)
        assert memory[:, 1, :16, 2].tolist() == [[1] * 16, [2] * 16, [3] * 16]
    store.copy_row(2, 0, RowExtent(target_tokens=1, source_tokens=16))
    assert store.inputs(0, 2)["memory"][:, 0, 15, 0].tolist() == [3, 2]


def test_counts_the_bytes_of_a_row() -> None:
    counted = row_bytes((HISTORY, TALLY, HIDDEN, MEMORY, SUMMARY))
    assert (counted.fixed, counted.per_target_token, counted.per_source_token) == (40, 24, 24)


class Ledger(HostMemory):
    """Remembers the shapes of what was copied."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def copy(self, target: Array, source: Array) -> None:
        self.shapes.append(target.shape)
        super().copy(target, source)


def test_between_rows_of_one_source_only_what_they_do_not_share_is_copied() -> None:
    ledger = Ledger()
    store = StateStore(toy_bundle().manifest, 4, 64, ledger)
    history, memory = store.inputs(0, 2)["history"], store.inputs(0, 2)["memory"]
    history[0], history[1], memory[0], memory[1] = 1, 2, 3, 4

    store.copy_suffix(0, 1, num_shared=7, extent=RowExtent(target_tokens=9, source_tokens=5))

    positions, *whole = ledger.shapes
    assert (positions, whole) == ((1, 2, 2, 3), [(1, 1), (1, 4)])  # states, heads, positions, size
    assert history[1, 0, :, 0].tolist()[5:11] == [2, 2, 1, 1, 2, 2]
    assert memory[1].max() == memory[1].min() == 4
