"""Language models of one stack: what their families' readers share, and all of them by name.

A family says how its `config.json` reads as a configuration of ours, and which tensor is which
weight. Neither needs a folder: GGUF files become the same names.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from export.readers.hugging_face.options import MOST_LAYERS, Options
from export.readers.hugging_face.tensors import Source, Tensors, then
from models.arrays import Array
from models.configs.registry import AnyConfig, parse_config

ACTIVATIONS = {  # theirs -> ours
    "silu": "swish",
    "swish": "swish",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


class Family(NamedTuple):
    """configure: the values of our configuration, from `config.json`. place: our weights, each from
    a tensor of theirs; it is given `config.json`, our configuration and the tensors.
    """

    configure: Callable[[Options], dict[str, Any]]
    place: Callable[[Options, Any, Tensors], dict[str, Source]]


class Placement:
    """Weights of ours in the making, each from a tensor of theirs."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.weights: dict[str, Source] = {}

    def take(self, ours: str, theirs: str, *shape: int) -> None:
        self.weights[ours] = self.tensors.take(theirs, *shape)

    def linear(self, ours: str, theirs: str, out: int, into: int, *, bias: bool) -> None:
        self.take(f"{ours}.weight", f"{theirs}.weight", out, into)
        if bias:
            self.take(f"{ours}.bias", f"{theirs}.bias", out)

    def layer_norm(self, ours: str, theirs: str, size: int) -> None:
        self.take(f"{ours}.weight", f"{theirs}.weight", size)
        self.take(f"{ours}.bias", f"{theirs}.bias", size)

    def change(self, name: str, change: Callable[[Array], Array]) -> None:
        """Of a weight and its bias, as far as there are any."""
        for each in (f"{name}.weight", f"{name}.bias"):
            if each in self.weights:
                self.weights[each] = then(self.weights[each], change)


def times(factor: float) -> Callable[[Array], Array]:
    return lambda weight: weight * np.float32(factor)


def activation(config: Options, name: str, default: str | None = None) -> str:
    """Ours, of the name that stands there."""
    found = config.word(name, default)
    if found not in ACTIVATIONS:
        config.refuse(name)
    return ACTIVATIONS.get(found, "gelu")


def num_layers(config: Options, name: str = "num_hidden_layers") -> int:
    return config.integer(name, at_most=MOST_LAYERS)


def special_ids(config: Options) -> dict[str, int]:
    """Ours must be there: one that a model does not have is its end of text."""
    known = {name: config.ids(f"{name}_token_id") for name in ("eos", "bos", "pad")}
    known = {name: tuple(i for i in ids if i >= 0) for name, ids in known.items()}
    (end, *_) = (*known["eos"], *known["bos"], *known["pad"], 0)
    return {f"{name}_id": next(iter(ids), end) for name, ids in known.items()}


def read_decoder_only(
    families: Mapping[str, Family], config: Options, tensors: Tensors
) -> tuple[AnyConfig, dict[str, Source]]:
    """Our configuration and weights of a model of one of these families, `model_type`.

    What is wrong is noted in `config.problems`; raises ModelConfigError for values that no
    configuration of ours has. `tensors.finish()` is left to the caller.
    """
    family = families[config.word("model_type")]
    ours = parse_config(family.configure(config))
    return ours, family.place(config, ours, tensors)
