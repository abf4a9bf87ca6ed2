"""Recurrent cells and encoder-decoders once more: one sentence at a time, in plain loops of numpy
and float64, from the papers' equations. Shares nothing with `models` but the weights' names.
"""

from typing import NamedTuple

import numpy as np

Array = np.ndarray
State = tuple[Array, ...]


class Weights(NamedTuple):
    """W x + b and U h + c, all gates' blocks below each other."""

    W: Array
    b: Array
    U: Array
    c: Array


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rnn(x: Array, state: State, weights: Weights) -> State:
    W, b, U, c = weights
    return (np.tanh(W @ x + b + U @ state[0] + c),)


def lstm(x: Array, state: State, weights: Weights) -> State:
    W, b, U, c = (np.split(each, 4) for each in weights)
    hidden, memory = state
    i, f, g, o = (W[k] @ x + b[k] + U[k] @ hidden + c[k] for k in range(4))
    memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(memory), memory


def gru(x: Array, state: State, weights: Weights) -> State:
    W, b, U, c = (np.split(each, 3) for each in weights)
    (h,) = state
    r = sigmoid(W[0] @ x + b[0] + U[0] @ h + c[0])
    z = sigmoid(W[1] @ x + b[1] + U[1] @ h + c[1])
    n = np.tanh(W[2] @ x + b[2] + r * (U[2] @ h + c[2]))
    return ((1 - z) * n + z * h,)


def gru_reset_before(x: Array, state: State, weights: Weights) -> State:
    W, b, U, c = (np.split(each, 3) for each in weights)
    (h,) = state
    r = sigmoid(W[0] @ x + b[0] + U[0] @ h + c[0])
    z = sigmoid(W[1] @ x + b[1] + U[1] @ h + c[1])
    n = np.tanh(W[2] @ x + b[2] + U[2] @ (r * h) + c[2])
    return ((1 - z) * n + z * h,)


def mut1(x: Array, state: State, weights: Weights) -> State:
    (W_r, W_z, W_x), (b_r, b_z, b_x) = np.split(weights.W, 3), np.split(weights.b, 3)
    (U_r, U_h), (c_r, c_h) = np.split(weights.U, 2), np.split(weights.c, 2)
    (h,) = state
    z = sigmoid(W_z @ x + b_z)
    r = sigmoid(W_r @ x + b_r + U_r @ h + c_r)
    return (np.tanh(U_h @ (r * h) + np.tanh(W_x @ x + b_x) + c_h) * z + h * (1 - z),)


def mut2(x: Array, state: State, weights: Weights) -> State:
    W, b, U, c = (np.split(each, 3) for each in weights)
    (h,) = state
    r = sigmoid(W[0] @ x + b[0] + U[0] @ h + c[0])
    z = sigmoid(W[1] @ x + b[1] + U[1] @ h + c[1])
    return (np.tanh(U[2] @ (r * h) + c[2] + W[2] @ x + b[2]) * z + h * (1 - z),)


def mut3(x: Array, state: State, weights: Weights) -> State:
    W, b, U, c = (np.split(each, 3) for each in weights)
    (h,) = state
    r = sigmoid(W[0] @ x + b[0] + U[0] @ h + c[0])
    z = sigmoid(W[1] @ x + b[1] + U[1] @ np.tanh(h) + c[1])
    return (np.tanh(U[2] @ (r * h) + c[2] + W[2] @ x + b[2]) * z + h * (1 - z),)


CELLS = {
    "rnn": rnn,
    "lstm": lstm,
    "gru": gru,
    "gru-reset-before": gru_reset_before,
    "mut1": mut1,
    "mut2": mut2,
    "mut3": mut3,
}


def begin(cell: str, hidden: Array) -> State:
    return (hidden, np.zeros_like(hidden)) if cell == "lstm" else (hidden,)


class Model:
    """A module's weights by name, and what all families do with them."""

    def __init__(self, config, arrays: dict[str, Array]) -> None:
        self.config, self.arrays = config, arrays
        self.cell = CELLS[config.cell]

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def embed(self, token: int, side: str) -> Array:
        tied = self.config.tied_embeddings
        table = self["embedding.weight" if tied else f"{side}_embedding.weight"]
        return table[token] * (self.config.embedding_scale or self.config.embedding_dim**0.5)

    def logits(self, readout: Array) -> Array:
        table = self["embedding.weight" if self.config.tied_embeddings else "output.weight"]
        return table @ readout + self["output_bias"]

    def layer(self, name: str, end: str) -> Weights:
        parts = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        return Weights(*(self[f"{name}.{part}_{end}"] for part in parts))

    def decoder(self) -> Weights:
        """Over [embedding; context]."""
        W = np.hstack([self["decoder.input.weight"], self["decoder.context.weight"]])
        return Weights(
            W,
            self["decoder.input.bias"],
            self["decoder.hidden.weight"],
            self["decoder.hidden.bias"],
        )

    def read(self, xs: list[Array], weights: Weights, state: State | None = None) -> list[State]:
        """The states after each of `xs`; they begin with zeros."""
        state = state or begin(self.config.cell, np.zeros(weights.U.shape[1]))
        states = []
        for x in xs:
            state = self.cell(x, state, weights)
            states.append(state)
        return states

    def sum_of_readout(self, hidden: Array, word: Array, context: Array) -> Array:
        total = self["readout.state.weight"] @ hidden + self["readout.state.bias"]
        total = total + self["readout.embedding.weight"] @ word
        return total + self["readout.context.weight"] @ context


def maxout(total: Array) -> Array:
    return np.array([max(total[i], total[i + 1]) for i in range(0, len(total), 2)])


def cho(model: Model, source: list[int], target: list[int]) -> Array:
    """Logits [target, vocabulary] (Cho et al. 2014, A.1)."""
    words = [model.embed(token, "source") for token in source]
    last = model.read(words, model.layer("encoder", "l0"))[-1][0]
    context = np.tanh(model["summary.weight"] @ last + model["summary.bias"])
    hidden = np.tanh(model["initial.weight"] @ context + model["initial.bias"])
    state, logits = begin(model.config.cell, hidden), []
    for token in target:
        word = model.embed(token, "target")
        state = model.cell(np.concatenate([word, context]), state, model.decoder())
        logits.append(model.logits(maxout(model.sum_of_readout(state[0], word, context))))
    return np.stack(logits)


def sutskever(model: Model, source: list[int], target: list[int]) -> Array:
    """Sutskever et al. 2014, sections 2 and 3.3."""
    order = source[::-1] if model.config.reversed_source else source
    xs = [model.embed(token, "source") for token in order]
    ys = [model.embed(token, "target") for token in target]
    for layer in range(model.config.num_layers):
        states = model.read(xs, model.layer("encoder", f"l{layer}"))
        xs = [state[0] for state in states]
        after = model.read(ys, model.layer("decoder", f"l{layer}"), states[-1])
        ys = [state[0] for state in after]
    return np.stack([model.logits(model["readout.weight"] @ y) for y in ys])


def bahdanau(model: Model, source: list[int], target: list[int]) -> Array:
    """Bahdanau et al. 2015, A.1.2 and A.2."""
    words = [model.embed(token, "source") for token in source]
    forward = model.read(words, model.layer("encoder", "l0"))
    backward = model.read(words[::-1], model.layer("encoder", "l0_reverse"))[::-1]
    memory = [np.concatenate([f[0], b[0]]) for f, b in zip(forward, backward, strict=True)]
    hidden = np.tanh(model["initial.weight"] @ backward[0][0] + model["initial.bias"])
    state, logits = begin(model.config.cell, hidden), []
    for token in target:
        word = model.embed(token, "target")
        context = attend(model, state[0], memory)
        state = model.cell(np.concatenate([word, context]), state, model.decoder())
        total = model.sum_of_readout(state[0], word, context)
        is_maxout = model.config.readout == "maxout"
        logits.append(model.logits(maxout(total) if is_maxout else np.tanh(total)))
    return np.stack(logits)


def attend(model: Model, hidden: Array, memory: list[Array]) -> Array:
    energies = []
    for annotation in memory:
        query = model["attention.query.weight"] @ hidden
        key = model["attention.key.weight"] @ annotation + model["attention.key.bias"]
        match model.config.score:
            case "additive":
                energies.append(model["attention.score.weight"][0] @ np.tanh(query + key))
            case "dot":
                energies.append(query @ key)
            case "scaled-dot":
                energies.append(query @ key / len(key) ** 0.5)
    if model.config.hard_attention:
        return memory[energies.index(max(energies))]
    weights = np.exp(energies) / np.exp(energies).sum()
    return sum(weights[j] * memory[j] for j in range(len(memory)))


FAMILIES = {"cho": cho, "sutskever": sutskever, "bahdanau": bahdanau}
