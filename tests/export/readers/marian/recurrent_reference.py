"""Marian's recurrent networks in plain numpy, in float64, one sentence at a time: what marian-dev's
src/models/s2s.h, src/rnn/cells.h, src/rnn/attention.h and src/layers/generic.h compute. As there,
a parameter comes into being where it is first used, under Marian's name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.export.readers.marian.reference import Array, sigmoid, softmax

OPTIONS: dict[str, Any] = {
    "type": "s2s",
    "dim-emb": 12,
    "dim-rnn": 16,
    "enc-type": "bidirectional",
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-depth": 1,
    "dec-cell": "gru",
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "dec-depth": 1,
    "skip": False,
    "layer-normalization": False,
    "right-left": False,
    "input-types": [],
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "tied-embeddings-all": False,
    "version": "v1.12.0",
}
State = tuple[Array, Array]  # output and cell


class RecurrentReference:
    def __init__(self, options: Mapping[str, Any], num_source: int, num_target: int) -> None:
        self.options = {**OPTIONS, **options}
        self.num_source, self.num_target = num_source, num_target
        self.weights: dict[str, Array] = {}
        self.random = np.random.default_rng(0)
        self.dim, self.emb = self.options["dim-rnn"], self.options["dim-emb"]
        self.has_norm = self.options["layer-normalization"]
        self.is_nematus = self.options["type"] == "nematus"
        self.logits([0, 0], [0])  # all parameters come into being

    def param(self, name: str, rows: int, columns: int, mean: float = 0.0) -> Array:
        if name not in self.weights:
            spread = 0.3 if rows == 1 else 1.5 / np.sqrt(columns if "emb" in name else rows)
            drawn = mean + self.random.standard_normal((rows, columns)) * spread
            self.weights[name] = drawn.astype(np.float32).astype(np.float64)
        return self.weights[name]

    def norm(self, x: Array, scale: Array, bias: Array | float, eps: float) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * scale + bias

    def logits(self, source: list[int], target: list[int]) -> Array:
        """After nothing, and after each token of the target: [1 + target, vocabulary]."""
        context = self.encode(source)
        start = self.dense("decoder_ff_state", [context.mean(0, keepdims=True)], self.dim)
        states: list[State] = [(start, start)] * self.options["dec-depth"]
        start_vector = np.zeros((1, self.emb))
        table = np.concatenate([self.embedding("decoder"), start_vector])  # its id is the last
        found, vectors = [], [start_vector, *(table[[i]] for i in target)]
        for vector in vectors:
            output, aligned, states = self.step(vector, context, states)
            hidden = self.dense("decoder_ff_logit_l1", [vector, output, aligned], self.emb)
            bias = self.param("decoder_ff_logit_l2_b", 1, self.num_target)
            found.append(hidden @ self.output() + bias)
        return np.concatenate(found)

    def is_on(self, *names: str) -> bool:
        return any(self.options[f"tied-embeddings{name}"] for name in names)

    def embedding(self, side: str) -> Array:
        count = self.num_source if side == "encoder" else self.num_target
        name = "Wemb" if self.is_on("-src", "-all") else f"{side}_Wemb"
        return self.param(name, count, self.emb)

    def output(self) -> Array:
        if self.is_on("", "-all"):
            return self.embedding("decoder").T
        return self.param("decoder_ff_logit_l2_W", self.emb, self.num_target)

    def dense(self, name: str, inputs: Sequence[Array], dim: int) -> Array:
        total: Any = 0.0
        for number, x in enumerate(inputs):
            num = str(number) if len(inputs) > 1 else ""
            w, b = (
                self.param(f"{name}_W{num}", x.shape[-1], dim),
                self.param(f"{name}_b{num}", 1, dim),
            )
            if self.has_norm and self.is_nematus:
                scale = self.param(f"{name}_ln_s{num}", 1, dim, 1)
                total = total + self.norm(
                    x @ w + b, scale, self.param(f"{name}_ln_b{num}", 1, dim), 1e-5
                )
            elif self.has_norm:
                total = total + self.norm(
                    x @ w, self.param(f"{name}_gamma{num}", 1, dim, 1), b, 1e-9
                )
            else:
                total = total + x @ w + b
        return np.tanh(total)

    def encode(self, source: list[int]) -> Array:
        kind, depth = self.options["enc-type"], self.options["enc-depth"]
        first = 1 if kind == "bi-unidirectional" else depth
        embedded = self.embedding("encoder")[source]
        sides = []
        for prefix, is_backward in (("encoder_bi", False), ("encoder_bi_r", True)):
            x = embedded
            for i in range(1, first + 1):
                turned = is_backward != (kind == "alternating" and i % 2 == 0)
                cells = [self.name_of(prefix, i, j) for j in self.transitions()]
                x = self.layer(x, cells, turned, i > 1)
            sides.append(x)
        x = np.concatenate(sides, -1)
        for i in range(first + 1, depth + 1):
            cells = [f"encoder_l{i}_cell{j}" for j in self.transitions()]
            x = self.layer(x, cells, False, i > first + 1)
        return x

    def transitions(self) -> range:
        return range(1, self.options["enc-cell-depth"] + 1)

    def name_of(self, prefix: str, i: int, j: int) -> str:
        name = f"{prefix}_l{i}" if i > 1 else prefix
        return f"{name}_cell{j}" if i > 1 or j > 1 else name

    def layer(self, x: Array, cells: list[str], is_backward: bool, may_skip: bool) -> Array:
        state: State = (np.zeros((1, self.dim)),) * 2
        outputs = []
        for vector in x[::-1] if is_backward else x:
            for j, name in enumerate(cells):
                state = self.cell(name, vector[None] if j == 0 else None, state, transition=j > 0)
            outputs.append(state[0][0])
        found = np.stack(outputs[::-1] if is_backward else outputs)
        return found + x if may_skip and self.options["skip"] else found

    def step(
        self, embedded: Array, context: Array, states: list[State]
    ) -> tuple[Array, Array, list[State]]:
        state = self.cell("decoder_cell1", embedded, states[0])
        aligned = self.attend(state[0], context)
        for i in range(2, self.options["dec-cell-base-depth"] + 1):
            read = aligned if i == 2 else None
            state = self.cell(f"decoder_cell{i}", read, state, transition=i > 2, final=True)
        x, following = state[0], [state]
        for i in range(2, self.options["dec-depth"] + 1):
            state = states[i - 1]
            for j in range(1, self.options["dec-cell-high-depth"] + 1):
                state = self.cell(f"decoder_l{i}_cell{j}", x if j == 1 else None, state)
            x = state[0] + x if self.options["skip"] else state[0]
            following.append(state)
        return x, aligned, following

    def attend(self, state: Array, context: Array) -> Array:
        dim = context.shape[-1]
        w, u = (
            self.param("decoder_W_comb_att", self.dim, dim),
            self.param("decoder_Wc_att", dim, dim),
        )
        v, b = self.param("decoder_U_att", dim, 1), self.param("decoder_b_att", 1, dim)
        keys, query = context @ u + b, state @ w
        if self.has_norm and self.is_nematus:
            keys = self.nematus_norm(keys, "decoder_Wc_att")
            query = self.nematus_norm(query, "decoder_W_comb_att")
        elif self.has_norm:
            keys = self.norm(context @ u, self.param("decoder_att_gamma1", 1, dim, 1), b, 1e-9)
            query = self.norm(query, self.param("decoder_att_gamma2", 1, dim, 1), 0, 1e-9)
        weights = softmax((np.tanh(keys + query) @ v)[:, 0])
        return weights[None] @ context

    def nematus_norm(self, x: Array, name: str) -> Array:
        dim = x.shape[-1]
        scale, bias = self.param(f"{name}_lns", 1, dim, 1), self.param(f"{name}_lnb", 1, dim)
        return self.norm(x, scale, bias, 1e-5)

    def cell(
        self,
        name: str,
        x: Array | None,
        state: State,
        transition: bool = False,
        final: bool = False,
    ) -> State:
        kind = self.options["enc-cell" if name.startswith("encoder") else "dec-cell"]
        if kind == "gru-nematus" and self.has_norm:
            return self.gru_nematus(name, x, state, transition, final)
        sizes = {"gru": [2, 1], "gru-nematus": [2, 1], "lstm": [4], "tanh": [1]}[kind]
        ends = ["", "x"][: len(sizes)]

        def joined(part: str, rows: int) -> Array:
            named = zip(ends, sizes, strict=True)
            arrays = [self.param(f"{name}_{part}{end}", rows, n * self.dim) for end, n in named]
            return np.concatenate(arrays, -1)

        su, b = state[0] @ joined("U", self.dim), joined("b", 1)
        xw = np.zeros_like(su) if x is None else x @ joined("W", x.shape[-1])
        if self.has_norm:
            su = self.norm(su, self.param(f"{name}_gamma2", 1, su.shape[-1], 1), 0, 1e-9)
            if x is not None:
                xw = self.norm(xw, self.param(f"{name}_gamma1", 1, su.shape[-1], 1), 0, 1e-9)
        if kind == "tanh":
            return np.tanh(xw + su + b), state[1]
        if kind == "lstm":
            return self.lstm(xw + su + b, state)
        return self.gru(state, xw, su, b, final)

    def gru(self, state: State, xw: Array, su: Array, b: Array, final: bool) -> State:
        """GRUFastForward of src/tensors/cpu/tensor_operators.cpp."""
        (x_r, x_z, x_h), (s_r, s_z, s_h), (b_r, b_z, b_h) = (
            np.split(a, 3, -1) for a in (xw, su, b)
        )
        r, z = sigmoid(x_r + s_r + b_r), sigmoid(x_z + s_z + b_z)
        h = np.tanh(x_h + (s_h + b_h) * r) if final else np.tanh(x_h + s_h * r + b_h)
        return (1 - z) * h + z * state[0], state[1]

    def lstm(self, gates: Array, state: State) -> State:
        """LSTMCellForward and LSTMOutputForward."""
        f, i, c, o = np.split(gates, 4, -1)
        cell = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(c)
        return sigmoid(o) * np.tanh(cell), cell

    def gru_nematus(
        self, name: str, x: Array | None, state: State, transition: bool, final: bool
    ) -> State:
        """GRUNematus::applyInput and applyState, with layer normalisation."""
        is_encoder, dim = name.startswith("encoder"), self.dim
        b, bx = self.param(f"{name}_b", 1, 2 * dim), self.param(f"{name}_bx", 1, dim)
        u, ux = self.param(f"{name}_U", dim, 2 * dim), self.param(f"{name}_Ux", dim, dim)
        kernel_bias = np.zeros((1, 3 * dim))
        if is_encoder and transition:
            kernel_bias = np.concatenate([np.zeros((1, 2 * dim)), bx], -1)
        s, sx = state[0] @ u, state[0] @ ux
        if not is_encoder and (final or transition):
            s, sx = s + b, sx + bx
        s, sx = self.nematus_norm(s, f"{name}_U"), self.nematus_norm(sx, f"{name}_Ux")
        if is_encoder and transition:
            s = s + b
        xw = np.zeros((1, 3 * dim))
        if x is not None:
            rows = x.shape[-1]
            w, wx = (
                x @ self.param(f"{name}_W", rows, 2 * dim),
                x @ self.param(f"{name}_Wx", rows, dim),
            )
            if not final:
                w, wx = w + b, wx + bx
            parts = self.nematus_norm(w, f"{name}_W"), self.nematus_norm(wx, f"{name}_Wx")
            xw = np.concatenate(parts, -1)
        return self.gru(state, xw, np.concatenate([s, sx], -1), kernel_bias, final)
