"""The graph of RWKV-7: states of fixed size that every token overwrites.

Everything but the recurrence is computed for all tokens of a prompt at once; the recurrence is a
loop over them. The states are in single precision everywhere: what a state loses in a step is lost
for good.
"""

import numpy as np

from export.graph.model import ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.basic import Layers
from export.layers.state_space import PRECISE, RealTokens, read_tokens
from export.layers.vocabulary import VocabularyGraph
from models.architectures.rwkv7.config import FASTEST_DECAY, RWKV7Config
from serving.bundle.manifest import Limits, Precision, StateKind, StateSpec

SHORTEST = 1e-12  # length that a key is divided by, as in torch


def build(config: RWKV7Config, weights: Weights, precision: Precision) -> ExportedModel:
    layers = Layers(GraphWriter("step"), weights, precision, in_blocks=True)
    words = VocabularyGraph(layers, config, (config.d_model, config.d_model), bias=None)
    inputs = read_tokens(layers.graph)
    dim, epsilon = config.d_model, config.norm_epsilon
    x = layers.layer_norm(words.embed(inputs.ids), "embedding_norm", dim, epsilon)
    states, first_value = list[StateSpec](), None
    for number in range(config.num_layers):
        layer = RWKV7Layer(config, layers, number)
        x, first_value = layer.build(x, inputs.tokens, first_value)
        states += layer.states
    x = layers.last_position(x, inputs.past_lengths, inputs.total_lengths)
    words.choose(layers.layer_norm(x, "norm", dim, epsilon))
    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    return ExportedModel((layers.graph,), tuple(states), limits)


class RWKV7Layer:
    """One layer. states: the last inputs of both mixings, and the heads' matrices."""

    def __init__(self, config: RWKV7Config, layers: Layers, number: int) -> None:
        self._config, self._layers, self._graph = config, layers, layers.graph
        self._name, heads = f"layers.{number}", (config.num_heads, config.head_dim)
        last, matrices = (config.d_model,), (*heads, config.head_dim)
        shapes: dict[str, tuple[int, ...]] = {"time": last, "channels": last, "matrices": matrices}
        self.states = [
            StateSpec(f"{name}.{number}", StateKind.REPLACE, shape, PRECISE)
            for name, shape in shapes.items()
        ]

    def build(self, x: Value, tokens: RealTokens, first_value: Value | None) -> tuple[Value, Value]:
        """Read x [batch, tokens, d_model] and the states. Return the output and the first layer's
        values, and write the next states.
        """
        dtype = self._layers.dtype
        update, first_value = self._mix_time(self._norm(x, "time_norm"), tokens, first_value)
        x = x + update.cast(dtype)
        read = self._norm(x, "channels_norm")
        mixed = read + self._shift(read, self.states[1], tokens) * self._weight("channels.mix")
        inner = self._linear(mixed, "channels.key", self._config.ffn_dim).relu()
        value = self._linear(inner * inner, "channels.value", in_dim=self._config.ffn_dim)
        return x + value.cast(dtype), first_value

    def _mix_time(
        self, x: Value, tokens: RealTokens, first_value: Value | None
    ) -> tuple[Value, Value]:
        before, linear = self._shift(x, self.states[0], tokens), self._linear
        shares = self._take("time.mix", 6, self._config.d_model)
        receptance, decaying, keyed, valued, rated, gated = (
            x + before * self._graph.weight(f"{self._name}.time.mix.{number}", share)
            for number, share in enumerate(shares)
        )
        r, k = linear(receptance, "time.receptance"), linear(keyed, "time.key")
        v = linear(valued, "time.value")
        if first_value is not None:
            share = self._low_rank(valued, "value_share", self._config.value_rank)
            v = v + (first_value - v) * share.sigmoid()
        rate = self._low_rank(rated, "rate", self._config.rate_rank).sigmoid()
        fading = self._low_rank(decaying, "decay", self._config.decay_rank, "tanh").sigmoid()
        decay = (fading * -FASTEST_DECAY * tokens.are_real).exp()
        removed = self._normalise_keys(k * self._weight("time.removal"))
        k = k * ((rate - 1) * self._weight("time.rate_share") + 1)
        changes = [decay, removed, rate, k]
        y = self._recur([self._heads(part) for part in (r, *changes, v)], tokens)
        likeness = self._sum_of_heads(r * k * self._weight("time.bonus"))
        y = self._normalise_heads(y) + self._join_heads(self._heads(v) * likeness.unsqueeze(3))
        gate = self._low_rank(gated, "gate", self._config.gate_rank, "sigmoid", bias=False)
        return linear(y * gate, "time.output"), v if first_value is None else first_value

    def _recur(self, parts: list[Value], tokens: RealTokens) -> Value:
        """Return y [batch, tokens, d_model] of r, decay, removed, rate, k and v [batch, tokens,
        heads, head_dim]. Padding changes no state: its decay is 1, and it removes and adds nothing.
        """
        graph, op = self._graph, self._graph.op
        are_real = tokens.are_real.unsqueeze(3)
        r, decay, removed, rate, k, v = parts
        inputs = [r, decay, removed, removed * rate * are_real, k * are_real, v]
        count = op.Shape(r, start=1, end=2)

        def write_iteration(number: Value, state: Value) -> list[Value]:
            r, decay, removed, at_rate, k, v = (op.Gather(part, number, axis=1) for part in inputs)
            removed_value = removed.unsqueeze(2) @ state  # [batch, heads, 1, V]
            state = state * decay.unsqueeze(3) - at_rate.unsqueeze(3) * removed_value
            state = state + k.unsqueeze(3) * v.unsqueeze(2)
            return [state, (r.unsqueeze(2) @ state).squeeze(2)]

        initial_state = [graph.state_input(self.states[2])]
        state, outputs = graph.loop(
            count, initial_state, PRECISE, write_iteration, num_scan_outputs=1
        )
        graph.next_state(self.states[2], state)
        return self._join_heads(outputs.transpose(1, 0, 2, 3))

    def _shift(self, x: Value, last: StateSpec, tokens: RealTokens) -> Value:
        """Return how the input before each of x [batch, tokens, d_model] differs from it, and write
        the last real one as the next state.
        """
        graph = self._graph
        joined = graph.op.Concat(graph.state_input(last).unsqueeze(1), x, axis=1)
        graph.next_state(last, graph.op.GatherND(joined, tokens.ends, batch_dims=1))
        return joined[:, :-1] - x

    def _norm(self, x: Value, name: str) -> Value:
        sizes = self._config.d_model, self._config.norm_epsilon
        return self._layers.layer_norm(x, f"{self._name}.{name}", *sizes).cast(PRECISE)

    def _normalise_heads(self, y: Value) -> Value:
        config, op = self._config, self._graph.op
        ones = self._graph.weight("ones", np.ones(config.head_dim, np.float32))
        normed = op.LayerNormalization(self._heads(y), ones, axis=-1, epsilon=config.head_epsilon)
        weight, bias = (self._weight(f"time.head_norm.{part}") for part in ("weight", "bias"))
        return self._join_heads(normed) * weight + bias

    def _normalise_keys(self, k: Value) -> Value:
        """Return k with heads of length 1."""
        length = self._graph.op.Sqrt(self._sum_of_heads(k * k)).maximum(SHORTEST)
        return self._join_heads(self._heads(k) / length.unsqueeze(3))

    def _sum_of_heads(self, x: Value) -> Value:
        """Return the sums [batch, tokens, heads] of x [batch, tokens, d_model]."""
        split, size = self._heads(x), self._config.head_dim
        return self._layers.dot(split, self._graph.weight("ones", np.ones(size, np.float32)), size)

    def _linear(
        self,
        x: Value,
        name: str,
        out_dim: int | None = None,
        *,
        in_dim: int | None = None,
        bias: bool = False,
    ) -> Value:
        """Apply a linear layer, between vectors of d_model by default; in single precision."""
        dim, names = self._config.d_model, [f"{self._name}.{name}"]
        input, sizes = x.cast(self._layers.dtype), [out_dim or dim]
        return self._layers.linear(input, names, in_dim or dim, sizes, bias=bias).cast(PRECISE)

    def _low_rank(
        self, x: Value, name: str, rank: int, activation: str = "", *, bias: bool = True
    ) -> Value:
        low = self._linear(x, f"time.{name}.down", rank)
        low = getattr(low, activation)() if activation else low
        return self._linear(low, f"time.{name}.up", in_dim=rank, bias=bias)

    def _heads(self, x: Value) -> Value:
        return x.reshape(0, 0, self._config.num_heads, self._config.head_dim)

    def _join_heads(self, x: Value) -> Value:
        return x.reshape(0, 0, self._config.d_model)

    def _take(self, name: str, *shape: int) -> np.ndarray:
        return self._layers.weights.take(f"{self._name}.{name}", *shape)

    def _weight(self, name: str) -> Value:
        return self._graph.weight(f"{self._name}.{name}", self._take(name, self._config.d_model))
