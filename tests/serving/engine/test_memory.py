"""Device copies are cut into pitched ones; host memory stands in for the device here."""

import ctypes
from typing import Any

import numpy as np
import pytest

from serving.engine.memory import Array, copy_blocks, device_array

CASES: list[tuple[tuple[int, ...], Any]] = [
    ((4, 3, 8, 5), np.s_[:]),
    ((4, 3, 8, 5), np.s_[1:3]),
    ((4, 3, 8, 5), np.s_[2, :, :4]),
    ((4, 3, 8, 5), np.s_[:2, :, :4]),
    ((4, 3, 8, 5), np.s_[1, 2, 3]),
    ((4, 3, 8, 5), np.s_[1, 2, 3, 4]),
    ((4, 3, 8, 5), np.s_[:, :, :0]),
    ((7,), np.s_[2:5]),
]


@pytest.mark.parametrize(("shape", "index"), CASES, ids=str)
def test_the_blocks_of_a_copy_move_what_it_should(shape: tuple[int, ...], index: Any) -> None:
    source = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    target = np.zeros(shape, np.float32)
    expected = target.copy()
    expected[index] = source[index]
    for to, from_, rows, row_bytes in copy_blocks(part(target, index), part(source, index)):
        for row in range(rows):
            ctypes.memmove(to[0] + row * to[1], from_[0] + row * from_[1], row_bytes)
    assert (target == expected).all()


def part(array: Array, index: Any) -> Array:
    """A view, also of a single element."""
    view = device_array(array.__array_interface__["data"][0], array.shape, "float32")[index]
    return view if isinstance(view, np.ndarray) else array[..., None][index]


def test_a_copy_between_spans_is_one_block_per_outer_index() -> None:
    narrow = device_array(4096, (6, 4, 16, 8), "float32")
    wide = device_array(2**20, (6, 4, 32, 8), "float32")
    blocks = list(copy_blocks(wide[:, :, :16], narrow))
    assert len(blocks) == 6
    assert {(to[1], from_[1], rows, num) for to, from_, rows, num in blocks} == {
        (32 * 8 * 4, 16 * 8 * 4, 4, 16 * 8 * 4)
    }
