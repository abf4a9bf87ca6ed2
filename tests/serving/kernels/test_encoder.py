"""Operators over the packed tokens of sources, against the bodies of their functions."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from export.graph.functions import ENCODER_ATTENTION, quantize_memory
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import FLOAT, INT8, INT32, Array, Port, model_of, native, portable

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

INT64 = TensorProto.INT64
TOLERANCE = 2e-6
LENGTHS = np.array([5, 9, 1, 12, 4], np.int32)
# Kernels take another path from 64 keys on.
LONG_LENGTHS = np.array([70, 3, 63, 64], np.int32)
# From 128 keys on they are packed, and multiplied in blocks of 256.
PACKED_LENGTHS = np.array([300, 5, 128, 513, 127], np.int32)
# heads, heads of keys and values, size of a head
HEADS = [(8, 8, 64), (4, 4, 8), (6, 2, 24), (2, 2, 128), (4, 1, 40)]


def places_of(lengths: Array) -> dict[str, Array]:
    """Return where padded tokens are among the packed ones, and packed among padded."""
    source, starts = int(lengths.max()), np.cumsum(lengths) - lengths
    columns = np.minimum(np.arange(source), lengths[:, None] - 1)
    is_real = np.arange(source) < lengths[:, None]
    return {
        "lengths": lengths,
        "token_at": (starts[:, None] + columns).astype(np.int32),
        "place_of": np.flatnonzero(is_real),
    }


def attention(heads: int, kv_heads: int, size: int, num_biases: int, cap: float = 0.0) -> bytes:
    qkv: list[Any] = ["tokens", (heads + 2 * kv_heads) * size]
    inputs = [
        ("qkv", FLOAT, qkv),
        ("lengths", INT32, ["batch"]),
        ("token_at", INT32, ["batch", "source"]),
        ("place_of", INT64, ["tokens"]),
    ]
    inputs += [("bias", FLOAT, [1, num_biases, "source", "source"])] if num_biases else []
    outputs = [("mixed", FLOAT, ["tokens", heads * size])]
    sizes = {"num_heads": heads, "kv_num_heads": kv_heads, "scale": size**-0.5}
    return model_of(ENCODER_ATTENTION, inputs, outputs, **sizes, softcap=cap)


def attention_inputs(
    lengths: Array, heads: int, kv_heads: int, size: int, num_biases: int
) -> dict[str, Array]:
    """Return the inputs. One bias for all heads masks what is far, and what follows."""
    random, source = np.random.default_rng(size), int(lengths.max())
    width = (heads + 2 * kv_heads) * size
    feeds = {
        "qkv": random.standard_normal((int(lengths.sum()), width)).astype(np.float32),
        **places_of(lengths),
    }
    if num_biases == 1:
        near = np.tri(source) - np.tri(source, k=-4)
        feeds["bias"] = np.where(near, 0, -1e30).astype(np.float32)[None, None]
    elif num_biases:
        feeds["bias"] = random.standard_normal((1, heads, source, source)).astype(np.float32)
    return feeds


@pytest.mark.parametrize(("cap", "threads"), [(0.0, 1), (0.0, 2), (0.8, 1)])
@pytest.mark.parametrize("bias", ["none", "mask", "of heads"])
@pytest.mark.parametrize("sizes", HEADS)
def test_attention_is_that_of_the_operators(
    sizes: tuple[int, int, int], bias: str, cap: float, threads: int
) -> None:
    num_biases = {"none": 0, "mask": 1, "of heads": sizes[0]}[bias]
    model = attention(*sizes, num_biases, cap)
    for lengths in (LENGTHS, LENGTHS[:1], np.ones(3, np.int32), LONG_LENGTHS):
        feeds = attention_inputs(lengths, *sizes, num_biases)
        [actual], [expected] = native(model, threads)(feeds), portable(model)(feeds)
        assert np.abs(actual - expected).max() < TOLERANCE


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", HEADS)
def test_attention_in_long_rows_is_that_of_the_operators(
    sizes: tuple[int, int, int], threads: int
) -> None:
    model = attention(*sizes, num_biases=0)
    feeds = attention_inputs(PACKED_LENGTHS, *sizes, num_biases=0)
    for factor, tolerance in ((1, 3e-5), (2, 3e-4)):  # scores of up to 20: a block outweighs others
        feeds["qkv"] *= np.float32(factor)
        [actual], [expected] = native(model, threads)(feeds), portable(model)(feeds)
        assert np.abs(actual - expected).max() < tolerance


@pytest.mark.parametrize("lengths", [LENGTHS, PACKED_LENGTHS])
def test_a_row_has_the_same_bits_alone(lengths: Array) -> None:
    sizes = (6, 2, 24)
    feeds = attention_inputs(lengths, *sizes, num_biases=0)
    [together] = native(attention(*sizes, num_biases=0), threads=2)(feeds)
    run = native(attention(*sizes, num_biases=0))
    ends = np.cumsum(lengths)
    for row, end in enumerate(ends):
        own = slice(end - lengths[row], end)
        alone = {"qkv": feeds["qkv"][own], **places_of(lengths[row : row + 1])}
        assert np.array_equal(run(alone)[0], together[own])


def test_what_is_masked_counts_for_nothing() -> None:
    """Not to the bit, however large it is."""
    sizes, lengths = (6, 2, 24), np.array([12], np.int32)
    run = native(attention(*sizes, num_biases=1))
    feeds = attention_inputs(lengths, *sizes, num_biases=1)
    [before] = run(feeds)
    feeds["qkv"][6:] *= 1e6
    assert np.array_equal(run(feeds)[0][:6], before[:6])


MEMORY_OUTPUTS = ("keys", "values", "key_step", "value_step")


def memory_model(kv_heads: int, size: int) -> bytes:
    width, outputs = 2 * kv_heads * size, MEMORY_OUTPUTS
    memory: list[Any] = ["batch", kv_heads, "source", size]
    step: list[Any] = ["batch", 1, kv_heads * size]
    inputs: list[Port] = [
        ("keys_values", FLOAT, ["tokens", width]),
        ("lengths", INT32, ["batch"]),
        ("token_at", INT32, ["batch", "source"]),
    ]
    return model_of(
        quantize_memory(kv_heads, size),
        inputs,
        [(name, INT8 if name in ("keys", "values") else FLOAT, memory) for name in outputs[:2]]
        + [(name, FLOAT, step) for name in outputs[2:]],
        kv_num_heads=kv_heads,
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("kv_heads", "size"), [(8, 64), (2, 24), (1, 7)])
def test_memory_is_quantised_as_by_the_operators(kv_heads: int, size: int, threads: int) -> None:
    model, width, outputs = memory_model(kv_heads, size), 2 * kv_heads * size, MEMORY_OUTPUTS
    places = places_of(LENGTHS)
    del places["place_of"]
    x = np.random.default_rng(size).standard_normal((int(LENGTHS.sum()), width))
    x *= 10.0 ** np.random.default_rng(1).uniform(-2, 2, width)
    x[:, 1] = 0
    feeds = {"keys_values": x.astype(np.float32), **places}
    actual = dict(zip(outputs, native(model, threads)(feeds), strict=True))
    expected = dict(zip(outputs, portable(model)(feeds), strict=True))
    for name in ("key_step", "value_step"):
        np.testing.assert_array_equal(actual[name], expected[name])
    for name in ("keys", "values"):
        steps = expected[f"{name.removesuffix('s')}_step"].reshape(-1, kv_heads, 1, size)
        for each in (actual, expected):
            each[name] = each[name] * (steps > 0)  # levels of a channel of zeros are arbitrary
        np.testing.assert_array_equal(actual[name], expected[name])


def test_lengths_that_do_not_fit_the_tokens_are_refused() -> None:
    sizes = (4, 4, 8)
    feeds = attention_inputs(LENGTHS, *sizes, num_biases=0)
    feeds["lengths"] = LENGTHS - 1
    with pytest.raises(Exception, match="lengths do not fit the tokens"):
        native(attention(*sizes, num_biases=0))(feeds)
