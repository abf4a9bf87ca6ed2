"""Weights come back from a checkpoint's file as they were, as far as their storage holds them."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from models.safetensors import Array, Storage, quantised, read_weights, write_weights

ERRORS = {Storage.FP32: 0.0, Storage.FP16: 2**-11, Storage.BF16: 2**-8, Storage.INT8: 0.5 / 127}
BYTES = {Storage.FP32: 4.0, Storage.FP16: 2.0, Storage.BF16: 2.0, Storage.INT8: 1.0 + 4 / 64}


def some_weights() -> dict[str, Array]:
    draw = np.random.default_rng(0).standard_normal
    arrays = {"matrix": draw((96, 64)), "vector": draw(64), "thin": draw((9, 4))}
    arrays |= {"filters": draw((8, 5, 3)), "zeros": np.zeros((2, 64)), "scale": draw(7)}
    arrays |= {"embedding.weight": draw((30, 64)), "score": draw((1, 64))}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def stored(path: Path) -> dict[str, Array]:
    problems: list[str] = []
    actual = read_weights(path, problems)
    assert problems == []
    return actual


@pytest.mark.parametrize("storage", Storage)
def test_weights_come_back_in_fp32(storage: Storage, tmp_path: Path) -> None:
    weights, path = some_weights(), tmp_path / "model.safetensors"
    write_weights(path, weights, storage)
    actual = stored(path)
    assert actual.keys() == weights.keys()
    for name, weight in weights.items():
        assert actual[name].dtype == np.float32 and actual[name].shape == weight.shape
        largest = np.abs(weight).max(axis=-1, keepdims=True)
        assert (np.abs(actual[name] - weight) <= ERRORS[storage] * largest + 1e-9).all()


@pytest.mark.parametrize("storage", Storage)
def test_a_file_is_as_small_as_its_storage(storage: Storage, tmp_path: Path) -> None:
    write_weights(tmp_path / "x", {"matrix": np.ones((1000, 64), np.float32)}, storage)
    size = (tmp_path / "x").stat().st_size
    assert size == pytest.approx(BYTES[storage] * 64_000, rel=0.02)


def test_in_int8_words_stay_in_fp16(tmp_path: Path) -> None:
    weights = some_weights()
    write_weights(tmp_path / "x", weights, Storage.INT8)
    actual = stored(tmp_path / "x")
    for name in ("embedding.weight", "score", "vector", "thin"):
        assert np.array_equal(actual[name], weights[name].astype(np.float16))
    assert not np.array_equal(actual["matrix"], weights["matrix"].astype(np.float16))


def test_bf16_is_rounded_to_nearest(tmp_path: Path) -> None:
    """As torch rounds it."""
    import torch

    weight = some_weights()["matrix"]
    write_weights(tmp_path / "x", {"matrix": weight}, Storage.BF16)
    theirs = torch.tensor(weight).bfloat16().float().numpy()
    assert np.array_equal(stored(tmp_path / "x")["matrix"], theirs)


def test_what_was_int8_is_stored_again_without_loss(tmp_path: Path) -> None:
    write_weights(tmp_path / "once", some_weights(), Storage.INT8)
    once = stored(tmp_path / "once")
    write_weights(tmp_path / "twice", once, Storage.INT8)
    for name, weight in stored(tmp_path / "twice").items():
        np.testing.assert_allclose(weight, once[name], rtol=1e-6)
    levels, _ = quantised(once["matrix"])
    assert np.array_equal(levels, quantised(some_weights()["matrix"])[0])


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"a": np.ones((2, 3), np.int8)}, "a has no scale for each row: I8 [2, 3]"),
        (
            {"a": np.ones((2, 3), np.int8), "a.scale": np.ones(3, np.float32)},
            "a has no scale for each row: I8 [2, 3]",
        ),
        ({"a": np.ones((2, 3), np.int64)}, "a is not of floats: I64 [2, 3]"),
    ],
)
def test_what_cannot_be_read_is_named(
    arrays: dict[str, Array], problem: str, tmp_path: Path
) -> None:
    save_file(arrays, tmp_path / "x")
    problems: list[str] = []
    read_weights(tmp_path / "x", problems)
    assert problems == [problem]
