"""Reads a folder with an encoder: of `transformers`, or of Sentence Transformers around one.

The head is told by `architectures`: labels of texts or of tokens, or masked words; everything else
embeds texts.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from export.readers.common.options import MOST_LAYERS, MOST_POSITIONS, WIDEST, Options
from export.readers.common.shapes import (
    attention_shapes,
    linear_shapes,
    norm_shapes,
    read_activation,
    repeat_layers,
)
from export.readers.common.weights import Shape, Table, TensorReference, WeightReader, read_weights
from export.readers.hugging_face.config_keys import KEYS
from export.readers.hugging_face.encoder_families import EncoderFamily
from export.readers.hugging_face.encoder_heads import (
    CLASSIFIER,
    head_kind,
    head_shapes,
    masked_words,
    read_labels,
    read_score_activation,
)
from export.readers.hugging_face.folder import BASE_MODEL, Folder
from export.readers.hugging_face.sentence_transformers import (
    Modules,
    Template,
    TextOptions,
    read_modules,
    read_template,
    read_text_options,
    strip_tokenizer,
)
from models.architectures.transformer_encoder.config import (
    Disentangled,
    TransformerEncoderConfig,
)
from models.checkpoint import Checkpoint
from models.configs.base import MaskedWordHead
from models.configs.transformer import Relative
from models.conventions import Conventions
from models.data.tokenizer import reading_mask
from models.safetensors import Array

OTHER_HEADS = ("ForMultipleChoice", "ForQuestionAnswering", "ForTokenClassification")
IGNORED = (  # of words that are guessed, of a vector that nobody reads; positions, counted
    r"(\w+\.)?pooler\..*",
    r"(cls|lm_head)\..*",
    r"vocab_(transform|layer_norm|projector)\..*",
    r"(discriminator_predictions|generator_predictions|generator_lm_head)\..*",
    r"(predictions|sop_classifier|lm_predictions|mask_predictions)\..*",
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
OTHER_VECTORS = ("colbert_linear.pt", "sparse_linear.pt")


def read_encoder(family: EncoderFamily, folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    folder.config.default_to(**family.defaults)
    for name, value in family.fixed.items():
        folder.config.only(name, value)
    folder.config.use(*KEYS, *OF_OTHER_HEADS)
    folder.generation.use(*KEYS)
    folder.config.only("directionality", "bidi")
    folder.config.only("pruned_heads", {})
    text_options = read_text_options(folder.path, folder.tokenizer, folder.problems)
    if folder.tokenizers is not None:
        source = strip_tokenizer(folder.tokenizers.source, lowercases=text_options.lowercases)
        folder = replace(folder, tokenizers=replace(folder.tokenizers, source=source))
    modules, template = Modules(), read_template(folder, family.num_separators)
    head = head_kind(folder, family.words)
    if head == "embedding":
        modules = read_modules(folder.path, folder.problems)
        check_head(folder, modules.pooling)
        _note_other_vectors(folder)
    config: Any = folder.make_config(_configure(family, folder, modules, text_options, template))
    if isinstance(config.head, MaskedWordHead) and folder.tokenizers is not None:
        source = reading_mask(folder.tokenizers.source, config.head.mask_id)
        folder = replace(folder, tokenizers=replace(folder.tokenizers, source=source))
    return folder.checkpoint(
        config, _weights(family, folder, config, modules), text_conventions(template, text_options)
    )


def text_conventions(template: Template, text_options: TextOptions) -> Conventions:
    return Conventions(
        source_prefix=template.prefix,
        source_suffix=template.suffix,
        separator=template.separator,
        prompts=text_options.prompts,
        default_prompt=text_options.default_prompt,
    )


def check_head(folder: Folder, pooling: Sequence[str]) -> None:
    """Refuse a head of another kind, and note one that is left out."""
    for kind in folder.config.words("architectures"):
        if kind.endswith(OTHER_HEADS):
            folder.config.refuse("architectures", "is none of the heads that are supported")
        elif not kind.endswith((CLASSIFIER, BASE_MODEL)) or kind.endswith("LMHeadModel"):
            folder.notes.append(
                f"{folder.config.file}: {kind} is read without its head, as a model that embeds"
                f" texts by their tokens' {' and '.join(pooling)}"
            )


def _note_other_vectors(folder: Folder) -> None:
    """Note the heads of BGE-M3 that make other vectors of a text's tokens."""
    for name in OTHER_VECTORS:
        if (folder.path / name).is_file():
            folder.notes.append(f"{name} is not read: texts have the dense vector alone")


def _configure(
    family: EncoderFamily,
    folder: Folder,
    modules: Modules,
    text_options: TextOptions,
    template: Template,
) -> dict[str, Any]:
    folder.config.only("position_embedding_type", "absolute")
    folder.config.only("is_decoder", False)
    pad, positions = folder.config.integer("pad_token_id"), _num_positions(family, folder)
    head = head_kind(folder, family.words)
    sizes_and_ids = {
        **_sizes(family, folder.config),
        "architecture": "transformer-encoder",
        "max_source_tokens": min(positions, text_options.max_tokens or positions),
        "pooling": ["cls"] if head == "labels" else modules.pooling,
        "pad_id": pad,
        "bos_id": template.prefix[0] if template.prefix else pad,
        "eos_id": template.suffix[-1] if template.suffix else pad,
    }
    return {
        **sizes_and_ids,
        "head": _head(family, folder, modules, text_options, head, sizes_and_ids),
    }


def _sizes(family: EncoderFamily, options: Options) -> dict[str, Any]:
    """Return the options of the layers and of the tables below them."""
    sizes = {ours: options.integer(name) for ours, name in family.sizes.items()}
    if sizes["d_model"] > WIDEST or sizes["num_layers"] > MOST_LAYERS:
        options.problems.append(f"{options.file}: is larger than any model")
    num_types = options.integer("type_vocab_size", 2) if family.has_types else 0
    words = options.integer("embedding_size") if family.has_embedding_size else sizes["d_model"]
    return {
        **sizes,
        "vocab_size": options.integer("vocab_size"),
        "num_types": min(num_types, 1) if family.pads_positions else num_types,
        "has_positions": family.has_positions,
        "embedding_dim": words if family.shared_layer or words != sizes["d_model"] else None,
        "distances": family.distances(options) if family.distances else None,
        "convolution": family.convolution,
        "shared_layer": family.shared_layer,
        "norm_epsilon": options.positive("layer_norm_eps", 1e-12),
        "activation": read_activation(options, family.activation, "gelu"),
    }


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
        return {"kind": kind, "labels": read_labels(folder)}
    if kind == "embedding":
        return {"kind": "embedding", "dense": modules.dense, "normalised": modules.normalised}
    return {
        "kind": "labels",
        "dense": [{"dim": values["d_model"], "activation": family.squashing}],
        "labels": (labels := read_labels(folder)),
        "scores": read_score_activation(folder, text_options, len(labels)),
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
        config.word_dim,
    )
    if family.pads_positions and family.has_types:
        rows = folder.config.integer("type_vocab_size", 2)
        names["types.weight"] = _rows(names.pop("types"), rows, 0, 1, config.word_dim)
    read = {name: shape for name, shape in shapes.items() if name not in modules.weights}
    table = Table(names, ignored=IGNORED, prefix=family.prefix)
    return read_weights(read, table, folder.tensors) | modules.weights


def _rows(name: Any, num_rows: int, first: int, count: int, dim: int) -> TensorReference:
    """Take `count` rows of a table, from `first` on."""
    cut = partial(_cut, first=first, last=first + count)
    return TensorReference(f"{name}.weight", shape=(num_rows, dim), change=cut)


def _cut(table: Array, first: int, last: int) -> Array:
    return table[first:last]


def _shapes(config: TransformerEncoderConfig) -> dict[str, Shape]:
    """Return the shapes of the weights of an encoder."""
    dim, wide = config.d_model, config.ffn_dim
    heads = attention_shapes(
        "self_attention", dim, config.num_heads, config.num_heads, config.head_size
    )
    maps = {**heads, "feed_forward.up": (wide, dim), "feed_forward.down": (dim, wide)}
    layer = linear_shapes(maps, bias=True)
    layer |= norm_shapes(["self_attention_norm", "feed_forward_norm"], dim, bias=True)
    if isinstance(config.distances, Disentangled):
        layer |= _position_shapes(config.distances, config.num_heads * config.head_size)
    layers = repeat_layers("layers", config.num_stored_layers, layer)
    if config.convolution is not None:
        num_inputs = config.convolution.kernel_size * dim
        layers |= linear_shapes({"convolution.linear": (dim, num_inputs)}, bias=True)
        layers |= norm_shapes(["convolution.norm"], dim, bias=True)
    return _embedding_shapes(config) | layers | head_shapes(config)


def _embedding_shapes(config: TransformerEncoderConfig) -> dict[str, Shape]:
    dim = config.word_dim
    shapes: dict[str, Shape] = {"embedding.weight": (config.vocab_size, dim)}
    if config.has_positions:
        shapes["positions.weight"] = (config.max_source_tokens, dim)
    if config.num_types:
        shapes["types.weight"] = (config.num_types, dim)
    if isinstance(config.distances, Relative):
        shapes["distances.weight"] = (config.distances.num_buckets, config.num_heads)
    if config.embedding_dim is not None:
        shapes |= linear_shapes({"projection": (config.d_model, dim)}, bias=True)
    return shapes | norm_shapes(["embedding_norm"], dim, bias=True)


def _position_shapes(config: Disentangled, dim: int) -> dict[str, Shape]:
    terms = {"keys": config.content_to_position, "queries": config.position_to_content}
    shape = 2 * config.num_buckets, dim
    return {f"positions.{name}.weight": shape for name, has_them in terms.items() if has_them}
