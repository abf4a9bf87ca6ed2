"""Reads a folder with an encoder: of `transformers`, or of Sentence Transformers around one.

The head is told by `architectures`: labels of texts or of tokens, or masked words; everything else
embeds texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from export.readers.common.options import MOST_LAYERS, MOST_POSITIONS, WIDEST
from export.readers.common.shapes import attention, linears, norms, read_activation, repeated
from export.readers.common.weights import (
    Held,
    Names,
    Shape,
    Table,
    Tensors,
    WeightReader,
    read_weights,
)
from export.readers.hugging_face.encoder_heads import (
    BERT_WORDS,
    CLASSIFIER,
    DISTILBERT_WORDS,
    ROBERTA_WORDS,
    TOKEN_LABELS,
    WordHead,
    head_of,
    head_shapes,
    labels_of,
    masked_words,
    scores_of,
)
from export.readers.hugging_face.folder import BASE_MODEL, KEYS, Folder
from export.readers.hugging_face.sentence_transformers import (
    Modules,
    Template,
    TextOptions,
    only_reading,
    read_modules,
    read_template,
    read_text_options,
)
from models.architectures.transformer_encoder.config import TransformerEncoderConfig
from models.checkpoint import Checkpoint
from models.configs.base import MaskedWordHead
from models.conventions import Conventions
from models.data.tokenizer import reading_mask
from models.safetensors import Array

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
    tensors. squashing: the activation of its dense layer. words: what scores masked words.

    defaults: what files of these families need not say. activation: the name of that option.
    fixed: options that the family's code does not read, with what it computes instead.
    pads_positions: the table's first rows, up to that of the padding's id, are of no token.
    num_separators: how many stand between the texts of a pair.
    """

    prefix: str
    names: Names
    head: Names
    squashing: str = "tanh"
    words: WordHead | None = None
    sizes: Mapping[str, str] = field(default_factory=lambda: SIZES)
    activation: str = "hidden_act"
    defaults: Mapping[str, Any] = field(default_factory=lambda: {"pad_token_id": 0})
    fixed: Mapping[str, Any] = field(default_factory=dict)
    pads_positions: bool = False
    has_types: bool = False
    has_distances: bool = False
    num_separators: int = 1

    def table(self, tensors: Tensors, head: str) -> Names:
        """Return the file's names by ours, for a head of this kind. Older files have other names
        for norms.
        """
        first = f"{self.prefix}embeddings.LayerNorm.gamma"
        is_old = first in tensors or first.removeprefix(self.prefix) in tensors
        words = ("gamma", "beta") if is_old else ("weight", "bias")
        named = {ours: f"{self.prefix}{theirs}" for ours, theirs in self.names.items()}
        norms = {ours: Held(name, words) for ours, name in named.items() if ours.endswith("_norm")}
        words_head = self.words.names(words) if self.words and head == "masked-words" else {}
        heads = {"labels": self.head, "token-labels": TOKEN_LABELS, "masked-words": words_head}
        return {**named, **norms, **heads.get(head, {})}


_AFTER_ROBERTA: dict[str, Any] = {
    "pads_positions": True,
    "num_separators": 2,
    "defaults": {"pad_token_id": 1},
    "head": ROBERTA_HEAD,
    "words": ROBERTA_WORDS,
}
FAMILIES: Mapping[str, EncoderFamily] = {
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
    "mpnet": EncoderFamily(
        "mpnet.", MPNET, has_distances=True, fixed={"pad_token_id": 1}, **_AFTER_ROBERTA
    ),
    "roberta": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
    "xlm-roberta": EncoderFamily("roberta.", BERT, has_types=True, **_AFTER_ROBERTA),
}


OTHER_HEADS = ("ForMultipleChoice", "ForQuestionAnswering")
NEEDLESS = (  # of words that are guessed, of a vector that nobody reads; positions, counted
    r"(\w+\.)?pooler\..*",
    r"(cls|lm_head)\..*",
    r"vocab_(transform|layer_norm|projector)\..*",
    r"(\w+\.)?embeddings\.position_ids",
)
OF_OTHER_HEADS = (  # words that are guessed, a vector of a text; how tables were made
    "tie_word_embeddings",
    "tie_weights_",
    "sinusoidal_pos_embds",
    "seq_classif_dropout",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
)
NUM_BUCKETS = 32


def read_encoder(family: EncoderFamily, folder: Folder) -> Checkpoint:
    """Raises CheckpointError with every problem."""
    folder.config.default_to(**family.defaults)
    for name, value in family.fixed.items():
        folder.config.only(name, value)
    folder.config.use(*KEYS, *OF_OTHER_HEADS)
    folder.generation.use(*KEYS)
    folder.config.only("directionality", "bidi")
    folder.config.only("pruned_heads", {})
    text_options = read_text_options(folder.path, folder.tokenizer, folder.problems)
    if folder.tokenizers is not None:
        source = only_reading(folder.tokenizers.source, lowercases=text_options.lowercases)
        folder = replace(folder, tokenizers=replace(folder.tokenizers, source=source))
    modules, template = Modules(), read_template(folder, family.num_separators)
    head = head_of(folder, family.words)
    if head == "embedding":
        modules = read_modules(folder.path, folder.problems)
        _check_head(folder, modules.pooling)
    config: Any = folder.configured(_configure(family, folder, modules, text_options, template))
    if isinstance(config.head, MaskedWordHead) and folder.tokenizers is not None:
        source = reading_mask(folder.tokenizers.source, config.head.mask_id)
        folder = replace(folder, tokenizers=replace(folder.tokenizers, source=source))
    return folder.checkpoint(
        config, _weights(family, folder, config, modules), _conventions(template, text_options)
    )


def _conventions(template: Template, text_options: TextOptions) -> Conventions:
    return Conventions(
        source_prefix=template.prefix,
        source_suffix=template.suffix,
        separator=template.separator,
        prompts=text_options.prompts,
        default_prompt=text_options.default_prompt,
    )


def _check_head(folder: Folder, pooling: Sequence[str]) -> None:
    """Refuse a head of another kind, and note one that is left out."""
    for kind in folder.config.words("architectures"):
        if kind.endswith(OTHER_HEADS):
            folder.config.refuse("architectures", "is none of the heads that are supported")
        elif not kind.endswith((CLASSIFIER, BASE_MODEL)) or kind.endswith("LMHeadModel"):
            folder.notes.append(
                f"{folder.config.file}: {kind} is read without its head, as a model that embeds"
                f" texts by their tokens' {' and '.join(pooling)}"
            )


def _configure(
    family: EncoderFamily,
    folder: Folder,
    modules: Modules,
    text_options: TextOptions,
    template: Template,
) -> dict[str, Any]:
    options = folder.config
    options.only("position_embedding_type", "absolute")
    options.only("is_decoder", False)
    sizes = {ours: options.integer(name) for ours, name in family.sizes.items()}
    if sizes["d_model"] > WIDEST or sizes["num_layers"] > MOST_LAYERS:
        options.problems.append(f"{options.file}: is larger than any model")
    pad, positions = options.integer("pad_token_id"), _num_positions(family, folder)
    num_types = options.integer("type_vocab_size", 2) if family.has_types else 0
    head = head_of(folder, family.words)
    found = {
        **sizes,
        "architecture": "transformer-encoder",
        "vocab_size": options.integer("vocab_size"),
        "max_source_tokens": min(positions, text_options.max_tokens or positions),
        "num_types": min(num_types, 1) if family.pads_positions else num_types,
        "distances": _distances(folder) if family.has_distances else None,
        "norm_epsilon": options.positive("layer_norm_eps", 1e-12),
        "activation": read_activation(options, family.activation, "gelu"),
        "pooling": ["cls"] if head == "labels" else modules.pooling,
        "pad_id": pad,
        "bos_id": template.prefix[0] if template.prefix else pad,
        "eos_id": template.suffix[-1] if template.suffix else pad,
    }
    return {**found, "head": _head(family, folder, modules, text_options, head, found)}


def _distances(folder: Folder) -> dict[str, Any]:
    """Read them as `transformers` does, which knows no other number of buckets."""
    folder.config.only("relative_attention_num_buckets", NUM_BUCKETS)
    return {"kind": "relative", "num_buckets": NUM_BUCKETS}


def _num_positions(family: EncoderFamily, folder: Folder) -> int:
    """Return the number of positions for a text's tokens."""
    whole = folder.config.integer("max_position_embeddings", 512, at_most=MOST_POSITIONS)
    return max(whole - _first_position(family, folder), 0)


def _first_position(family: EncoderFamily, folder: Folder) -> int:
    """Return the first position of a text: in fairseq's tables padding and lower ids come before
    it.
    """
    return folder.config.integer("pad_token_id") + 1 if family.pads_positions else 0


def _head(
    family: EncoderFamily,
    folder: Folder,
    modules: Modules,
    text_options: TextOptions,
    kind: str,
    values: dict[str, Any],
) -> dict[str, Any]:
    """Return our head of this kind. values: ours of the model so far."""
    if kind == "masked-words" and family.words is not None:
        return masked_words(folder, family.words, _words_name(family), values)
    if kind == "token-labels":
        return {"kind": kind, "labels": labels_of(folder)}
    if kind == "embedding":
        return {"kind": "embedding", "dense": modules.dense, "normalised": modules.normalised}
    return {
        "kind": "labels",
        "dense": [{"dim": values["d_model"], "activation": family.squashing}],
        "labels": (labels := labels_of(folder)),
        "scores": scores_of(folder, text_options, len(labels)),
    }


def _words_name(family: EncoderFamily) -> str:
    return f"{family.prefix}{family.names['embedding']}.weight"


def _weights(
    family: EncoderFamily, folder: Folder, config: TransformerEncoderConfig, modules: Modules
) -> dict[str, WeightReader]:
    shapes, names = _shapes(config), dict(family.table(folder.tensors, config.head.kind))
    names["positions.weight"] = _rows(
        names.pop("positions"),
        folder.config.integer("max_position_embeddings", 512),
        _first_position(family, folder),
        config.max_source_tokens,
        config.d_model,
    )
    if family.pads_positions and family.has_types:
        rows = folder.config.integer("type_vocab_size", 2)
        names["types.weight"] = _rows(names.pop("types"), rows, 0, 1, config.d_model)
    read = {name: shape for name, shape in shapes.items() if name not in modules.weights}
    table = Table(names, needless=NEEDLESS, prefix=family.prefix)
    return read_weights(read, table, folder.tensors) | modules.weights


def _rows(name: Any, num_rows: int, first: int, count: int, dim: int) -> Held:
    """Take `count` rows of a table, from `first` on."""
    cut = partial(_cut, first=first, last=first + count)
    return Held(f"{name}.weight", shape=(num_rows, dim), change=cut)


def _cut(table: Array, first: int, last: int) -> Array:
    return table[first:last]


def _shapes(config: TransformerEncoderConfig) -> dict[str, Shape]:
    """Return the shapes of the weights of an encoder."""
    dim, wide = config.d_model, config.ffn_dim
    found: dict[str, Shape] = {
        "embedding.weight": (config.vocab_size, dim),
        "positions.weight": (config.max_source_tokens, dim),
    }
    if config.num_types:
        found["types.weight"] = (config.num_types, dim)
    if config.distances is not None:
        found["distances.weight"] = (config.distances.num_buckets, config.num_heads)
    heads = attention("self_attention", dim, config.num_heads, config.num_heads, config.head_size)
    maps = {**heads, "feed_forward.up": (wide, dim), "feed_forward.down": (dim, wide)}
    layer = linears(maps, bias=True)
    layer |= norms(["self_attention_norm", "feed_forward_norm"], dim, bias=True)
    found |= norms(["embedding_norm"], dim, bias=True)
    return found | repeated("layers", config.num_layers, layer) | head_shapes(config)
