"""Decoder attention of the native kernels, against plain loops and ONNX Runtime's operators."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from export.graph.functions import (
    CROSS_ATTENTION,
    FP16_SELF_ATTENTION,
    INT8_CROSS_ATTENTION,
    SELF_ATTENTION,
    weights_of_source,
)
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import (
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    Array,
    Run,
    model_of,
    native,
    portable,
)

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

CAPACITY = 50
# heads, heads of keys and values, size of a head
HEADS = [(8, 8, 64), (4, 4, 8), (6, 2, 24), (9, 3, 64), (2, 2, 128), (4, 1, 40), (2, 2, 256)]
TOLERANCE = 2e-6


def self_attention(heads: int, kv_heads: int, size: int, *, is_fp16: bool = False) -> bytes:
    cached = FLOAT16 if is_fp16 else FLOAT
    memory: list[Any] = ["rows", kv_heads, CAPACITY, size]
    qkv: list[Any] = ["rows", "tokens", (heads + 2 * kv_heads) * size]
    inputs = [("qkv", FLOAT, qkv), ("past_key", cached, memory), ("past_value", cached, memory)]
    return model_of(
        FP16_SELF_ATTENTION if is_fp16 else SELF_ATTENTION,
        [*inputs, ("total_lengths", INT32, ["rows"])],
        [("mixed", FLOAT, ["rows", "tokens", heads * size])]
        + [(name, cached, memory) for name in ("key", "value")],
        {"capacity": np.array([CAPACITY], np.int32)},
        num_heads=heads,
        kv_num_heads=kv_heads,
        scale=size**-0.5,
        do_rotary=0,
        local_window_size=-1,
        softcap=0.0,
    )


def self_inputs(
    heads: int, kv_heads: int, size: int, rows: int, tokens: int = 1
) -> dict[str, Array]:
    random = np.random.default_rng(rows + tokens)
    memory = (rows, kv_heads, CAPACITY, size)
    shapes: dict[str, tuple[int, ...]] = {"qkv": (rows, tokens, (heads + 2 * kv_heads) * size)}
    shapes |= {"past_key": memory, "past_value": memory}
    feeds = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    lengths = random.integers(tokens, CAPACITY + 1, rows).astype(np.int32)
    lengths[:1] = CAPACITY
    lengths[1:2] = tokens
    return {**feeds, "total_lengths": lengths}


def attend(query: Array, keys: Array, values: Array, *, cap: float = 0.0) -> Array:
    """Attend in double precision: query [size], keys and values [length, size]."""
    scores = keys.astype(np.float64) @ query / np.sqrt(len(query))
    if cap:
        scores = cap * np.tanh(scores / cap)
    weights = np.exp(scores - scores.max())
    mixed: Array = weights @ values / weights.sum()
    return mixed


def plain_self_attention(heads: int, kv_heads: int, size: int, feeds: dict[str, Array]) -> Array:
    qkv, lengths = feeds["qkv"], feeds["total_lengths"]
    keys, values = feeds["past_key"].copy(), feeds["past_value"].copy()
    rows, tokens, _ = qkv.shape
    mixed = np.zeros((rows, tokens, heads, size))
    for row in range(rows):
        for token in range(tokens):
            at = lengths[row] - tokens + token
            query = qkv[row, token, : heads * size].reshape(heads, size)
            own = qkv[row, token, heads * size :].reshape(2, kv_heads, size)
            keys[row, :, at], values[row, :, at] = own
            for head in range(heads):
                memory = (each[row, head * kv_heads // heads, : at + 1] for each in (keys, values))
                mixed[row, token, head] = attend(query[head], *memory)
    return mixed.reshape(rows, tokens, heads * size)


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), HEADS)
def test_self_attention_is_that_of_a_plain_loop(
    heads: int, kv_heads: int, size: int, tokens: int
) -> None:
    run = native(self_attention(heads, kv_heads, size))
    for rows in (1, 2, 17):
        feeds = self_inputs(heads, kv_heads, size, rows, tokens)
        mixed, keys, values = run(feeds)
        expected = plain_self_attention(heads, kv_heads, size, feeds)
        assert np.abs(mixed - expected).max() < TOLERANCE
        for row, length in enumerate(feeds["total_lengths"]):
            own = feeds["qkv"][row, :, heads * size :].reshape(tokens, 2, kv_heads, size)
            for number, memory in enumerate((keys, values)):
                appended = memory[row, :, length - tokens : length].transpose(1, 0, 2)
                assert np.array_equal(appended, own[:, number])


def test_self_attention_is_that_of_the_operator() -> None:
    model = self_attention(6, 2, 24)
    feeds = self_inputs(6, 2, 24, 17)
    assert np.abs(native(model)(feeds)[0] - portable(model)(feeds)[0]).max() < TOLERANCE


def test_self_attention_over_fp16_is_that_of_the_operator_over_floats() -> None:
    model = self_attention(6, 2, 24, is_fp16=True)
    feeds = self_inputs(6, 2, 24, 17)
    for name in ("past_key", "past_value"):
        feeds[name] = feeds[name].astype(np.float16)
    actual, expected = native(model)(feeds), portable(model)(feeds)
    assert np.abs(actual[0] - expected[0]).max() < 2e-3  # the new key is rounded before or after
    for name, ours, theirs in zip(("key", "value"), actual[1:], expected[1:], strict=True):
        for row, length in enumerate(feeds["total_lengths"]):
            assert np.array_equal(ours[row, :, :length], theirs[row, :, :length]), name


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_and_tokens_have_the_same_bits_alone(threads: int) -> None:
    heads, kv_heads, size = 6, 2, 24
    run = native(self_attention(heads, kv_heads, size), threads)
    feeds = self_inputs(heads, kv_heads, size, 5, tokens=3)
    together = run(feeds)[0]
    for row in range(5):
        alone = {name: each[row : row + 1].copy() for name, each in feeds.items()}
        length = int(alone["total_lengths"][0])
        for token in range(3):
            one = {
                **alone,
                "qkv": feeds["qkv"][row : row + 1, token : token + 1],
                "total_lengths": np.array([length - 2 + token], np.int32),
            }
            mixed, alone["past_key"], alone["past_value"] = run(one)
            assert np.array_equal(mixed[0, 0], together[row, token])


def test_lengths_beyond_the_capacity_are_an_error() -> None:
    run = native(self_attention(4, 4, 8))
    feeds = self_inputs(4, 4, 8, 2)
    for length in (CAPACITY + 1, 0, -3):
        feeds["total_lengths"][1] = length
        with pytest.raises(Exception, match="a length exceeds the capacity"):
            run(feeds)


def cross_attention(heads: int, kv_heads: int, size: int, is_int8: bool, cap: float = 0.0) -> bytes:
    memory: list[Any] = ["rows", kv_heads, "source", size]
    query: list[Any] = ["rows", "tokens", heads * size]
    kind = INT8 if is_int8 else FLOAT
    step: list[Any] = ["rows", 1, heads * size]
    steps = [(name, FLOAT, step) for name in ("key_step", "value_step")] if is_int8 else []
    inputs = [("query", FLOAT, query), ("keys", kind, memory), ("values", kind, memory)]
    kept = [(name, kind, memory) for name in ("next_keys", "next_values")] if is_int8 else []
    return model_of(
        INT8_CROSS_ATTENTION if is_int8 else CROSS_ATTENTION,
        [*inputs, ("lengths", INT32, ["rows"]), *steps],
        [("found", FLOAT, query), *kept],
        {"no_keys": np.array([0, kv_heads * size])},
        num_heads=heads,
        kv_num_heads=kv_heads,
        scale=size**-0.5,
        softcap=cap,
    )


def cross_inputs(heads: int, kv_heads: int, size: int, is_int8: bool) -> dict[str, Array]:
    random = np.random.default_rng(size)
    rows, source = 7, 23
    memory, query = (rows, kv_heads, source, size), (rows, 1, heads * size)
    feeds: dict[str, Array] = {"query": random.standard_normal(query).astype(np.float32)}
    for name in ("keys", "values"):
        levels = random.integers(-127, 128, memory).astype(np.int8)
        feeds[name] = levels if is_int8 else (levels / np.float32(127))
    lengths = random.integers(1, source + 1, rows).astype(np.int32)
    lengths[0], lengths[1] = 1, source
    feeds["lengths"] = lengths
    for name in ("key_step", "value_step") if is_int8 else ():
        feeds[name] = (random.random(query) * 0.02).astype(np.float32)
    return feeds


@pytest.mark.parametrize("cap", [0.0, 0.8])
@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), HEADS)
def test_cross_attention_is_that_of_the_operator(
    heads: int, kv_heads: int, size: int, is_int8: bool, cap: float
) -> None:
    model = cross_attention(heads, kv_heads, size, is_int8, cap)
    feeds = cross_inputs(heads, kv_heads, size, is_int8)
    own, other = native(model)(feeds), portable(model)(feeds)
    assert np.abs(own[0] - other[0]).max() < TOLERANCE
    if is_int8:
        assert np.array_equal(own[1], feeds["keys"])
        assert np.array_equal(own[2], feeds["values"])


@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), HEADS)
def test_several_tokens_of_a_row_attend_to_its_source_as_each_alone(
    heads: int, kv_heads: int, size: int, is_int8: bool
) -> None:
    run = native(cross_attention(heads, kv_heads, size, is_int8), threads=2)
    feeds = cross_inputs(heads, kv_heads, size, is_int8)
    random, tokens = np.random.default_rng(1), 19  # more than the kernel takes at once
    query = random.standard_normal((7, tokens, heads * size)).astype(np.float32)
    together = run({**feeds, "query": query})[0]
    for token in range(tokens):
        alone = run({**feeds, "query": np.ascontiguousarray(query[:, token : token + 1])})[0]
        assert np.array_equal(alone[:, 0], together[:, token])


def source_weights(heads: int, kv_heads: int, size: int, is_int8: bool, cap: float = 0.0) -> bytes:
    sizes, kind = (kv_heads, heads // kv_heads, size), "int8" if is_int8 else "float32"
    return model_of(
        weights_of_source(*sizes, kind, is_capped=cap > 0),
        [
            ("query", FLOAT, ["rows", 1, heads * size]),
            ("keys", INT8 if is_int8 else FLOAT, ["rows", kv_heads, "source", size]),
            ("lengths", INT32, ["rows"]),
        ],
        [("weights", FLOAT, ["rows", heads, "source"])],
        num_heads=heads,
        kv_num_heads=kv_heads,
        scale=size**-0.5,
        softcap=cap,
    )


def weights_inputs(heads: int, kv_heads: int, size: int, is_int8: bool) -> dict[str, Array]:
    feeds = cross_inputs(heads, kv_heads, size, is_int8)
    scaled = feeds["query"] * feeds.get("key_step", np.float32(1))
    return {"query": scaled, "keys": feeds["keys"], "lengths": feeds["lengths"]}


@pytest.mark.parametrize("cap", [0.0, 0.8])
@pytest.mark.parametrize("run_by", [native, portable])
@pytest.mark.parametrize("is_int8", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), HEADS)
def test_weights_of_the_source_are_those_of_plain_loops(
    heads: int, kv_heads: int, size: int, is_int8: bool, run_by: Callable[[bytes], Run], cap: float
) -> None:
    feeds = weights_inputs(heads, kv_heads, size, is_int8)
    [weights] = run_by(source_weights(heads, kv_heads, size, is_int8, cap))(feeds)
    for row, length in enumerate(feeds["lengths"]):
        queries = feeds["query"][row].reshape(heads, size)
        for head in range(heads):
            keys = feeds["keys"][row, head * kv_heads // heads, :length]
            expected = attend(queries[head], keys, np.eye(length), cap=cap)
            assert np.abs(weights[row, head, :length] - expected).max() < TOLERANCE
        assert not weights[row, :, length:].any()


@pytest.mark.parametrize("is_int8", [False, True])
def test_weights_have_the_same_bits_alone_and_beside_longer_ones(is_int8: bool) -> None:
    run = native(source_weights(6, 2, 24, is_int8), threads=2)
    feeds = weights_inputs(6, 2, 24, is_int8)
    [together] = run(feeds)
    for row, length in enumerate(feeds["lengths"]):
        alone = {name: each[row : row + 1] for name, each in feeds.items()}
        alone["keys"] = np.ascontiguousarray(alone["keys"][:, :, :length])
        assert np.array_equal(run(alone)[0][0], together[row, :, :length])
    for name, wrong, text in (
        ("lengths", np.full(7, 24, np.int32), "a length exceeds the source"),
        ("keys", feeds["keys"][1:], "wrong shapes"),
    ):
        with pytest.raises(Exception, match=text):
            run({**feeds, name: np.ascontiguousarray(wrong)})


def _alone(run: Run, feeds: dict[str, Array], row: int) -> Array:
    return run({name: each[row : row + 1] for name, each in feeds.items()})[0][0]


def test_a_source_has_the_same_bits_alone_and_beside_longer_ones() -> None:
    run = native(cross_attention(6, 2, 24, is_int8=True))
    feeds = cross_inputs(6, 2, 24, is_int8=True)
    together = run(feeds)[0]
    for row in range(7):
        assert np.array_equal(_alone(run, feeds, row), together[row])
    for length in (-1, 24):
        feeds["lengths"][3] = length
        with pytest.raises(Exception, match="a length exceeds the source"):
            run(feeds)
