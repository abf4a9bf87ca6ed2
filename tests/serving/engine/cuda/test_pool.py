"""The pool of a device's caches: bounded, and no two copies in one place."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.states.memory import StateCache
from tests.devices.fake_cuda import fake_memory


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 900)), max_size=80))
def test_a_cache_on_a_device_gives_what_it_was_given_and_takes_no_more(
    uses: list[tuple[int, int]],
) -> None:
    library, memory = fake_memory()
    state, here = memory.zeros((2, 1000), "uint8"), memory.pinned((2, 1000), "uint8")
    cache = StateCache(4096, memory)
    num_used = library.num_used
    last_values: dict[int, int] = {}  # what was put last under each token
    for token_id, size in uses:
        copies = cache.get((token_id,))
        if copies is None:
            memory.copy(
                state, np.full((2, 1000), token_id, np.uint8) + np.array([[0], [100]], "u1")
            )
            cache.put((token_id,), [state[0, :size], state[1, : size // 2]])
            last_values[token_id] = size
            memory.clear(state)
            continue
        size = last_values[token_id]
        memory.copy(here[0, :size], copies[0])
        memory.copy(here[1, : size // 2], copies[1])
        memory.synchronize()
        assert {*here[0, :size].tolist()} <= {token_id}
        assert {*here[1, : size // 2].tolist()} <= {token_id + 100}
    assert library.num_used == num_used


def test_room_given_back_joins_its_neighbours() -> None:
    _, memory = fake_memory()
    pool = memory.pool(1024)
    part = memory.zeros((256,), "uint8")
    copies_of_part = [pool.store([part]) for _ in range(4)]
    assert pool.store([part]) is None
    for i in (1, 3, 2, 0):
        copies = copies_of_part[i]
        assert copies is not None
        pool.release(copies)
    assert pool.store([part] * 4) is not None
