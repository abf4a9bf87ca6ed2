"""Device copies are cut into pitched ones, which a stream makes in its order."""

import ctypes
from typing import Any

import numpy as np
import pytest

from serving.engine.arrays import Array
from serving.engine.cuda import memory as device_memory
from serving.engine.cuda.cuda_runtime import CudaRuntime
from serving.engine.cuda.memory import DeviceArray, copy_blocks, device_array
from serving.errors import DeviceError, OutOfMemory
from tests.devices.fake_cuda import FakeCuda, fake_memory

CASES: list[tuple[tuple[int, ...], Any]] = [
    ((4, 3, 8, 5), np.s_[:]),
    ((4, 3, 8, 5), np.s_[1:3]),
    ((4, 3, 8, 5), np.s_[2, :, :4]),
    ((4, 3, 8, 5), np.s_[:2, :, :4]),
    ((4, 3, 8, 5), np.s_[1, 2, 3]),
    ((4, 3, 8, 5), np.s_[1, 2, 3, 4]),
    ((4, 3, 8, 5), np.s_[:, :, :0]),
    ((4, 1, 8, 5), np.s_[:, :, :2]),
    ((7,), np.s_[2:5]),
]


@pytest.mark.parametrize("max_pitch", [device_memory.MAX_PITCH, 100])
@pytest.mark.parametrize(("shape", "index"), CASES, ids=str)
def test_the_blocks_of_a_copy_move_what_it_should(
    shape: tuple[int, ...], index: Any, max_pitch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "MAX_PITCH", max_pitch)
    source = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    target = np.zeros(shape, np.float32)
    expected = target.copy()
    expected[index] = source[index]
    for to, from_, rows, row_bytes in copy_blocks(part(target, index), part(source, index)):
        assert row_bytes <= to.pitch <= max_pitch or rows == 1
        for row in range(rows):
            places = to.address + row * to.pitch, from_.address + row * from_.pitch
            ctypes.memmove(*places, row_bytes)
    assert (target == expected).all()


def part(array: Array, index: Any) -> Array:
    """A view, also of a single element."""
    view = device_array(array.__array_interface__["data"][0], array.shape, "float32")[index]
    return view if isinstance(view, np.ndarray) else array[..., None][index]


def test_a_copy_between_spans_is_one_block_per_layer_for_all_rows_and_heads() -> None:
    narrow = device_array(4096, (6, 4, 3, 16, 8), "float32")
    wide = device_array(2**20, (6, 5, 3, 32, 8), "float32")
    blocks = list(copy_blocks(wide[:, 1:, :, :16], narrow))
    assert len(blocks) == 6
    assert {(to.pitch, from_.pitch, rows, num) for to, from_, rows, num in blocks} == {
        (32 * 8 * 4, 16 * 8 * 4, 4 * 3, 16 * 8 * 4)
    }


def test_copies_are_made_in_their_order_and_once_somebody_waits() -> None:
    _, memory = fake_memory()
    here, there = memory.pinned((4,), "float32"), memory.zeros((2, 4), "float32")
    assert here.tolist() == [0] * 4
    assert isinstance(there[1:], DeviceArray)
    memory.copy(there[0], np.arange(4, dtype=np.float32))
    memory.copy(there[1], there[0])
    memory.clear(there[0, :2])
    memory.copy(here, there[1])
    assert here.tolist() == [0] * 4, "nobody has waited"
    memory.synchronize()
    assert here.tolist() == [0, 1, 2, 3]
    back = np.empty((2, 4), np.float32)
    memory.copy(back, there)  # to memory that is not pinned
    assert back.tolist() == [[0, 0, 2, 3], [0, 1, 2, 3]]


def test_an_event_waits_for_what_was_before_it_alone() -> None:
    library, memory = fake_memory()
    first, second = memory.pinned((1,), "int64"), memory.pinned((1,), "int64")
    ones = memory.zeros((1,), "int64")
    memory.copy(ones, np.ones(1, np.int64))
    memory.copy(first, ones)
    event = memory.runtime.record()
    memory.copy(second, ones)
    memory.runtime.wait(event)
    assert (first[0], second[0]) == (1, 0)
    assert library.waits == 0


def test_bfloat16_is_kept_as_its_bits() -> None:
    _, memory = fake_memory()
    assert memory.zeros((3,), "bfloat16").nbytes == 6


def test_full_memory_has_an_error_of_its_own_with_what_is_free() -> None:
    _, memory = fake_memory(num_bytes=8 * 2**20)
    array = memory.zeros((6, 2**20), "uint8")
    with pytest.raises(OutOfMemory, match="3 MiB wanted, 2 MiB of 8 MiB free"):
        memory.zeros((3, 2**20), "uint8")
    memory.copy(array, memory.zeros((1, 2**20), "uint8").repeat(6, axis=0))  # it lives on


def test_what_fails_on_the_device_is_told_when_somebody_waits() -> None:
    library, memory = fake_memory()
    library.failure = 700
    with pytest.raises(DeviceError, match="CUDA: an illegal memory access"):
        memory.synchronize()


def test_no_device_is_said_in_one_line() -> None:
    with pytest.raises(DeviceError, match="no GPU is visible; see nvidia-smi") as caught:
        CudaRuntime(FakeCuda(num_devices=0))
    assert "\n" not in str(caught.value)
