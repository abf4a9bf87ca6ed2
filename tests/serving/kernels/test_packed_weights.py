"""Packed weights are stored once for all sessions of a process, and freed with the last one."""

import ctypes
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from export.graph.functions import BLOCK_QUANTIZED_LINEAR, QUANTIZED_LINEAR
from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_session
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import FLOAT, Array, model_of

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

BLOCK = 16  # inputs that share a scale
INPUTS, OUTPUTS = 2048, 8192  # packed weights of 16 MiB


def write_layer(folder: Path, bits: int, seed: int = 0) -> Path:
    """Write a model of one layer, with its weights in another file as in a bundle.

    bits: 8 for int8 rows, 4 or -8 for blocks of as many bits.
    """
    random = np.random.default_rng(seed)
    ports = [("x", FLOAT, ["rows", INPUTS])], [("y", FLOAT, ["rows", OUTPUTS])]
    weights: dict[str, Array]
    if bits == 8:
        weights = {
            "weight": random.integers(-127, 128, (INPUTS, OUTPUTS), np.int8),
            "scale": random.random(OUTPUTS, np.float32),
            "bias": random.standard_normal(OUTPUTS, np.float32),
        }
        data = model_of(QUANTIZED_LINEAR, *ports, weights)
    else:
        blocks = INPUTS // BLOCK
        weights = {
            "levels": random.integers(0, 256, (OUTPUTS, blocks, BLOCK * abs(bits) // 8), np.uint8),
            "scale": random.random((OUTPUTS, blocks), np.float32),
        }
        attributes: dict[str, Any] = {"N": OUTPUTS, "K": INPUTS, "bits": abs(bits)}
        data = model_of(BLOCK_QUANTIZED_LINEAR, *ports, weights, **attributes)
    path = folder / f"{bits}-{seed}.onnx"
    model = onnx.load_from_string(data)
    onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.bin")
    return path


def open_layer(path: Path, threads: int = 1) -> Any:
    return open_session(path, EngineConfig(threads=threads, device="cpu"))


def anonymous_bytes() -> int:
    """Return the resident memory of this process that is no file's."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the operating system
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""),
    reason="the address sanitizer keeps memory that was freed",
)
@pytest.mark.parametrize("bits", [8, -8, 4])
def test_sessions_share_packed_weights_and_the_last_one_frees_them(
    bits: int, tmp_path: Path
) -> None:
    path = write_layer(tmp_path, bits)
    open_layer(path)  # what ONNX Runtime allocates once
    before = anonymous_bytes()
    first = open_layer(path)
    packed = anonymous_bytes() - before
    assert packed > INPUTS * OUTPUTS * abs(bits) / 8
    second = open_layer(path, threads=2)
    assert anonymous_bytes() - before < 1.1 * packed
    x = np.random.default_rng(1).standard_normal((3, INPUTS)).astype(np.float32)
    expected = first.run(None, {"x": x})[0]
    del first
    assert np.array_equal(second.run(None, {"x": x})[0], expected)
    assert anonymous_bytes() - before > 0.9 * packed
    del second
    assert anonymous_bytes() - before < 0.1 * packed


def test_other_weights_are_not_shared(tmp_path: Path) -> None:
    """Also if one number of them differs, or the same bytes have another shape."""
    path = write_layer(tmp_path, 8)
    model = onnx.load(path)
    scale = next(tensor for tensor in model.graph.initializer if tensor.name == "scale")
    values = onnx.numpy_helper.to_array(scale).copy()
    values[-1] *= 2
    scale.CopyFrom(onnx.numpy_helper.from_array(values, "scale"))
    other = tmp_path / "other.onnx"
    onnx.save(model, other, save_as_external_data=True, location="other.bin")
    x = np.ones((1, INPUTS), np.float32)
    sessions = [open_layer(path), open_layer(other)]
    first, second = (session.run(None, {"x": x})[0][0] for session in sessions)
    assert np.array_equal(first[:-1], second[:-1])
    assert first[-1] != second[-1]


def test_threads_that_load_and_free_sessions_at_once_get_the_same_outputs(tmp_path: Path) -> None:
    paths = [write_layer(tmp_path, bits) for bits in (8, 4)]
    x = np.ones((1, INPUTS), np.float32)
    expected = [open_layer(path).run(None, {"x": x})[0] for path in paths]

    def load_and_run(number: int) -> bool:
        output = open_layer(paths[number % 2]).run(None, {"x": x})[0]
        return np.array_equal(output, expected[number % 2])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(load_and_run, range(12)))
