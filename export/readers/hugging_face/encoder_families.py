"""The Hugging Face families of encoders: the names of their options and of their tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from export.readers.common.options import Options
from export.readers.common.weights import Names, StoredTensors, TensorReference
from export.readers.hugging_face.encoder_heads import (
    BERT_WORDS,
    DISTILBERT_WORDS,
    ROBERTA_WORDS,
    TOKEN_LABELS,
    WordHead,
)

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
ELECTRA: Names = {**BERT, "projection": "embeddings_project"}
_ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"
ALBERT: Names = {
    **EMBEDDINGS,
    "projection": "encoder.embedding_hidden_mapping_in",
    "layers.*.self_attention.query": f"{_ALBERT_LAYER}.attention.query",
    "layers.*.self_attention.key": f"{_ALBERT_LAYER}.attention.key",
    "layers.*.self_attention.value": f"{_ALBERT_LAYER}.attention.value",
    "layers.*.self_attention.output": f"{_ALBERT_LAYER}.attention.dense",
    "layers.*.self_attention_norm": f"{_ALBERT_LAYER}.attention.LayerNorm",
    "layers.*.feed_forward.up": f"{_ALBERT_LAYER}.ffn",
    "layers.*.feed_forward.down": f"{_ALBERT_LAYER}.ffn_output",
    "layers.*.feed_forward_norm": f"{_ALBERT_LAYER}.full_layer_layer_norm",
}
ROBERTA_HEAD: Names = {
    "head.dense.0.linear": "classifier.dense",
    "head.labels": "classifier.out_proj",
}


@dataclass(frozen=True)
class EncoderFamily:
    """The names of options and tensors of one family.

    prefix: of tensors' names, which base models are saved without. head: names of a classifier's
    tensors. squashing: the activation of its dense layer. words: what scores masked words.
    special_names: the names of weights that are more than a tensor by another name, in full.

    defaults: what files of these families need not say. activation: the name of that option.
    fixed: options that the family's code does not read, with what it computes instead.
    pads_positions: the table's first rows, up to that of the padding's id, are of no token.
    num_separators: how many stand between the texts of a pair.
    distances: reads how scores depend on them. convolution: our options of the one beside the first
        layer. has_embedding_size: words may have smaller vectors.
    shared_layer: all layers are one, before which words are always projected.
    """

    prefix: str
    names: Names
    head: Names
    squashing: str = "tanh"
    words: WordHead | None = None
    special_names: Names = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=lambda: SIZES)
    activation: str = "hidden_act"
    defaults: Mapping[str, Any] = field(default_factory=lambda: {"pad_token_id": 0})
    fixed: Mapping[str, Any] = field(default_factory=dict)
    pads_positions: bool = False
    has_types: bool = False
    has_positions: bool = True
    num_separators: int = 1
    distances: Callable[[Options], dict[str, Any]] | None = None
    convolution: Mapping[str, Any] | None = None
    has_embedding_size: bool = False
    shared_layer: bool = False

    def table(self, tensors: StoredTensors, head: str) -> Names:
        """Return the file's names by ours, for a head of this kind. Older files have other names
        for norms.
        """
        first = f"{self.prefix}embeddings.LayerNorm.gamma"
        is_old = first in tensors or first.removeprefix(self.prefix) in tensors
        words = ("gamma", "beta") if is_old else ("weight", "bias")
        named = {ours: f"{self.prefix}{theirs}" for ours, theirs in self.names.items()}
        norms = {
            ours: TensorReference(name, words)
            for ours, name in named.items()
            if ours.endswith("_norm")
        }
        words_head = self.words.names(words) if self.words and head == "masked-words" else {}
        heads = {"labels": self.head, "token-labels": TOKEN_LABELS, "masked-words": words_head}
        return {**named, **norms, **self.special_names, **heads.get(head, {})}


NUM_BUCKETS = 32


def _distances_of_mpnet(options: Options) -> dict[str, Any]:
    """Read them as `transformers` does, which knows no other number of buckets."""
    options.only("relative_attention_num_buckets", NUM_BUCKETS)
    return {"kind": "relative", "num_buckets": NUM_BUCKETS}


_AFTER_ROBERTA: dict[str, Any] = {
    "pads_positions": True,
    "num_separators": 2,
    "defaults": {"pad_token_id": 1},
    "head": ROBERTA_HEAD,
    "words": ROBERTA_WORDS,
}
FAMILIES: Mapping[str, EncoderFamily] = {
    "albert": EncoderFamily(
        "albert.",
        ALBERT,
        head={"head.dense.0.linear": "albert.pooler", "head.labels": "classifier"},
        defaults={"pad_token_id": 0, "embedding_size": 128, "hidden_act": "gelu_new"},
        fixed={"num_hidden_groups": 1, "inner_group_num": 1},
        has_types=True,
        has_embedding_size=True,
        shared_layer=True,
    ),
    "bert": EncoderFamily(
        "bert.",
        BERT,
        head={"head.dense.0.linear": "bert.pooler.dense", "head.labels": "classifier"},
        words=BERT_WORDS,
        has_types=True,
    ),
    "camembert": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
    "distilbert": EncoderFamily(
        "distilbert.",
        DISTILBERT,
        head={"head.dense.0.linear": "pre_classifier", "head.labels": "classifier"},
        squashing="relu",
        words=DISTILBERT_WORDS,
        sizes={"d_model": "dim", "num_layers": "n_layers", "num_heads": "n_heads"}
        | {"ffn_dim": "hidden_dim"},
        activation="activation",
        fixed={"layer_norm_eps": 1e-12},
    ),
    "electra": EncoderFamily(
        "electra.",
        ELECTRA,
        head=ROBERTA_HEAD,
        squashing="gelu",
        defaults={"pad_token_id": 0, "embedding_size": 128},
        has_types=True,
        has_embedding_size=True,
    ),
    "mpnet": EncoderFamily(
        "mpnet.",
        MPNET,
        distances=_distances_of_mpnet,
        fixed={"pad_token_id": 1},
        **_AFTER_ROBERTA,
    ),
    "roberta": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
    "xlm-roberta": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
}
