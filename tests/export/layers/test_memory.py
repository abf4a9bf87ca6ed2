"""Keys and values of the source in int8: rounded once, and a row's own in any company."""

import numpy as np
import onnx_ir as ir
import pytest

from export.graph.model import ON_CPU
from export.graph.quantise import MAX_QUANTISED
from export.graph.writer import GraphWriter
from export.layers.attention import AttentionSizes, SourceTokens
from export.layers.basic import head_layout
from export.layers.memory import FloatMemory, Int8Memory, SourceMemory
from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_session

LENGTHS = np.array([5, 9, 1], np.int32)


def heads_of(num_heads: int, num_kv_heads: int) -> AttentionSizes:
    return AttentionSizes(num_heads, num_kv_heads, head_layout(16), ON_CPU)


def run(graph: GraphWriter, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = open_session(ir.to_proto(graph.model).SerializeToString(), EngineConfig(threads=1))
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, feeds)), strict=True))


def written(memory: SourceMemory, keys: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    graph, dim = GraphWriter("encode"), 2 * keys.shape[-1]
    ids = graph.input("ids", "int64", ("source",))
    tokens = SourceTokens(ids, graph.input("lengths", "int32", ()), ON_CPU)
    packed = graph.input("keys_values", "float32", ("tokens", dim), per_row=False)
    memory.write(graph, tokens, packed)
    batch, source, _ = keys.shape
    lengths = LENGTHS[:batch]
    is_real = np.arange(source) < lengths[:, None]
    keys_values = np.concatenate([keys, values], axis=-1)[is_real]
    no_ids = np.zeros((batch, source), np.int64)
    return run(graph, {"ids": no_ids, "lengths": lengths, "keys_values": keys_values})


def attended(
    memory: SourceMemory, states: dict[str, np.ndarray], query: np.ndarray
) -> dict[str, np.ndarray]:
    graph = GraphWriter("step")
    query_input = graph.input("query", "float32", query.shape[1:])
    lengths = graph.input("lengths", "int32", ())
    read = memory.read(graph)
    weights = read.weights(query_input, lengths)
    graph.output("weights", weights, "float32", (memory.heads.num_heads, "source"))
    graph.output("found", read.attend(query_input, lengths), "float32", query.shape[1:])
    return run(graph, {"query": query, "lengths": LENGTHS[: len(query)], **states})


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_int8_is_as_far_off_as_its_levels(num_kv_heads: int) -> None:
    """Expect it to read what floats give that were rounded to the same levels."""
    heads, random = heads_of(4, num_kv_heads), np.random.default_rng(0)
    shape = (3, 12, heads.kv_dim)
    keys, values = random.standard_normal((2, *shape), np.float32)
    keys *= 10.0 ** random.uniform(-2, 1, heads.kv_dim).astype(np.float32)
    query = random.standard_normal((3, 1, heads.query_dim)).astype(np.float32) / 3
    states = written(Int8Memory(heads, 0), keys, values)
    actual = attended(Int8Memory(heads, 0), states, query)
    rounded = [
        (states[f"cross_{part}.0"].swapaxes(1, 2).reshape(shape) * states[f"cross_{part}_step.0"])
        for part in ("key", "value")
    ]
    for exact, each in zip((keys, values), rounded, strict=True):
        for row, length in enumerate(LENGTHS):
            largest = np.abs(exact[row, :length]).max(axis=0)
            off = np.abs(exact[row, :length] - each[row, :length])
            assert (off <= largest / MAX_QUANTISED * 0.501).all()
    floats = FloatMemory(heads, 0)
    expected = attended(floats, written(floats, *rounded), query)
    for name in ("weights", "found"):
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-4, atol=1e-4)
    for name in ("cross_key.0", "cross_value.0"):
        for row, length in enumerate(LENGTHS):
            unchanged = states[name][row, :, :length]
            assert (actual[f"{name}.next"][row, :, :length] == unchanged).all()


def test_channels_of_zeros_find_zero() -> None:
    heads = heads_of(2, 2)
    nothing = np.zeros((2, 12, heads.kv_dim), np.float32)
    states = written(Int8Memory(heads, 0), nothing, nothing)
    query = np.ones((2, 1, heads.query_dim), np.float32)
    actual = attended(Int8Memory(heads, 0), states, query)
    assert (actual["found"] == 0).all()
    within = np.arange(12) < LENGTHS[:2, None, None]
    np.testing.assert_allclose(actual["weights"], np.tile(within / LENGTHS[:2, None, None], (2, 1)))
