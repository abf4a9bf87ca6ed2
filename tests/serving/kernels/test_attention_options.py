"""RoPE, windows, caps, biases and sinks of the native self-attention, against
plain loops and ONNX Runtime's GroupQueryAttention.
"""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from serving.kernels.library import native_kernels
from tests.serving.kernels.models import Array
from tests.serving.kernels.operators import run_nodes

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

CAPACITY = 40
TOLERANCE = 3e-6
HEADS = [(4, 2, 16), (3, 3, 40), (8, 2, 64), (2, 1, 7), (2, 2, 256)]
INPUTS = ("rotary", "bias", "sinks")
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"rotary": True},
    "window": {"local_window_size": 5},
    "cap": {"softcap": 3.0},
    "bias": {"bias": True},
    "sinks": {"sinks": True},
    "all": {"rotary": True, "local_window_size": 9, "softcap": 5.0, "bias": True, "sinks": True},
}


def inputs_of(
    sizes: tuple[int, int, int],
    rows: int,
    tokens: int = 1,
    *,
    rotary: bool = False,
    bias: bool = False,
    sinks: bool = False,
) -> dict[str, Array]:
    heads, kv_heads, size = sizes
    random = np.random.default_rng(rows + size)

    def normal(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    lengths = random.integers(tokens, CAPACITY + 1, rows).astype(np.int32)
    lengths[:1] = CAPACITY
    lengths[1:2] = tokens
    feeds: dict[str, Array] = {
        "qkv": normal(rows, tokens, (heads + 2 * kv_heads) * size),
        "past_key": normal(rows, kv_heads, CAPACITY, size),
        "past_value": normal(rows, kv_heads, CAPACITY, size),
        "total_lengths": lengths,
    }
    if rotary:
        half = size // 2
        angles = np.arange(CAPACITY)[:, None] * 10000.0 ** (-np.arange(half) / half)
        feeds |= {"cos": np.cos(angles, dtype=np.float32), "sin": np.sin(angles, dtype=np.float32)}
    if bias:
        feeds["bias"] = normal(rows, heads, tokens, CAPACITY)
    if sinks:
        feeds["sinks"] = 3 * normal(heads)
    return feeds


def attributes_of(sizes: tuple[int, int, int], options: dict[str, Any]) -> dict[str, Any]:
    heads, kv_heads, size = sizes
    plain = {name: value for name, value in options.items() if name not in INPUTS}
    return {"num_heads": heads, "kv_num_heads": kv_heads, "scale": size**-0.5, **plain}


def own(
    sizes: tuple[int, int, int], feeds: dict[str, Array], options: dict[str, Any], threads: int = 1
) -> list[Array]:
    names = ["qkv", "past_key", "past_value", "total_lengths", "capacity", "cos", "sin", "bias"]
    inputs = [name if name in feeds else "" for name in [*names, "sinks"]]
    outputs = ["mixed", "key", "value"]
    attributes = attributes_of(sizes, options)
    node = helper.make_node("SelfAttention", inputs, outputs, domain="attendant", **attributes)
    return run_nodes([node], feeds, outputs, threads)


def operator(
    sizes: tuple[int, int, int], feeds: dict[str, Array], options: dict[str, Any]
) -> list[Array]:
    names = ["qkv", "", "", "past_key", "past_value", "last", "capacity", "cos", "sin", "", "bias"]
    names.append("sinks")
    last = {"last": feeds["total_lengths"] - 1, "capacity": np.array([CAPACITY], np.int32)}
    feeds = {name: value for name, value in feeds.items() if name != "total_lengths"} | last
    node = helper.make_node(
        "GroupQueryAttention",
        [name if name in feeds else "" for name in names],
        ["mixed", "key", "value"],
        domain="com.microsoft",
        do_rotary=int("cos" in feeds),
        **attributes_of(sizes, options),
    )
    return run_nodes([node], feeds, ["mixed", "key", "value"])


def plain(sizes: tuple[int, int, int], feeds: dict[str, Array], options: dict[str, Any]) -> Array:
    """Return mixed values in double precision."""
    heads, kv_heads, size = sizes
    rows, tokens, _ = feeds["qkv"].shape
    mixed = np.zeros((rows, tokens, heads, size))
    keys, values = (feeds[name].astype(np.float64) for name in ("past_key", "past_value"))
    for row, token in np.ndindex(rows, tokens):
        at = feeds["total_lengths"][row] - tokens + token
        each = feeds["qkv"][row, token].astype(np.float64).reshape(-1, size)
        query, key, value = np.split(each, [heads, heads + kv_heads])
        keys[row, :, at], values[row, :, at] = rotated(key, feeds, at), value
        start = max(0, at + 1 - options.get("local_window_size", CAPACITY))
        for head, vector in enumerate(rotated(query, feeds, at)):
            shared = head * kv_heads // heads
            scores = keys[row, shared, start : at + 1] @ vector * size**-0.5
            if cap := options.get("softcap"):
                scores = cap * np.tanh(scores / cap)
            if "bias" in feeds:
                scores += feeds["bias"][row, head, token, start : at + 1]
            sink = feeds["sinks"][head] if "sinks" in feeds else -np.inf
            exponentials = np.exp(scores - scores.max())
            weights = exponentials / (exponentials.sum() + np.exp(sink - scores.max()))
            mixed[row, token, head] = weights @ values[row, shared, start : at + 1]
    return mixed.reshape(rows, tokens, -1)


def rotated(vectors: Array, feeds: dict[str, Array], at: int) -> Array:
    if "cos" not in feeds:
        return vectors
    cos, sin = feeds["cos"][at], feeds["sin"][at]
    half = len(cos)
    first, second, rest = np.split(vectors, [half, 2 * half], axis=-1)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos, rest], axis=-1)


def flags(options: dict[str, Any]) -> dict[str, bool]:
    return {name: options.get(name, False) for name in INPUTS}


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("sizes", HEADS, ids=str)
def test_it_is_a_plain_loop(
    sizes: tuple[int, int, int], options: dict[str, Any], tokens: int
) -> None:
    for rows, threads in ((1, 1), (13, 2)):
        feeds = inputs_of(sizes, rows, tokens, **flags(options))
        mixed, _, _ = own(sizes, feeds, options, threads)
        assert np.abs(mixed - plain(sizes, feeds, options)).max() < TOLERANCE


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("sizes", [each for each in HEADS if each[2] % 8 == 0], ids=str)
def test_it_is_the_operator(sizes: tuple[int, int, int], options: dict[str, Any]) -> None:
    if sizes[2] % 16 and options.get("rotary"):
        pytest.skip("GroupQueryAttention rotates heads of multiples of 16 only")
    feeds = inputs_of(sizes, 9, **flags(options))
    actual, expected = own(sizes, feeds, options), operator(sizes, feeds, options)
    for row, length in enumerate(feeds["total_lengths"]):
        assert np.abs(actual[0][row] - expected[0][row]).max() < TOLERANCE
        for one, other in zip(actual[1:3], expected[1:], strict=True):
            assert np.abs(one[row, :, :length] - other[row, :, :length]).max() < 1e-6


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_alone(threads: int) -> None:
    options = OPTIONS["all"]
    feeds = inputs_of((8, 2, 40), 130, 2, **flags(options))
    together = own((8, 2, 40), feeds, options, threads)
    shared = ("cos", "sin", "sinks")
    for row in (0, 1, 77, 129):
        alone = {
            name: each if name in shared else each[row : row + 1] for name, each in feeds.items()
        }
        for one, all_rows in zip(own((8, 2, 40), alone, options), together, strict=True):
            assert np.array_equal(one[0], all_rows[row])


def test_wrong_tables_and_biases_are_errors() -> None:
    sizes = HEADS[0]
    feeds = inputs_of(sizes, 3, rotary=True, bias=True, sinks=True)
    for name, wrong, text in (
        ("cos", feeds["cos"][:-1], "cos and sin must be"),
        ("sin", feeds["sin"][:, :-1], "cos and sin must be"),
        ("bias", feeds["bias"][..., :-1], "bias must be"),
        ("bias", feeds["bias"][:2], "bias must be"),
        ("sinks", feeds["sinks"][1:], "sinks must be"),
        ("qkv", feeds["qkv"][..., 1:], "wrong shapes"),
        ("past_value", feeds["past_value"][:, :, 1:], "wrong shapes"),
        ("total_lengths", feeds["total_lengths"][1:], "wrong shapes"),
    ):
        with pytest.raises(Exception, match=text):
            own(sizes, {**feeds, name: np.ascontiguousarray(wrong)}, {})
    with pytest.raises(Exception, match="belong together"):
        own(sizes, {name: each for name, each in feeds.items() if name != "sin"}, {})


def test_cross_attention_gives_zeros_for_a_row_without_memory() -> None:
    heads, size, rows, source = 3, 24, 130, 19
    random = np.random.default_rng(0)
    memory = (rows, heads, source, size)
    shapes = {"query": (rows, 1, heads * size), "keys": memory, "values": memory}
    feeds = {name: random.standard_normal(each).astype(np.float32) for name, each in shapes.items()}
    feeds["lengths"] = random.integers(0, source + 1, rows).astype(np.int32)
    feeds["lengths"][:2] = 0, source
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": heads, "scale": 1.0}
    outputs = ["mixed"]
    node = helper.make_node(
        "CrossAttention", list(feeds), outputs, domain="attendant", **attributes
    )
    [mixed] = run_nodes([node], feeds, outputs, threads=2)
    scores = np.einsum("bhd,bhsd->bhs", feeds["query"].reshape(rows, heads, size), feeds["keys"])
    within = np.arange(source) < feeds["lengths"][:, None, None]
    exponentials = np.where(within, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    weights = exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-30)
    expected = np.einsum("bhs,bhsd->bhd", weights, feeds["values"]).reshape(mixed.shape)
    assert np.abs(mixed - expected).max() < 1e-5
    assert not mixed[0].any()
    [one] = run_nodes([node], {n: each[2:3] for n, each in feeds.items()}, outputs)
    assert np.array_equal(one[0], mixed[2])
