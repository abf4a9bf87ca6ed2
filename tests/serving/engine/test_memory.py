"""Device copies are cut into pitched ones; host memory stands in for the device here."""

import ctypes
from typing import Any

import numpy as np
import pytest

from serving.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.graphs.graph import Graphs
from serving.engine.states.memory import CudaMemory, DeviceArray, copy_blocks, device_array
from serving.request import GenerationRequest
from tests.serving.engine.driving import run_all
from tests.serving.engine.toy import toy_bundle, toy_graphs

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


class HostRuntime:
    """The CUDA runtime's functions over host memory."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def cudaMalloc(self, address: Any, num_bytes: ctypes.c_size_t) -> int:
        self.kept.append(ctypes.create_string_buffer(num_bytes.value))
        address._obj.value = ctypes.addressof(self.kept[-1])
        return 0

    def cudaMemset(self, address: Any, value: int, num_bytes: Any) -> int:
        ctypes.memset(address, value, num_bytes.value)
        return 0

    def cudaMemcpy2D(self, to: Any, to_pitch: Any, of: Any, of_pitch: Any, *rest: Any) -> int:
        width, height, kind = rest
        assert kind == 3
        assert width.value <= min(to_pitch.value, of_pitch.value)
        for row in range(height.value):
            target, source = to.value + row * to_pitch.value, of.value + row * of_pitch.value
            ctypes.memmove(target, source, width.value)
        return 0

    def cudaMemset2D(self, to: Any, pitch: Any, value: int, width: Any, height: Any) -> int:
        for row in range(height.value):
            ctypes.memset(to.value + row * pitch.value, value, width.value)
        return 0

    def cudaDeviceSynchronize(self) -> int:
        return 0


@pytest.mark.parametrize("has_encoder", [True, False])
def test_an_engine_says_the_same_over_device_memory(has_encoder: bool) -> None:
    requests = [
        GenerationRequest(str(i), (3 + i, 9) * (1 + i) if has_encoder else None, (5, 6, 7 + i))
        for i in range(20)
    ]
    bundle, config = toy_bundle(has_encoder), EngineConfig(slots=5, threads=1)
    graphs = toy_graphs(has_encoder=has_encoder)
    memory = CudaMemory(HostRuntime())
    assert isinstance(memory.zeros((2, 3), "float32")[1:], DeviceArray)
    on_host = run_all(Engine(bundle, config, graphs), requests)
    on_device = run_all(
        Engine(bundle, config, Graphs(graphs.step, graphs.encode, memory)), requests
    )
    assert on_device == on_host
