"""Marian's Transformer in plain numpy, in float64, one sentence at a time: what
marian-dev's src/models/transformer.h computes, under its own names.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

Array = np.ndarray
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * sigmoid(1.702 * x),
}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    likelihood = np.exp(x - x.max(-1, keepdims=True))
    return likelihood / likelihood.sum(-1, keepdims=True)


class Reference:
    """alpha: what int8 models multiply inputs by before they round and clip them; None for
    arithmetic in floats. Marian clips at -127, bundles at -128, which is nearer to the truth.
    """

    def __init__(
        self, weights: Mapping[str, Array], options: Mapping[str, Any], alpha: float | None = None
    ) -> None:
        self.weights = {name: w.astype(np.float64) for name, w in weights.items()}
        self.options, self.alpha = options, alpha
        self.dim = options["dim-emb"]

    def times(self, x: Array, weight: str | Array) -> Array:
        """x [..., in] times a weight [in, out]."""
        if self.alpha is not None:
            x = np.clip(np.rint(x * self.alpha), -128, 127) / self.alpha
        return x @ (self.weights[weight] if isinstance(weight, str) else weight)

    def logits(self, source: list[int], target: list[int]) -> Array:
        """After nothing, and after each token of the target: [1 + target, vocabulary]."""
        memory = self.encode(source)
        states: list[dict[str, Array]] = [{} for _ in range(self.options["dec-depth"])]
        vectors = [np.zeros((1, self.dim)), *(self.embedding("decoder")[[i]] for i in target)]
        return np.concatenate(
            [self.step(vector, i, memory, states) for i, vector in enumerate(vectors)]
        )

    def encode(self, source: list[int]) -> Array:
        x = self.begin(self.embedding("encoder")[source], 0, "encoder")
        for layer in range(1, self.options["enc-depth"] + 1):
            name = f"encoder_l{layer}"
            x = self.around(x, partial(self.look_around, f"{name}_self"), f"{name}_self_Wo")
            x = self.feed_forward(x, name)
        return self.finish(x, "encoder")

    def step(
        self, embedded: Array, position: int, memory: Array, states: list[dict[str, Array]]
    ) -> Array:
        x = self.begin(embedded, position, "decoder")
        for layer, state in enumerate(states, 1):
            name = f"decoder_l{layer}"
            if self.options["transformer-decoder-autoreg"] == "rnn":
                recur = partial(self.recur, f"{name}_rnn", state=state)
                x = self.around(x, recur, f"{name}_rnn", post="_ffn")
            else:
                look_back = partial(self.look_back, f"{name}_self", state=state)
                x = self.around(x, look_back, f"{name}_self_Wo")
            read = partial(self.attend, f"{name}_context", memory=memory)
            x = self.around(x, read, f"{name}_context_Wo")
            x = self.feed_forward(x, name)
        x = self.finish(x, "decoder")
        return self.times(x, self.output().T) + self.weights.get("decoder_ff_logit_out_b", 0.0)

    def embedding(self, side: str) -> Array:
        own = f"{side}_Wemb"
        return self.weights[own if own in self.weights else "Wemb"]

    def output(self) -> Array:
        if "decoder_ff_logit_out_W" in self.weights:
            return self.weights["decoder_ff_logit_out_W"].T
        return self.embedding("decoder")

    def begin(self, embedded: Array, start: int, stack: str) -> Array:
        positions = np.arange(start, start + len(embedded))
        if "Wpos" in self.weights:
            table = self.weights["Wpos"]
            x = embedded + table[np.minimum(positions, len(table) - 1)]
        else:
            x = embedded * np.sqrt(self.dim) + self.sinusoids(positions)
        if "n" in self.options["transformer-postprocess-emb"]:
            x = self.norm(x, f"{stack}_emb_ln", "_pre")
        return x

    def sinusoids(self, positions: Array) -> Array:
        half = self.dim // 2
        angles = positions[:, None] * 10000.0 ** (-np.arange(half) / (half - 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], 1)

    def finish(self, x: Array, stack: str) -> Array:
        has_norm = "n" in self.options["transformer-postprocess-top"]
        return self.norm(x, f"{stack}_top_ln", "") if has_norm else x

    def around(self, x: Array, sublayer: Any, name: str, post: str = "") -> Array:
        if self.options["transformer-preprocess"] == "n":
            return x + sublayer(self.norm(x, f"{name}_ln", "_pre"))
        return self.norm(x + sublayer(x), f"{name}{post}_ln", "")

    def feed_forward(self, x: Array, layer: str) -> Array:
        w, name = self.weights, f"{layer}_ffn"
        activation = ACTIVATIONS[self.options["transformer-ffn-activation"]]

        def sublayer(y: Array) -> Array:
            hidden = activation(self.times(y, f"{name}_W1") + w[f"{name}_b1"])
            return self.times(hidden, f"{name}_W2") + w[f"{name}_b2"]

        return self.around(x, sublayer, f"{name}_ffn")

    def recur(self, name: str, x: Array, state: dict[str, Array]) -> Array:
        w = self.weights
        forget = sigmoid(self.times(x, f"{name}_Wf") + w[f"{name}_bf"])
        cell = forget * state.get("cell", 0.0) + (1 - forget) * self.times(x, f"{name}_W")
        state["cell"] = cell
        return np.maximum(cell, 0)

    def look_back(self, name: str, x: Array, state: dict[str, Array]) -> Array:
        state["seen"] = np.concatenate([state["seen"], x]) if "seen" in state else x
        return self.attend(name, x, state["seen"])

    def look_around(self, name: str, x: Array) -> Array:
        return self.attend(name, x, x)

    def attend(self, name: str, x: Array, memory: Array) -> Array:
        w = self.weights

        def heads(y: Array, letter: str) -> Array:
            projected = self.times(y, f"{name}_W{letter}") + w[f"{name}_b{letter}"]
            return projected.reshape(len(y), self.options["transformer-heads"], -1).swapaxes(0, 1)

        query, key, value = heads(x, "q"), heads(memory, "k"), heads(memory, "v")
        weights = softmax(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]))
        mixed = (weights @ value).swapaxes(0, 1).reshape(len(x), self.dim)
        return self.times(mixed, f"{name}_Wo") + w[f"{name}_bo"]

    def norm(self, x: Array, name: str, suffix: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return normal * self.weights[f"{name}_scale{suffix}"] + self.weights[f"{name}_bias{suffix}"]
