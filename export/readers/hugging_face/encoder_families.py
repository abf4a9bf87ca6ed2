"""The Hugging Face families of encoders: the names of their options and of their tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from export.readers.common.weights import Held, Names, Tensors

SIZES = {  # of BERT and most after it: theirs by ours
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
}
EMBEDDINGS: Names = {
    "embedding": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "types": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
}
FEED_FORWARD: Names = {
    "layers.*.feed_forward.up": "encoder.layer.*.intermediate.dense",
    "layers.*.feed_forward.down": "encoder.layer.*.output.dense",
    "layers.*.feed_forward_norm": "encoder.layer.*.output.LayerNorm",
}
BERT: Names = {
    **EMBEDDINGS,
    "layers.*.self_attention.query": "encoder.layer.*.attention.self.query",
    "layers.*.self_attention.key": "encoder.layer.*.attention.self.key",
    "layers.*.self_attention.value": "encoder.layer.*.attention.self.value",
    "layers.*.self_attention.output": "encoder.layer.*.attention.output.dense",
    "layers.*.self_attention_norm": "encoder.layer.*.attention.output.LayerNorm",
    **FEED_FORWARD,
}
MPNET: Names = {
    **EMBEDDINGS,
    "distances.weight": "encoder.relative_attention_bias.weight",
    "layers.*.self_attention.query": "encoder.layer.*.attention.attn.q",
    "layers.*.self_attention.key": "encoder.layer.*.attention.attn.k",
    "layers.*.self_attention.value": "encoder.layer.*.attention.attn.v",
    "layers.*.self_attention.output": "encoder.layer.*.attention.attn.o",
    "layers.*.self_attention_norm": "encoder.layer.*.attention.LayerNorm",
    **FEED_FORWARD,
}
DISTILBERT: Names = {
    **EMBEDDINGS,
    "layers.*.self_attention.query": "transformer.layer.*.attention.q_lin",
    "layers.*.self_attention.key": "transformer.layer.*.attention.k_lin",
    "layers.*.self_attention.value": "transformer.layer.*.attention.v_lin",
    "layers.*.self_attention.output": "transformer.layer.*.attention.out_lin",
    "layers.*.self_attention_norm": "transformer.layer.*.sa_layer_norm",
    "layers.*.feed_forward.up": "transformer.layer.*.ffn.lin1",
    "layers.*.feed_forward.down": "transformer.layer.*.ffn.lin2",
    "layers.*.feed_forward_norm": "transformer.layer.*.output_layer_norm",
}
ROBERTA_HEAD: Names = {
    "head.dense.0.linear": "classifier.dense",
    "head.labels": "classifier.out_proj",
}


@dataclass(frozen=True)
class EncoderFamily:
    """prefix: of tensors' names, which base models are saved without. head: names of a classifier's
    tensors. squashing: the activation of its dense layer.

    defaults: what files of these families need not say. activation: the name of that option.
    fixed: options that the family's code does not read, with what it computes instead.
    pads_positions: the table's first rows, up to that of the padding's id, are of no token.
    num_separators: how many stand between the texts of a pair.
    """

    prefix: str
    names: Names
    head: Names
    squashing: str = "tanh"
    sizes: Mapping[str, str] = field(default_factory=lambda: SIZES)
    activation: str = "hidden_act"
    defaults: Mapping[str, Any] = field(default_factory=lambda: {"pad_token_id": 0})
    fixed: Mapping[str, Any] = field(default_factory=dict)
    pads_positions: bool = False
    has_types: bool = False
    has_distances: bool = False
    num_separators: int = 1

    def table(self, tensors: Tensors) -> Names:
        """Return the file's names by ours. Older files have other names for norms."""
        first = f"{self.prefix}embeddings.LayerNorm.gamma"
        is_old = first in tensors or first.removeprefix(self.prefix) in tensors
        words = ("gamma", "beta") if is_old else ("weight", "bias")
        named = {ours: f"{self.prefix}{theirs}" for ours, theirs in self.names.items()}
        norms = {ours: Held(name, words) for ours, name in named.items() if ours.endswith("_norm")}
        return {**named, **norms, **self.head}


_AFTER_ROBERTA: dict[str, Any] = {
    "pads_positions": True,
    "num_separators": 2,
    "defaults": {"pad_token_id": 1},
    "head": ROBERTA_HEAD,
}
FAMILIES: Mapping[str, EncoderFamily] = {
    "bert": EncoderFamily(
        "bert.",
        BERT,
        head={"head.dense.0.linear": "bert.pooler.dense", "head.labels": "classifier"},
        has_types=True,
    ),
    "camembert": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
    "distilbert": EncoderFamily(
        "distilbert.",
        DISTILBERT,
        head={"head.dense.0.linear": "pre_classifier", "head.labels": "classifier"},
        squashing="relu",
        sizes={"d_model": "dim", "num_layers": "n_layers", "num_heads": "n_heads"}
        | {"ffn_dim": "hidden_dim"},
        activation="activation",
        fixed={"layer_norm_eps": 1e-12},
    ),
    "mpnet": EncoderFamily(
        "mpnet.", MPNET, has_distances=True, fixed={"pad_token_id": 1}, **_AFTER_ROBERTA
    ),
    "roberta": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
    "xlm-roberta": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
}
