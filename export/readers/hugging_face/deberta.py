"""Reads DeBERTa and DeBERTa v2 and v3 (He et al. 2021).

Scores have terms of contents and relative positions. The vectors of positions are products of a
layer's matrices and of one table that all layers share. They do not depend on a text, so they are
computed here, with the scales of the scores.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.options import WIDEST, Options
from export.readers.common.weights import ZEROS, Merged, Names, Shape, TensorReference, scale_by
from export.readers.hugging_face.encoder_families import BERT, EncoderFamily
from export.readers.hugging_face.encoder_heads import BERT_WORDS
from export.readers.hugging_face.encoders import read_encoder
from export.readers.hugging_face.folder import Folder
from models.checkpoint import TOKENIZER_FILE, Checkpoint
from models.safetensors import Array

FAMILY = EncoderFamily(
    "deberta.",
    BERT,
    head={"head.dense.0.linear": "pooler.dense", "head.labels": "classifier"},
    defaults={
        "pad_token_id": 0,
        "layer_norm_eps": 1e-7,
        "type_vocab_size": 0,
        "max_position_embeddings": 512,
        "max_relative_positions": -1,
    },
    has_types=True,
    words=BERT_WORDS,
)
ATTENTION = "deberta.encoder.layer.*.attention.self"
POOLERS = ("gelu", "relu", "tanh")


@dataclass(frozen=True)
class DisentangledScores:
    """The terms of scores: content to position (c2p), position to content (p2c), or both.

    max_distance: what the buckets of offsets reach; None: each has one offset.
    """

    dim: int
    num_heads: int
    terms: tuple[str, ...]
    num_buckets: int
    max_distance: int | None = None

    @property
    def shrinking(self) -> float:
        """The factor of scores, because their terms are added."""
        return 1 / math.sqrt(1 + len(self.terms))

    @property
    def head_size(self) -> int:
        return self.dim // max(self.num_heads, 1)

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(max(self.head_size, 1))

    @property
    def section(self) -> dict[str, Any]:
        return {
            "kind": "disentangled",
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "content_to_position": "c2p" in self.terms,
            "position_to_content": "p2c" in self.terms,
        }


def read_deberta(folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    folder.config.default_to(**FAMILY.defaults)
    scores = _scores(folder.config, _farthest(folder.config))
    folder.config.only("talking_head", False)
    table = _table(scores)
    keys = {**table, f"{ATTENTION}.pos_proj.weight": (scores.dim, scores.dim)}
    queries = {**table, **_linear(f"{ATTENTION}.pos_q_proj", scores.dim)}
    weights = tuple(f"layers.*.self_attention.{part}.weight" for part in ("query", "key", "value"))
    special_names: Names = {
        weights: TensorReference(
            f"{ATTENTION}.in_proj.weight", change=partial(_split_heads, scores=scores)
        ),
        "layers.*.self_attention.query.bias": TensorReference(
            f"{ATTENTION}.q_bias", change=scale_by(scores.shrinking)
        ),
        "layers.*.self_attention.key.bias": ZEROS,
        "layers.*.self_attention.value.bias": f"{ATTENTION}.v_bias",
    }
    return _read(folder, scores, {**special_names, **_positions(scores, keys, queries)})


def read_deberta_v2(folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    options = folder.config
    options.default_to(**FAMILY.defaults)
    farthest, buckets = _farthest(options), int(options.number("position_buckets", -1))
    scores = _scores(options, farthest)
    if buckets > 0:
        scores = replace(scores, num_buckets=buckets, max_distance=farthest)
    options.only("attention_head_size", scores.head_size)
    table, epsilon = _table(scores), None
    if "layer_norm" in _words(options.word("norm_rel_ebd", "none")):
        table |= {f"deberta.encoder.LayerNorm.{part}": (scores.dim,) for part in ("weight", "bias")}
        epsilon = options.positive("layer_norm_eps")
    shared = options.flag("share_att_key", False)
    key, query = ("key_proj", "query_proj") if shared else ("pos_key_proj", "pos_query_proj")
    keys, queries = (
        {**table, **_linear(f"{ATTENTION}.{name}", scores.dim)} for name in (key, query)
    )
    special_names: Names = {
        "layers.*.self_attention.query": TensorReference(
            f"{ATTENTION}.query_proj", change=scale_by(scores.shrinking)
        ),
        "layers.*.self_attention.key": f"{ATTENTION}.key_proj",
        "layers.*.self_attention.value": f"{ATTENTION}.value_proj",
    }
    convolution, names = _convolution(options, scores.dim)
    special_names = {**special_names, **_positions(scores, keys, queries, epsilon), **names}
    return _read(folder, scores, special_names, convolution)


def _convolution(options: Options, dim: int) -> tuple[dict[str, Any] | None, Names]:
    """Return our options and the names of the convolution beside the first layer, if it is there
    (v2 of the sizes xlarge and xxlarge).
    """
    size = options.integer("conv_kernel_size", 0, at_most=WIDEST)
    if not size:
        options.use("conv_act", "conv_groups")
        return None, {}
    if size % 2 == 0:
        options.refuse("conv_kernel_size", "must be odd")
    options.only("conv_groups", 1)
    options.only("conv_act", *POOLERS)
    theirs = "deberta.encoder.conv"
    names: Names = {
        "convolution.linear.weight": TensorReference(
            f"{theirs}.conv.weight", shape=(dim, dim, size), change=_side_by_side
        ),
        "convolution.linear.bias": f"{theirs}.conv.bias",
        "convolution.norm": f"{theirs}.LayerNorm",
    }
    return {"kernel_size": size, "activation": options.word("conv_act", "tanh")}, names


def _side_by_side(weight: Array) -> Array:
    """Return [out, kernel * in] of [out, in, kernel]."""
    return weight.transpose(0, 2, 1).reshape(len(weight), -1)


def _read(
    folder: Folder,
    scores: DisentangledScores,
    special_names: Names,
    convolution: dict[str, Any] | None = None,
) -> Checkpoint:
    options = folder.config
    for name in ("embedding_size", "pooler_hidden_size"):
        options.only(name, scores.dim)
    options.only("pooler_hidden_act", *POOLERS)
    options.use("legacy")  # of a head that is left out
    folder.tokenizer.use("split_by_punct", "vocab_type")
    if not (folder.path / TOKENIZER_FILE).is_file():
        folder.tokenizer.only("split_by_punct", False)
        folder.tokenizer.only("do_lower_case", False)
    has_positions = options.flag("position_biased_input", True)
    if not has_positions:  # older files have the table all the same
        folder.tensors.ignore(r"(deberta\.)?embeddings\.position_embeddings\.weight")
    family = replace(
        FAMILY,
        special_names=special_names,
        squashing=options.word("pooler_hidden_act", "gelu"),
        has_positions=has_positions,
        distances=lambda _: scores.section,
        convolution=convolution,
    )
    return read_encoder(family, folder)


def _farthest(options: Options) -> int:
    farthest = int(options.number("max_relative_positions"))
    return farthest if farthest > 0 else options.integer("max_position_embeddings")


def _scores(options: Options, num_buckets: int) -> DisentangledScores:
    if not options.flag("relative_attention", False):
        options.refuse("relative_attention", "must be true")
    kinds = options.get("pos_att_type", "")
    terms = _words(kinds) if isinstance(kinds, str) else options.words("pos_att_type")
    if sorted(terms) not in (["c2p"], ["p2c"], ["c2p", "p2c"]):
        options.refuse("pos_att_type", "must be c2p, p2c or both")
    dim, num_heads = (options.integer(name) for name in ("hidden_size", "num_attention_heads"))
    return DisentangledScores(dim, num_heads, tuple(terms), num_buckets)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.lower().split("|"))


def _table(scores: DisentangledScores) -> dict[str, Shape]:
    """Return the tensor of the vectors of offsets."""
    return {"deberta.encoder.rel_embeddings.weight": (2 * scores.num_buckets, scores.dim)}


def _linear(name: str, dim: int) -> dict[str, Shape]:
    return {f"{name}.weight": (dim, dim), f"{name}.bias": (dim,)}


def _positions(
    scores: DisentangledScores,
    keys: Mapping[str, Shape],
    queries: Mapping[str, Shape],
    epsilon: float | None = None,
) -> Names:
    """Name the vectors that queries meet, and those that keys meet, as products."""
    of_queries = scores.scale * scores.shrinking
    of = {"c2p": ("keys", keys, scores.scale), "p2c": ("queries", queries, of_queries)}
    return {
        f"layers.*.positions.{name}.weight": Merged(
            parts, partial(_project, factor=factor, epsilon=epsilon)
        )
        for name, parts, factor in (of[term] for term in scores.terms if term in of)
    }


def _project(table: Array, *parts: Array, factor: float, epsilon: float | None) -> Array:
    """Multiply the table by a matrix. epsilon: of the norm before it, whose weights come first."""
    if epsilon is not None:
        table = _normalise(table, epsilon) * parts[0] + parts[1]
        parts = parts[2:]
    product: Array = table @ parts[0].T + sum(parts[1:])
    return product * np.float32(factor)


def _normalise(x: Array, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(epsilon))


def _split_heads(weight: Array, scores: DisentangledScores) -> Array:
    """Put queries, keys and values of all heads one after the other, of heads with all three."""
    heads = weight.reshape(scores.num_heads, 3, -1, scores.dim).swapaxes(0, 1)
    factors = np.array([scores.shrinking, 1, 1], np.float32)[:, None, None, None]
    return (heads * factors).reshape(weight.shape)
