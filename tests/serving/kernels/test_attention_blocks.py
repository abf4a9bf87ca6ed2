"""Attention over many blocks of keys: in parts of any size, on any number of threads, the bits of a
token stay the same, and they are near those of a plain loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import helper

from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_session
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import FLOAT, FLOAT16, INT32, Array, Run, model_of_nodes

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

TOLERANCE, FP16_TOLERANCE = 3e-6, 4e-3
LENGTH = 300  # more than two blocks of keys


@dataclass(frozen=True)
class Model:
    """A self-attention layer, and the inputs of one row of tokens."""

    heads: int
    kv_heads: int
    head_dim: int
    length: int = LENGTH
    window: int | None = None
    cap: float = 0.0
    has_bias: bool = False
    has_sinks: bool = False
    is_fp16: bool = False  # keys and values

    def open(self, threads: int = 1) -> Run:
        size, width = self.head_dim, (self.heads + 2 * self.kv_heads) * self.head_dim
        memory: list[Any] = ["rows", self.kv_heads, self.length, size]
        cached = FLOAT16 if self.is_fp16 else FLOAT
        inputs: list[Any] = [
            ("qkv", FLOAT, ["rows", "tokens", width]),
            ("past_key", cached, memory),
            ("past_value", cached, memory),
            ("total_lengths", INT32, ["rows"]),
            ("cos", FLOAT, [self.length, size // 2]),
            ("sin", FLOAT, [self.length, size // 2]),
        ]
        if self.has_bias:
            inputs.append(("bias", FLOAT, ["rows", self.heads, "tokens", self.length]))
        if self.has_sinks:
            inputs.append(("sinks", FLOAT, [self.heads]))
        names = {name for name, *_ in inputs}
        ports = ("qkv", "past_key", "past_value", "total_lengths", "", "cos", "sin", "bias")
        node = helper.make_node(
            "Fp16SelfAttention" if self.is_fp16 else "SelfAttention",
            [name if name in names else "" for name in (*ports, "sinks")],
            ["mixed", "key", "value"],
            domain="attendant",
            num_heads=self.heads,
            kv_num_heads=self.kv_heads,
            scale=size**-0.5,
            local_window_size=self.window or -1,
            softcap=self.cap,
        )
        outputs: list[Any] = [("mixed", FLOAT, ["rows", "tokens", self.heads * size])]
        outputs += [(name, cached, memory) for name in ("key", "value")]
        session = open_session(
            model_of_nodes([node], inputs, outputs), EngineConfig(threads=threads, device="cpu")
        )
        return lambda feeds: list(session.run(None, dict(feeds)))

    def tokens(self, rows: int = 1) -> Array:
        width = (self.heads + 2 * self.kv_heads) * self.head_dim
        return _normal(1, rows, self.length, width)

    def feeds(self) -> dict[str, Array]:
        """Return the inputs that belong to no token."""
        half = self.head_dim // 2
        angles = np.arange(self.length)[:, None] * 10000.0 ** (-np.arange(half) / max(half, 1))
        feeds = {"cos": np.cos(angles, dtype=np.float32), "sin": np.sin(angles, dtype=np.float32)}
        return {**feeds, "sinks": _normal(2, self.heads)} if self.has_sinks else feeds

    def bias(self) -> Array:
        return _normal(3, 1, self.heads, self.length, self.length)


def _normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def read(model: Model, run: Run, tokens: Array, parts: Sequence[int]) -> Array:
    """Return the mixed values of tokens [rows, length, width] that are read in parts."""
    rows, feeds = len(tokens), model.feeds()
    cached = np.float16 if model.is_fp16 else np.float32
    memory = np.zeros((rows, model.kv_heads, model.length, model.head_dim), cached)
    feeds |= {"past_key": memory, "past_value": memory}
    results, end = [], 0
    for number in parts:
        start, end = end, end + number
        feeds |= {"qkv": tokens[:, start:end], "total_lengths": np.full(rows, end, np.int32)}
        if model.has_bias:
            bias = model.bias()[:, :, start:end].repeat(rows, 0)
            feeds["bias"] = np.ascontiguousarray(bias)
        mixed, feeds["past_key"], feeds["past_value"] = run(feeds)
        results.append(mixed)
    return np.concatenate(results, axis=1)


def plain(model: Model, tokens: Array) -> Array:
    """Return the mixed values of one row [length, width] in double precision."""
    heads, kv_heads, size = model.heads, model.kv_heads, model.head_dim
    length, feeds = len(tokens), model.feeds()
    vectors = tokens.astype(np.float64).reshape(length, -1, size)
    half = size // 2
    first, second = vectors[..., :half].copy(), vectors[..., half : 2 * half].copy()
    cos, sin = feeds["cos"][:length, None], feeds["sin"][:length, None]
    rotated = vectors.copy()
    rotated[..., :half] = first * cos - second * sin
    rotated[..., half : 2 * half] = first * sin + second * cos
    mixed = np.zeros((length, heads, size))
    positions = np.arange(length)
    distances = positions[:, None] - positions
    is_masked = (distances < 0) | (distances >= (model.window or length))
    for head in range(heads):
        shared = heads + head * kv_heads // heads
        scores = rotated[:, head] @ rotated[:, shared].T * size**-0.5
        if model.cap:
            scores = model.cap * np.tanh(scores / model.cap)
        if model.has_bias:
            scores = scores + model.bias()[0, head, :length, :length]
        scores[is_masked] = -np.inf
        sink = feeds["sinks"][head] if model.has_sinks else -np.inf
        largest = np.maximum(scores.max(1), sink)
        weights = np.exp(scores - largest[:, None])
        weights /= (weights.sum(1) + np.exp(sink - largest))[:, None]
        mixed[:, head] = weights @ vectors[:, shared + kv_heads]
    return mixed.reshape(length, -1)


MODELS = {
    "a group of eight": Model(8, 1, 64),
    "a group of three, large heads": Model(6, 2, 128),
    "no groups, odd heads": Model(3, 3, 24),
    "heads smaller than a vector": Model(4, 2, 6),
    "a large group": Model(20, 1, 40),
    "more heads than are computed together": Model(130, 1, 8),
    "window": Model(8, 1, 64, window=150),
    "short window": Model(3, 3, 24, window=7),
    "cap and bias": Model(4, 2, 64, cap=3.0, has_bias=True),
    "fp16": Model(8, 1, 64, is_fp16=True),
    "fp16, odd heads": Model(3, 3, 22, is_fp16=True, window=140),
    "fp16, large group": Model(20, 1, 40, is_fp16=True, has_sinks=True),
    "all": Model(6, 1, 40, window=140, cap=5.0, has_bias=True, has_sinks=True),
}
PARTS = {
    "whole": [LENGTH],
    "like parts": [100, 100, 100],
    "unlike parts": [1, 2, 125, 130, 1, 4, 37],
    "few, then one by one": [290] + 10 * [1],
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_many_blocks_of_keys_are_those_of_a_plain_loop(model: Model) -> None:
    tokens = model.tokens()
    mixed = read(model, model.open(threads=2), tokens, [LENGTH])
    tolerance = FP16_TOLERANCE if model.is_fp16 else TOLERANCE
    assert np.abs(mixed[0] - plain(model, tokens[0])).max() < tolerance


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_token_has_the_same_bits_in_parts_of_any_size(model: Model) -> None:
    tokens, run = model.tokens(), model.open()
    whole = read(model, run, tokens, [LENGTH])
    for parts in PARTS.values():
        assert np.array_equal(read(model, run, tokens, parts), whole)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_token_has_the_same_bits_on_any_number_of_threads(model: Model) -> None:
    tokens = model.tokens()
    alone = read(model, model.open(), tokens, [290] + 10 * [1])
    for threads in (2, 5):
        run = model.open(threads)
        assert np.array_equal(read(model, run, tokens, [290] + 10 * [1]), alone)
        assert np.array_equal(read(model, run, tokens, [LENGTH]), alone)


def test_a_long_row_has_the_same_bits_alone_and_in_a_batch() -> None:
    """Alone its keys are divided over tasks, in a batch they are not."""
    model = Model(8, 2, 64)
    tokens, run = model.tokens(rows=20), model.open(threads=2)
    together = read(model, run, tokens, [299, 1])
    for row in (0, 7, 19):
        alone = read(model, run, tokens[row : row + 1], [299, 1])
        assert np.array_equal(alone[0], together[row])


def test_keys_and_values_are_rounded_to_the_nearest_of_fp16() -> None:
    model = Model(3, 3, 24, is_fp16=True)
    rounded = Model(3, 3, 24)
    tokens = model.tokens()
    cached = np.zeros((1, 3, LENGTH, 24), np.float16)
    feeds = model.feeds() | {"past_key": cached, "past_value": cached, "qkv": tokens}
    feeds["total_lengths"] = np.array([LENGTH], np.int32)
    mixed, keys, values = model.open()(feeds)
    exact = {name: cached.astype(np.float32) for name in ("past_key", "past_value")}
    _, exact_keys, exact_values = rounded.open()(feeds | exact)
    assert np.array_equal(keys, exact_keys.astype(np.float16))
    assert np.array_equal(values, exact_values.astype(np.float16))
    # The last token, over the same keys and values in floats.
    last = {"qkv": tokens[:, -1:].copy(), "past_key": keys, "past_value": values}
    last["qkv"][..., 3 * 24 * 2 :] = values[:, :, -1].reshape(1, 1, -1)
    in_floats = {name: value.astype(np.float32) for name, value in last.items()}
    [of_floats, *_] = rounded.open()(feeds | in_floats)
    assert np.abs(of_floats[0, 0] - mixed[0, -1]).max() < FP16_TOLERANCE / 4


@pytest.mark.parametrize("group", [1, 8])
def test_what_is_no_number_in_a_later_token_leaves_those_before_it(group: int) -> None:
    model = Model(group, 1, 64)
    tokens, run = model.tokens(), model.open()
    before = read(model, run, tokens, [LENGTH])
    tokens[:, 150, group * 64 :] = np.nan
    after = read(model, run, tokens, [LENGTH])
    assert np.array_equal(after[:, :150], before[:, :150])
    assert np.isnan(after[:, 150:]).all()
