"""Bundles with random weights at any shape, made as fast as they can be written.

Names decide the values, so that bundles of one shape hold the same model in every precision.
"""

import contextlib
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from export.bundling.weight_file import WeightFile
from export.bundling.writer import BundleWriter
from export.graph.choice import with_select
from export.graph.model import Weights
from export.graph.writer import Array
from models.architectures.registry import graph_builder, parse_config
from models.checkpoint import TOKENIZER_FILE, Checkpoint
from models.conventions import own_conventions
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle
from serving.engine.config import Device
from tests.tiny import (
    CONFIGS,
    DECODERS,
    LIKE_BLOOM,
    LIKE_COMMAND,
    LIKE_GEMMA,
    LIKE_PHI,
    byte_tokenizer,
)

POOL_SIZE = 2**22
HALVES: dict[Device, list[Precision]] = {  # a CPU has no kernels for all that bf16 needs
    "cuda": [precision for precision in Precision if precision in ("fp16", "bf16")],
    "cpu": [Precision.FP16],
}
T5 = {
    "gated_ffn": True,
    "positions": {"kind": "relative"},
    "norm": {"kind": "rms"},
    "imported": {"biases": False},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in DECODERS),
    ("transformer", T5 | {"activation": "gelu_tanh", "head_dim": 24, "ffn_dim": 50}),
    (
        "transformer",
        {"num_kv_heads": 1, "positions": {"kind": "learned"}, "norm": {"place": "post"}},
    ),
    ("llama", LIKE_GEMMA),
    ("llama", {"window": 5}),
    ("gpt-neox", LIKE_PHI),
    ("gpt-neox", LIKE_BLOOM),
    ("gpt-neox", LIKE_COMMAND),
    ("luong", {"attention": {"kind": "local-p", "window": 9}, "score": "concat"}),
    (
        "luong",
        {"attention": {"kind": "local-m", "window": 2}, "score": "dot", "input_feeding": False},
    ),
    ("lstmn", {"fusion": "shallow"}),
    ("key-value-lm", {"window": 1, "parts": "attention"}),
    ("bahdanau", {"cell": "rnn", "readout": "tanh"}),
    ("bahdanau", {"cell": "lstm"}),
    ("sutskever", {"cell": "mut3"}),
]


class DrawnWeights(Weights):
    """Gives every weight that is asked for: numbers of a trained size, out of one pool."""

    def __init__(self, file: WeightFile) -> None:
        super().__init__({}, store=file.store)
        pool = np.random.default_rng(0).standard_normal(POOL_SIZE, np.float32)
        self._pool = np.concatenate([pool, pool])

    def take(self, name: str, *shape: int) -> Array:
        size = int(np.prod(shape))
        start = crc32(name.encode()) % POOL_SIZE
        values = np.resize(self._pool[start : start + min(size, POOL_SIZE)], size).reshape(shape)
        values *= np.float32(0.1 if len(shape) == 1 else shape[-1] ** -0.5)
        if len(shape) == 1 and "norm" in name and name.endswith("weight"):
            values += np.float32(1)
        return values


def bundle_of(
    architecture: str, sizes: dict[str, Any], precision: Precision, folder: Path
) -> Bundle:
    """A bundle in a folder of its own inside `folder`."""
    config = parse_config({"architecture": architecture, **sizes})
    tokenizer = _tokenizer(config.vocab_size)
    files = {TOKENIZER_FILE: tokenizer.encode()}
    checkpoint = Checkpoint(folder / architecture, config, {}, own_conventions(config), files)
    target = folder / f"{architecture}-{precision}"
    target.mkdir(parents=True)
    with contextlib.closing(WeightFile(target)) as file:
        built = graph_builder(architecture)(config, DrawnWeights(file), precision)
        model = with_select(built, precision)
    writer = BundleWriter(checkpoint, model, precision, architecture)
    writer.write_files(target)
    return writer.write_manifest(target)


def tiny(architecture: str, changes: dict[str, Any], precision: Precision, folder: Path) -> Bundle:
    sizes = {"vocab_size": byte_tokenizer().get_vocab_size(), **CONFIGS[architecture], **changes}
    return bundle_of(architecture, sizes, precision, folder)


def label(architecture: str, changes: dict[str, Any]) -> str:
    """A family and what is unusual about it, in a few words."""
    told = [f"{key} {value}" for key, value in changes.items() if isinstance(value, str | int)]
    return f"{architecture} ({', '.join(told[:2])})" if told else architecture


def _tokenizer(vocab_size: int) -> str:
    """The bytes, and words that no text has, up to the model's vocabulary."""
    tokenizer = byte_tokenizer()
    missing = vocab_size - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"<word {i}>" for i in range(missing)])
    return str(tokenizer.to_str())
