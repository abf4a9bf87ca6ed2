"""RWKV-7: the module equals the paper's equations, and any parts of a text equal the whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.architectures.rwkv7.config import RWKV7Config
from models.batch import LanguageBatch
from models.loading import build
from serving.bundle.manifest import Precision
from tests.export.graph.rounding import assert_errs_by_rounding
from tests.export.parity import examples_of, largest_error
from tests.tiny import tiny_bundle

Array = np.ndarray
SIZES: dict[str, Any] = {"vocab_size": 60, "d_model": 24, "num_layers": 3, "head_dim": 8}
SIZES |= {"ffn_dim": 20, "decay_rank": 5, "rate_rank": 4, "value_rank": 3, "gate_rank": 6}
NUM_TOKENS = 40


@pytest.fixture
def module():
    torch.manual_seed(0)
    module = build(RWKV7Config(**SIZES)).eval().double()
    with torch.no_grad():  # so that vectors, too, tell their elements apart
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


@torch.inference_mode()
def test_it_computes_the_equations(module) -> None:
    ids = torch.randint(3, 60, (2, NUM_TOKENS))
    weights = {name: value.numpy() for name, value in module.state_dict().items()}
    actual = module(LanguageBatch(ids, ids))
    for row in range(2):
        expected = Plain(module.config, weights).hidden(ids[row].tolist())
        np.testing.assert_allclose(actual[row], expected, rtol=1e-9, atol=1e-11)


class Plain:
    """The equations for one text, token by token and head by head."""

    def __init__(self, config: RWKV7Config, weights: dict[str, Array]) -> None:
        self.config, self.weights = config, weights

    def hidden(self, ids: list[int]) -> Array:
        x = self.norm(self.weights["embedding.weight"][ids], "embedding_norm")
        first = None
        for number in range(self.config.num_layers):
            name = f"layers.{number}"
            update, first = self.time(self.norm(x, f"{name}.time_norm"), f"{name}.time", first)
            x = x + update
            x = x + self.channels(self.norm(x, f"{name}.channels_norm"), f"{name}.channels")
        return self.norm(x, "norm")

    def time(self, x: Array, name: str, first: Array | None) -> tuple[Array, Array]:
        before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
        mix = self.weights[f"{name}.mix"]
        xr, xw, xk, xv, xa, xg = (x + (before - x) * share for share in mix)
        r, k, v = (
            self.linear(each, f"{name}.{part}")
            for each, part in ((xr, "receptance"), (xk, "key"), (xv, "value"))
        )
        if first is not None:
            v = v + (first - v) * sigmoid(self.low_rank(xv, f"{name}.value_share"))
        a = sigmoid(self.low_rank(xa, f"{name}.rate"))
        w = np.exp(-np.exp(-0.5) * sigmoid(self.low_rank(xw, f"{name}.decay", np.tanh)))
        g = self.low_rank(xg, f"{name}.gate", sigmoid)
        removal = k * self.weights[f"{name}.removal"]
        k = k * (1 + (a - 1) * self.weights[f"{name}.rate_share"])
        heads = [self.head(name, part, r, w, k, v, a, removal) for part in self.parts()]
        return self.linear(np.concatenate(heads, 1) * g, f"{name}.output"), (
            v if first is None else first
        )

    def parts(self) -> list[slice]:
        size = self.config.head_dim
        return [slice(start, start + size) for start in range(0, self.config.d_model, size)]

    def head(self, name: str, part: slice, *given: Array) -> Array:
        r, w, k, v, a, removal = (each[:, part] for each in given)
        size, actual = self.config.head_dim, []
        state = np.zeros((size, size))  # [value, key], as in the paper
        for t in range(len(r)):
            kappa = removal[t] / np.linalg.norm(removal[t])
            state = state @ (np.diag(w[t]) - np.outer(kappa, a[t] * kappa)) + np.outer(v[t], k[t])
            y = state @ r[t]
            y = (y - y.mean()) / np.sqrt(y.var() + self.config.norm_epsilon * size)
            y = y * self.weights[f"{name}.head_norm.weight"][part]
            y = y + self.weights[f"{name}.head_norm.bias"][part]
            actual.append(y + (r[t] * k[t] * self.weights[f"{name}.bonus"][part]).sum() * v[t])
        return np.stack(actual)

    def channels(self, x: Array, name: str) -> Array:
        before = np.concatenate([np.zeros_like(x[:1]), x[:-1]])
        mixed = x + (before - x) * self.weights[f"{name}.mix"]
        return self.linear(np.maximum(self.linear(mixed, f"{name}.key"), 0) ** 2, f"{name}.value")

    def norm(self, x: Array, name: str) -> Array:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(x.var(-1, keepdims=True) + self.config.norm_epsilon)
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def low_rank(self, x: Array, name: str, activation: Any = lambda x: x) -> Array:
        return self.linear(activation(self.linear(x, f"{name}.down")), f"{name}.up")


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@torch.inference_mode()
def test_parts_of_a_text_equal_the_whole(module) -> None:
    ids = torch.randint(3, 60, (3, NUM_TOKENS))
    whole = module(LanguageBatch(ids, ids))
    state, actual = module.empty_state(), []
    for part in ids.split([1, 1, 2, 30, 6], 1):
        hidden, state = module.read(part, state)
        actual.append(hidden)
    torch.testing.assert_close(torch.cat(actual, 1), whole)


def test_the_bundle_computes_what_the_module_does(tmp_path: Path) -> None:
    bundle = tiny_bundle("rwkv7", tmp_path, Precision.FP32)
    assert largest_error(bundle, tmp_path / "rwkv7", examples_of("rwkv7", num_steps=30)) < 2e-5


def test_int8_errs_by_rounding(tmp_path: Path) -> None:
    bundle = tiny_bundle("rwkv7", tmp_path, Precision.INT8)
    assert_errs_by_rounding(bundle, tmp_path / "rwkv7", examples_of("rwkv7"))
