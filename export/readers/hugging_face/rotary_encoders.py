"""Reads encoders that rotate. A family is a function from its `config.json` to our options, and a
table of names.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from export.readers.common.decoders.family import head_size, num_layers
from export.readers.common.language_model_shapes import NORMS
from export.readers.common.options import MOST_POSITIONS, Options
from export.readers.common.rope import Rotary, read_rotary
from export.readers.common.shapes import (
    Shapes,
    attention_shapes,
    linear_shapes,
    norm_shapes,
    repeat_layers,
)
from export.readers.common.weights import Table, read_weights
from export.readers.hugging_face.config_keys import KEYS
from export.readers.hugging_face.encoder_families import SIZES
from export.readers.hugging_face.encoder_heads import (
    head_shapes,
    is_classifier,
    read_labels,
    read_score_activation,
)
from export.readers.hugging_face.encoders import (
    OF_OTHER_HEADS,
    check_head,
    text_conventions,
)
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.sentence_transformers import (
    Modules,
    Template,
    TextOptions,
    read_modules,
    read_template,
    read_text_options,
    strip_tokenizer,
)
from models.architectures.rotary_encoder.config import RotaryEncoderConfig
from models.checkpoint import Checkpoint


@dataclass(frozen=True)
class RotaryFamily:
    """configure: returns the values of our configuration, but for those of `TextParts`.
    table: returns which tensor of the file is which weight.
    classify: returns a classifier's pooling and dense layer.
    """

    configure: Callable[[Options], dict[str, Any]]
    table: Callable[[Options], Table]
    classify: Callable[[Options], tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class TextParts:
    """What all models that read texts are made of besides their layers. folder: with a tokenizer
    that neither cuts nor pads.
    """

    folder: Folder
    modules: Modules
    template: Template
    text_options: TextOptions

    def values(self, num_positions: int, pad_id: int) -> dict[str, Any]:
        """Return values of our configuration, for a model that embeds texts."""
        modules, template = self.modules, self.template
        head = {"kind": "embedding", "dense": modules.dense, "normalised": modules.normalised}
        return {
            "max_source_tokens": min(num_positions, self.text_options.max_tokens or num_positions),
            "pooling": modules.pooling,
            "head": head,
            "pad_id": pad_id,
            "bos_id": template.prefix[0] if template.prefix else pad_id,
            "eos_id": template.suffix[-1] if template.suffix else pad_id,
        }


def read_parts(folder: Folder, template_of: Callable[[Folder], Template]) -> TextParts:
    """Read them; template_of: reads the special tokens of texts off the tokenizer."""
    folder.config.use(*KEYS)
    folder.generation.use(*KEYS)
    text_options = read_text_options(folder.path, folder.tokenizer, folder.problems)
    if folder.tokenizers is not None:
        source = strip_tokenizer(folder.tokenizers.source, lowercases=text_options.lowercases)
        folder = replace(folder, tokenizers=replace(folder.tokenizers, source=source))
    modules = Modules() if is_classifier(folder) else read_modules(folder.path, folder.problems)
    return TextParts(folder, modules, template_of(folder), text_options)


def read_rotary_encoder(family: RotaryFamily, folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    parts = read_parts(folder, partial(read_template, num_separators=1))
    folder, options, modules = parts.folder, parts.folder.config, parts.modules
    options.use(*OF_OTHER_HEADS)
    values = family.configure(options)
    positions = options.integer("max_position_embeddings", at_most=MOST_POSITIONS)
    values |= parts.values(positions, options.integer("pad_token_id"))
    if is_classifier(folder):
        values |= _classifier(family, parts)
    else:
        check_head(folder, modules.pooling)
    config: Any = folder.make_config(values)
    shapes = {name: shape for name, shape in _shapes(config).items() if name not in modules.weights}
    weights = read_weights(shapes, family.table(options), folder.tensors) | modules.weights
    return folder.checkpoint(config, weights, text_conventions(parts.template, parts.text_options))


def _classifier(family: RotaryFamily, parts: TextParts) -> dict[str, Any]:
    pooling, dense = family.classify(parts.folder.config)
    labels = read_labels(parts.folder)
    scores = read_score_activation(parts.folder, parts.text_options, len(labels))
    head = {"kind": "labels", "dense": [dense], "labels": labels, "scores": scores}
    return {"pooling": (pooling,), "head": head}


def rotation(rotary: Rotary) -> dict[str, Any]:
    """Return the section of our configuration."""
    return {"frequencies": rotary.frequencies, "magnitude": rotary.magnitude}


def _shapes(config: RotaryEncoderConfig) -> Shapes:
    """Return the shapes of all weights; these families normalise with LayerNorm."""
    dim, wide = config.d_model, config.ffn_dim
    shapes: Shapes = {"embedding.weight": (config.vocab_size, dim)}
    if config.num_types:
        shapes["types.weight"] = (config.num_types, dim)
    heads = attention_shapes("attention", dim, config.num_heads, config.kv_heads, config.head_size)
    gates = {"feed_forward.gate": (wide, dim), "feed_forward.up": (wide, dim)}
    layer = linear_shapes(heads, bias=config.imported.attention_bias == "all")
    layer |= linear_shapes(
        gates | {"feed_forward.down": (dim, wide)}, bias=config.imported.ffn_bias
    )
    shapes |= repeat_layers("layers", config.num_layers, layer | norm_shapes(NORMS, dim, bias=True))
    shapes |= norm_shapes(["embedding_norm"], dim, bias=True) | head_shapes(config)
    if config.norm.place == "post":
        return shapes
    replaced = norm_shapes(["layers.0.attention_norm"], dim, bias=True)
    shapes |= norm_shapes(["norm"], dim, bias=True)
    return {name: shape for name, shape in shapes.items() if name not in replaced}


def read_sizes(options: Options) -> dict[str, Any]:
    """Read what both families write alike."""
    options.only("is_decoder", False)
    options.only("partial_rotary_factor", 1.0)
    return {
        **{ours: options.integer(theirs) for ours, theirs in SIZES.items()},
        "architecture": "rotary-encoder",
        "vocab_size": options.integer("vocab_size"),
        "num_layers": num_layers(options),
    }


def read_rotation(options: Options, rope: Options, theta: float) -> dict[str, Any]:
    rope.only("partial_rotary_factor", 1.0)
    return rotation(read_rotary(options, rope, head_size(options), theta=theta))
