"""Multi-head attention with ONNX Runtime's GroupQueryAttention: ragged rows, no masks.

Each row attends over its own length only, whatever the buffers are padded to. Keys and values lie
in the engine's buffers; the step graph appends to them in place.
"""

from dataclasses import dataclass

from export.graph import GraphWriter, Value
from serving.bundle.manifest import LENGTH, SOURCE, StateKind, StateSpec


@dataclass(frozen=True)
class Heads:
    """Sizes of one attention layer. With ``rotary`` (cos, sin), RoPE is applied in the operator."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary: tuple[Value, Value] | None = None

    @property
    def query_dim(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.num_kv_heads * self.head_dim

    def key_value_states(
        self, name: str, kind: StateKind, layer: int, dtype: str
    ) -> list[StateSpec]:
        """States of the layer's keys and values: ``self_key.0``, ``self_value.0``."""
        axis = LENGTH if kind is StateKind.APPEND else SOURCE
        shape = (self.num_kv_heads, axis, self.head_dim)
        return [
            StateSpec(f"{name}_{part}.{layer}", kind, shape, dtype) for part in ("key", "value")
        ]


class StepAttention:
    """Attention in a step graph: ``ids`` [batch, tokens] come after ``past_lengths`` positions."""

    def __init__(self, graph: GraphWriter, ids: Value, past_lengths: Value) -> None:
        op = graph.op
        self._graph = graph
        num_new = op.Cast(op.Shape(ids, start=1), to=6)  # [1]
        # All rows of a prompt are taken as long as the longest: causal attention hides the
        # padding behind a row's end, and the next step overwrites it.
        self._last_positions = op.Add(past_lengths, op.Sub(num_new, graph.constant([1], "int32")))
        self._total = op.Add(op.ReduceMax(past_lengths, graph.ints(0), keepdims=1), num_new)

    def self_attention(
        self, qkv: Value, past: tuple[Value, Value], heads: Heads
    ) -> tuple[Value, Value, Value]:
        """qkv [batch, tokens, queries + keys + values] -> mixed values, next keys and values."""
        mixed, keys, values = self._graph.ms.GroupQueryAttention(
            qkv,
            None,
            None,
            *past,
            self._last_positions,
            self._total,
            *(heads.rotary or ()),
            **_sizes(heads),
            do_rotary=int(heads.rotary is not None),
            _outputs=3,
        )
        return mixed, keys, values


def cross_attention(
    graph: GraphWriter,
    query: Value,
    memory: tuple[Value, Value],
    source_lengths: Value,
    heads: Heads,
) -> Value:
    """query [batch, 1, query_dim] attends to encoder keys and values as to a past, with no new
    keys of its own. ONNX Runtime refuses several tokens in several rows here.
    """
    op = graph.op
    nothing = op.Slice(query, graph.ints(0), graph.ints(0), graph.ints(1))
    last_positions = op.Sub(source_lengths, graph.constant(1, "int32"))
    span = op.Cast(op.Shape(memory[0], start=2, end=3), to=6)
    return graph.ms.GroupQueryAttention(
        query, nothing, nothing, *memory, last_positions, span, **_sizes(heads)
    )


def encoder_attention(graph: GraphWriter, qkv: Value, lengths: Value, heads: Heads) -> Value:
    """Every position attends to all real positions of its row."""
    op = graph.op
    total = op.Cast(op.Shape(qkv, start=1, end=2), to=6)
    last_positions = op.Sub(lengths, graph.constant(1, "int32"))
    return graph.ms.GroupQueryAttention(
        qkv, None, None, None, None, last_positions, total, **_sizes(heads), causal=0
    )


def split_heads(graph: GraphWriter, x: Value, heads: Heads) -> Value:
    """Keys or values [batch, length, kv_dim] -> [batch, kv_heads, length, head_dim]."""
    split = graph.op.Reshape(x, graph.ints(0, 0, heads.num_kv_heads, heads.head_dim))
    return graph.op.Transpose(split, perm=[0, 2, 1, 3])


def _sizes(heads: Heads) -> dict[str, int]:
    return {"num_heads": heads.num_heads, "kv_num_heads": heads.num_kv_heads}
