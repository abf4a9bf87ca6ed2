"""The Transformers' equations for one example, in float64 and plain loops over heads and positions.

The independent computation that the torch modules are compared with: nothing is imported from them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray
Scored = Callable[[int, int, int], float]  # (head, query, key) -> added to the score


def _gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu_tanh": _gelu_tanh,
    "swish": lambda x: x / (1 + np.exp(-x)),
}


SLOPES = {3: (2**-4, 2**-8, 2**-2), 4: (2**-2, 2**-4, 2**-6, 2**-8)}  # of so many heads


class Plain(ABC):
    """Reads weights by state-dict name."""

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Give that of norms."""

    def __init__(self, config: Any, weights: dict[str, Array]) -> None:
        self.config, self.weights = config, weights

    def linear(self, x: Array, name: str) -> Array:
        y = x @ self.weights[f"{name}.weight"].T
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def layer_norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def rms_norm(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x**2).mean(-1, keepdims=True) + self.epsilon)
        return x / scale * self.weights[f"{name}.weight"]

    def attend(
        self,
        x: Array,
        memory: Array,
        name: str,
        num_kv_heads: int,
        added: Scored,
        place: Callable[[Array, int], Array] = lambda x, position: x,
    ) -> Array:
        """x [queries, d_model] attends to memory [keys, d_model]; -inf is added to forbid."""
        num_heads, dim = self.config.num_heads, self.config.head_size
        queries, keys, values = (
            self.linear(source, f"{name}.{part}").reshape(len(source), -1, dim)
            for source, part in ((x, "query"), (memory, "key"), (memory, "value"))
        )
        mixed = np.zeros((len(x), num_heads, dim))
        for head in range(num_heads):
            shared = head * num_kv_heads // num_heads
            for q in range(len(x)):
                query = place(queries[q, head], q)
                scores = [
                    place(keys[k, shared], k) @ query / math.sqrt(dim) + added(head, q, k)
                    for k in range(len(memory))
                ]
                likelihood = np.exp(np.array(scores) - max(scores))
                mixed[q, head] = likelihood / likelihood.sum() @ values[:, shared]
        return self.linear(mixed.reshape(len(x), -1), f"{name}.output")


class PlainTranslator(Plain):
    """The encoder-decoders."""

    @property
    def epsilon(self) -> float:
        return self.config.norm.epsilon

    def hidden(self, source: list[int], target: list[int]) -> Array:
        """Hidden states of all target positions: [target, d_model]."""
        memory = self._embed(source, "source", "encoder")
        for i in range(self.config.encoder_layers):
            name = f"encoder.layers.{i}"
            read = partial(self._read_source, layer=i)
            memory = self._add(memory, f"{name}.self_attention", read)
            memory = self._add(memory, f"{name}.feed_forward", self._feed_forward)
        memory = self._last_norm(memory, "encoder")
        x = self._embed(target, "target", "decoder")
        for i in range(self.config.decoder_layers):
            name = f"decoder.layers.{i}"
            if self.config.architecture == "transformer":
                read = partial(self._read_target, layer=i)
                x = self._add(x, f"{name}.self_attention", read)
            else:
                x = self._add(x, f"{name}.recurrence", self._recur)
            x = self._add(
                x, f"{name}.cross_attention", lambda y, name: self._attend(y, memory, name)
            )
            x = self._add(x, f"{name}.feed_forward", self._feed_forward)
        return self._last_norm(x, "decoder")

    def logits(self, hidden: Array) -> Array:
        name = "embedding" if self.config.tied_embeddings else "output"
        return hidden @ self.weights[f"{name}.weight"].T + self.weights.get("output_bias", 0)

    def _embed(self, ids: list[int], side: str, stack: str) -> Array:
        name = "embedding" if self.config.tied_embeddings else f"{side}_embedding"
        scale = self.config.imported.embedding_scale or math.sqrt(self.config.d_model)
        x = self._place(self.weights[f"{name}.weight"][ids] * scale, stack)
        return (
            self._norm(x, f"{stack}.embedding_norm") if self.config.imported.embedding_norm else x
        )

    def _place(self, x: Array, stack: str) -> Array:
        dim = self.config.d_model
        if self.config.positions.kind == "learned":
            return x + self.weights[f"{stack}.positions.weight"][: len(x)]
        if self.config.positions.kind == "affine":
            slope, offset = self.weights[f"{stack}.positions.weight"]
            longest = self.config.max_source_tokens
            assert longest == self.config.max_target_tokens
            return x + [slope * position / longest + offset for position in range(len(x))]
        if self.config.positions.kind == "sinusoidal":
            for position in range(len(x)):
                for i in range(dim):
                    angle = position / 10000 ** (i // 2 * 2 / dim)
                    x[position, i] += math.cos(angle) if i % 2 else math.sin(angle)
        return x

    def _norm(self, x: Array, name: str) -> Array:
        norm = self.rms_norm if self.config.norm.kind == "rms" else self.layer_norm
        return norm(x, name)

    def _add(self, x: Array, name: str, update: Callable[[Array, str], Array]) -> Array:
        if self.config.norm.place == "pre":
            return x + update(self._norm(x, f"{name}_norm"), name)
        return self._norm(x + update(x, name), f"{name}_norm")

    def _last_norm(self, x: Array, stack: str) -> Array:
        wanted = self.config.imported.final_norm
        if wanted is None:
            wanted = self.config.norm.place == "pre"
        return self._norm(x, f"{stack}.norm") if wanted else x

    def _read_source(self, x: Array, name: str, layer: int) -> Array:
        window = self.config.imported.encoder_window or math.inf

        def added(head: int, query: int, key: int) -> float:
            is_far = abs(key - query) > window
            return -math.inf if is_far else self._bias("encoder", layer, head, key - query)

        return self._attend(x, x, name, added)

    def _read_target(self, x: Array, name: str, layer: int) -> Array:
        def added(head: int, query: int, key: int) -> float:
            return -math.inf if key > query else self._bias("decoder", layer, head, key - query)

        return self._attend(x, x, name, added)

    def _attend(
        self, x: Array, memory: Array, name: str, added: Scored = lambda h, q, k: 0.0
    ) -> Array:
        num_kv_heads = self.config.num_kv_heads or self.config.num_heads
        return self.attend(x, memory, name, num_kv_heads, added)

    def _bias(self, stack: str, layer: int, head: int, offset: int) -> float:
        """T5's 32 buckets: single distances, then logarithmic ones up to 128; or slopes."""
        if self.config.positions.kind == "linear":
            return -SLOPES[self.config.num_heads][head] * abs(offset)
        if self.config.positions.kind != "relative":
            return 0.0
        size, farthest = self.config.positions.num_buckets, self.config.positions.max_distance
        ahead, size = (size // 2, size // 2) if stack == "encoder" else (0, size)
        distance, exact = abs(offset), size // 2
        bucket = distance
        if distance >= exact:
            growth = math.log(distance / exact) / math.log(farthest / exact)
            bucket = min(exact + math.floor(growth * exact), size - 1)
        bucket += ahead if offset > 0 else 0
        first = layer * self.config.num_heads if self.config.imported.layer_positions else 0
        return self.weights[f"{stack}.positions.weight"][bucket, first + head]

    def _recur(self, x: Array, name: str) -> Array:
        """Kim et al. 2019: f_t, c_t and o_t of the simpler simple recurrent unit."""
        cell, outputs = np.zeros(self.config.d_model), []
        for x_t in x:
            forget = 1 / (1 + np.exp(-self.linear(x_t, f"{name}.forget")))
            cell = forget * cell + (1 - forget) * self.linear(x_t, f"{name}.input")
            outputs.append(np.maximum(cell, 0))
        return np.array(outputs)

    def _feed_forward(self, x: Array, name: str) -> Array:
        up = self.linear(x, f"{name}.up")
        activate = ACTIVATIONS[self.config.activation]
        activated = activate(self.linear(x, f"{name}.gate")) * up if self.config.gated_ffn else None
        return self.linear(activate(up) if activated is None else activated, f"{name}.down")


class PlainLanguageModel(Plain):
    """GPT-2 and Llama."""

    @property
    def epsilon(self) -> float:
        return self.config.norm_epsilon

    def hidden(self, ids: list[int]) -> Array:
        """Hidden states of all positions: [length, d_model]."""
        is_gpt2 = self.config.architecture == "gpt2"
        norm = self.layer_norm if is_gpt2 else self.rms_norm
        read, feed = (
            (self._read, self._gelu) if is_gpt2 else (self._read_with_rotation, self._swiglu)
        )
        x = self.weights["embedding.weight"][ids]
        if is_gpt2:
            x = x + self.weights["positions.weight"][: len(ids)]
        for i in range(self.config.num_layers):
            x = x + read(norm(x, f"layers.{i}.attention_norm"), f"layers.{i}.attention")
            x = x + feed(norm(x, f"layers.{i}.feed_forward_norm"), f"layers.{i}.feed_forward")
        return norm(x, "norm")

    def _sees(self, head: int, query: int, key: int) -> float:
        first = 0 if self.config.window is None else query - self.config.window + 1
        return 0.0 if first <= key <= query else -math.inf

    def _read(self, x: Array, name: str) -> Array:
        return self.attend(x, x, name, self.config.num_heads, self._sees)

    def _read_with_rotation(self, x: Array, name: str) -> Array:
        return self.attend(x, x, name, self.config.num_kv_heads, self._sees, self._rotate)

    def _rotate(self, x: Array, position: int) -> Array:
        half, turned = len(x) // 2, np.empty_like(x)
        for i in range(half):
            angle = position * self.config.rope_theta ** (-i / half)
            pair = complex(x[i], x[i + half]) * complex(math.cos(angle), math.sin(angle))
            turned[i], turned[i + half] = pair.real, pair.imag
        return turned

    def _gelu(self, x: Array, name: str) -> Array:
        up = self.linear(x, f"{name}.up")
        inner = math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)
        return self.linear(up * (1 + np.tanh(inner)) / 2, f"{name}.down")

    def _swiglu(self, x: Array, name: str) -> Array:
        gate = self.linear(x, f"{name}.gate")
        return self.linear(
            gate / (1 + np.exp(-gate)) * self.linear(x, f"{name}.up"), f"{name}.down"
        )
