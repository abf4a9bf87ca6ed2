"""NaN or infinity in a row: its outputs are NaN, and those of other rows do not change."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from export.graph.functions import (
    CROSS_ATTENTION,
    INT8_CROSS_ATTENTION,
    attention_to_states,
    weights_of_source,
)
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import FLOAT, INT8, INT32, Array, Run, model_of, native, portable
from tests.serving.kernels.test_attention import self_attention, self_inputs
from tests.serving.kernels.test_block_linear import layer as block_layer
from tests.serving.kernels.test_encoder import (
    LENGTHS,
    PACKED_LENGTHS,
    attention,
    attention_inputs,
    memory_model,
    places_of,
)
from tests.serving.kernels.test_linear import layer
from tests.serving.kernels.test_recurrent import CELLS, cell_inputs
from tests.serving.kernels.test_recurrent import model as cell_model

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

MakeRun = Callable[[bytes], Run]
NOT_NUMBERS = [np.nan, -np.nan, np.inf, -np.inf]
BAD_ROW = 2


def rows_with(x: Array, bad_row: int = BAD_ROW) -> Iterator[Array]:
    """Yield copies of x [rows, width] of which one row has a value that is not a number, at its
    beginning, in the middle or at its end.
    """
    for value in NOT_NUMBERS:
        for place in (0, 5, x.shape[1] // 2, x.shape[1] - 1):
            damaged = x.copy()
            damaged[bad_row, place] = value
            yield damaged


def check_rows(run: Run, x: Array, name: str = "x") -> None:
    [expected] = run({name: x})
    for damaged in rows_with(x):
        [actual] = run({name: damaged})
        assert np.isnan(actual[BAD_ROW]).all()
        others = np.arange(len(x)) != BAD_ROW
        assert np.array_equal(actual[others], expected[others])


@pytest.mark.parametrize("make_run", [native, portable])
@pytest.mark.parametrize("rows", [3, 17, 70])
@pytest.mark.parametrize(("inputs", "outputs"), [(37, 51), (512, 200)])
def test_row_wise_products(make_run: MakeRun, inputs: int, outputs: int, rows: int) -> None:
    x = np.random.default_rng(1).standard_normal((rows, inputs)).astype(np.float32)
    check_rows(make_run(layer(inputs, outputs)), x)


@pytest.mark.parametrize("make_run", [native, portable])
@pytest.mark.parametrize("rows", [3, 17])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("inputs", "outputs"), [(37, 51), (576, 200)])
def test_products_in_blocks(
    make_run: MakeRun, inputs: int, outputs: int, bits: int, rows: int
) -> None:
    x = np.random.default_rng(1).standard_normal((rows, inputs)).astype(np.float32)
    model, _ = block_layer(inputs, outputs, bits=bits)
    check_rows(make_run(model), x)


@pytest.mark.parametrize("make_run", [native, portable])
def test_a_channel_of_quantised_memories_has_a_scale_that_is_none(make_run: MakeRun) -> None:
    kv_heads, head_dim = 2, 24
    run = make_run(memory_model(kv_heads, head_dim))
    lengths = LENGTHS
    ends, width = np.cumsum(lengths), 2 * kv_heads * head_dim
    x = np.random.default_rng(1).standard_normal((lengths.sum(), width)).astype(np.float32)
    places = places_of(lengths)
    feeds = {name: places[name] for name in ("lengths", "token_at")}
    expected = np.concatenate(run({"keys_values": x, **feeds})[2:], axis=2)
    for value in NOT_NUMBERS:
        damaged = x.copy()
        damaged[ends[0] + 3, 30] = damaged[ends[2], 70] = value  # of the rows 1 and 3
        scales = np.concatenate(run({"keys_values": damaged, **feeds})[2:], axis=2)
        is_bad = np.zeros(scales.shape, bool)
        is_bad[1, 0, 30] = is_bad[3, 0, 70] = True
        assert np.isnan(scales[is_bad]).all()
        assert np.array_equal(scales[~is_bad], expected[~is_bad])


SIZES = (6, 2, 24)  # heads, heads of keys and values, size of a head


@pytest.mark.parametrize("name", ["qkv", "past_key", "past_value"])
def test_attention_of_decoders(name: str) -> None:
    """A value of a head that attention reads; in values, only its channel is not a number."""
    run = native(self_attention(*SIZES))
    feeds = self_inputs(*SIZES, rows=4)
    feeds["total_lengths"][:] = 7, 20, 33, 50
    expected = run(feeds)[0]
    for value in (np.nan, np.inf):
        damaged = {key: array.copy() for key, array in feeds.items()}
        if name == "qkv":
            damaged[name][BAD_ROW, 0, : SIZES[2]] = value  # the query of the first head
        else:
            damaged[name][BAD_ROW, 0, 4] = value  # of the first three heads
        actual = run(damaged)[0]
        heads = 1 if name == "qkv" else 3
        if not (name == "past_value" and np.isinf(value)):  # infinity is a mean of such values
            assert np.isnan(actual[BAD_ROW, 0, : heads * SIZES[2]]).all()
        others = np.arange(4) != BAD_ROW
        assert np.array_equal(actual[others], expected[others])


@pytest.mark.parametrize("is_int8", [False, True])
def test_attention_to_the_source(is_int8: bool) -> None:
    heads, kv_heads, head_dim = SIZES
    random, rows, source = np.random.default_rng(1), 4, 13
    dim = heads * head_dim
    memory = [rows, kv_heads, source, head_dim]
    dtype, kind = (np.int8, INT8) if is_int8 else (np.float32, FLOAT)
    feeds: dict[str, Array] = {
        "query": random.standard_normal((rows, 1, dim)).astype(np.float32),
        "keys": random.integers(-9, 9, memory).astype(dtype),
        "values": random.integers(-9, 9, memory).astype(dtype),
        "lengths": np.array([13, 2, 7, 9], np.int32),
    }
    names = ["keys", "values"]
    ports = [("query", FLOAT, [rows, 1, dim]), ("keys", kind, memory), ("values", kind, memory)]
    ports.append(("lengths", INT32, [rows]))
    outputs = [("found", FLOAT, [rows, 1, dim])]
    damaging = ["query"]
    if is_int8:
        for name in ("key_step", "value_step"):
            feeds[name] = random.random((rows, 1, dim)).astype(np.float32)
            ports.append((name, FLOAT, [rows, 1, dim]))
            damaging.append(name)
        outputs += [(f"next_{name}", INT8, memory) for name in names]
    text = INT8_CROSS_ATTENTION if is_int8 else CROSS_ATTENTION
    no_keys = {"no_keys": np.array([0, kv_heads * head_dim])}
    sizes: dict[str, Any] = {
        "num_heads": heads,
        "kv_num_heads": kv_heads,
        "scale": 0.2,
        "softcap": 0.0,
    }
    run = native(model_of(text, ports, outputs, no_keys, **sizes))
    expected = run(feeds)[0]
    others = np.arange(rows) != BAD_ROW
    for name in damaging:
        for value in (np.nan, np.inf):
            damaged = {**feeds, name: feeds[name].copy()}
            damaged[name][BAD_ROW] = value
            actual = run(damaged)[0]
            assert not np.isfinite(actual[BAD_ROW]).any()
            assert np.array_equal(actual[others], expected[others])

    text = weights_of_source(kv_heads, heads // kv_heads, head_dim, dtype.__name__)
    weights = native(
        model_of(text, [*ports[:2], ports[3]], [("weights", FLOAT, [rows, heads, source])], **sizes)
    )
    feeds = {name: feeds[name] for name in ("query", "keys", "lengths")}
    [expected] = weights(feeds)
    feeds["query"] = feeds["query"].copy()
    feeds["query"][BAD_ROW] = np.nan
    [actual] = weights(feeds)
    assert np.isnan(actual[BAD_ROW, :, : feeds["lengths"][BAD_ROW]]).all()
    assert np.array_equal(actual[others], expected[others])


@pytest.mark.parametrize("lengths", [LENGTHS, PACKED_LENGTHS])
def test_attention_of_encoders(lengths: Array) -> None:
    run = native(attention(*SIZES, num_biases=0))
    feeds = attention_inputs(lengths, *SIZES, num_biases=0)
    [expected] = run(feeds)
    first, last = np.cumsum(lengths)[BAD_ROW : BAD_ROW + 2]
    dim = SIZES[0] * SIZES[2]
    feeds["qkv"][first + 1, dim : dim + SIZES[2]] = np.nan  # the keys of the first three heads
    [actual] = run(feeds)
    assert np.isnan(actual[first:last, : 3 * SIZES[2]]).all()
    others = np.ones(len(actual), bool)
    others[first:last] = False
    assert np.array_equal(actual[others], expected[others])


def test_a_bias_that_is_none_masks_nothing() -> None:
    run = native(attention(*SIZES, num_biases=1))
    lengths = np.array([12], np.int32)
    feeds = attention_inputs(lengths, *SIZES, num_biases=1)
    feeds["bias"][..., 0] = np.nan
    [actual] = run(feeds)
    assert np.isnan(actual).all()


@pytest.mark.parametrize("cell", CELLS)
def test_cells(cell: str) -> None:
    """NaN in all inputs of a row stays NaN in all of its outputs."""
    run, dim = native(cell_model(cell)), 40
    feeds = cell_inputs(cell, 5, dim)
    expected = run(feeds)
    for x in feeds.values():
        x[BAD_ROW] = np.nan
    others = np.arange(5) != BAD_ROW
    for actual, before in zip(run(feeds), expected, strict=True):
        assert np.isnan(actual[BAD_ROW]).all()
        assert np.array_equal(actual[others], before[others])


@pytest.mark.parametrize("is_additive", [False, True])
def test_attention_to_states(is_additive: bool) -> None:
    random, rows, source, dim = np.random.default_rng(1), 4, 9, 24
    ports = [
        ("query", FLOAT, [rows, dim]),
        ("keys", FLOAT, [rows, source, dim]),
        ("values", FLOAT, [rows, source, dim]),
        ("lengths", INT32, [rows]),
    ]
    feeds: dict[str, Array] = {
        name: random.standard_normal(shape).astype(np.float32) for name, _, shape in ports[:3]
    }
    feeds["lengths"] = np.array([9, 2, 7, 5], np.int32)
    outputs = [("weights", FLOAT, [rows, source]), ("context", FLOAT, [rows, dim])]
    weights = {"score_weight": np.ones(dim, np.float32)} if is_additive else {}
    text = attention_to_states(dim, 0, is_additive)
    run = native(model_of(text, ports, outputs, weights, scale=1.0))
    expected = run(feeds)
    feeds["keys"][BAD_ROW, 3, 5] = np.nan
    others = np.arange(rows) != BAD_ROW
    actual = run(feeds)
    assert np.isnan(actual[0][BAD_ROW, :7]).all() and np.isnan(actual[1][BAD_ROW]).all()
    for after, before in zip(actual, expected, strict=True):
        assert np.array_equal(after[others], before[others])
