"""Reads encoders that rotate, each a function from its `config.json` to our options and a table of
names: ModernBERT and NomicBERT.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from export.readers.common.decoders.family import QUERY_KEY_VALUE, head_size, num_layers
from export.readers.common.options import MOST_POSITIONS, Options
from export.readers.common.rope import Rotary, read_rotary, rope_section
from export.readers.common.shapes import (
    NORMS,
    Shapes,
    attention_shapes,
    linear_shapes,
    norm_shapes,
    read_activation,
    repeat_layers,
)
from export.readers.common.weights import ZEROS, Names, Table, read_weights
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
from export.readers.hugging_face.folder import KEYS, Folder
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
    """Raises CheckpointError with every problem."""
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


def _sizes(options: Options) -> dict[str, Any]:
    """Read what both families write alike."""
    options.only("is_decoder", False)
    options.only("partial_rotary_factor", 1.0)
    return {
        **{ours: options.integer(theirs) for ours, theirs in SIZES.items()},
        "architecture": "rotary-encoder",
        "vocab_size": options.integer("vocab_size"),
        "num_layers": num_layers(options),
    }


def _rotation(options: Options, rope: Options, theta: float) -> dict[str, Any]:
    rope.only("partial_rotary_factor", 1.0)
    return rotation(read_rotary(options, rope, head_size(options), theta=theta))


MODERNBERT_NAMES: Names = {
    "embedding": "model.embeddings.tok_embeddings",
    "embedding_norm": "model.embeddings.norm",
    "norm": "model.final_norm",
    "layers.*.attention_norm": "model.layers.*.attn_norm",
    "layers.*.feed_forward_norm": "model.layers.*.mlp_norm",
    QUERY_KEY_VALUE: "model.layers.*.attn.Wqkv",
    "layers.*.attention.output": "model.layers.*.attn.Wo",
    ("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "model.layers.*.mlp.Wi",
    "layers.*.feed_forward.down": "model.layers.*.mlp.Wo",
    "head.dense.0.linear": "head.dense",
    "head.dense.0.norm": "head.norm",
    "head.labels": "classifier",
}
WITHOUT_EFFECT = (  # of words that are guessed, of kernels; epsilons and positions of BERT
    *("cls_token_id", "decoder_bias", "deterministic_flash_attn", "reference_compile"),
    *("repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index"),
    *("layer_norm_eps", "position_embedding_type"),
)


def configure_modernbert(options: Options) -> dict[str, Any]:
    """Every third layer attends to everything, the others to half of `local_attention` on each
    side.
    """
    options.use(*WITHOUT_EFFECT)
    options.default_to(max_position_embeddings=8192, pad_token_id=50283)
    heads = max(options.integer("num_attention_heads"), 1)
    options.only("head_dim", options.integer("hidden_size") // heads)
    has_bias = options.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": options.flag("mlp_bias", False),
    }
    full, local = _modernbert_rotations(options)
    windowed = _windowed_layers(options)
    size = options.integer("local_attention", 128) // 2 + 1
    window = {"size": size, "layers": windowed, "rotation": local} if windowed else None
    return {
        **_sizes(options),
        "rotation": full,
        "window": window,
        "norm": {"epsilon": options.positive("norm_eps", 1e-5)},
        "activation": read_activation(options, "hidden_activation", "gelu"),
        "imported": imported,
    }


def _windowed_layers(options: Options) -> tuple[int, ...]:
    every = max(options.integer("global_attn_every_n_layers", 3), 1)
    names, layers = ("full_attention", "sliding_attention"), range(num_layers(options))
    kinds = options.words("layer_types") or [names[layer % every > 0] for layer in layers]
    if len(kinds) != len(layers) or {*kinds} - {*names}:
        options.refuse("layer_types", f"must hold {len(layers)} of {' and '.join(names)}")
    return tuple(layer for layer, kind in zip(layers, kinds, strict=False) if kind == names[1])


def _modernbert_rotations(options: Options) -> list[dict[str, Any]]:
    """Return the rotation of layers that attend to everything, and of those with a window. Older
    files have thetas, and one scaling for both.
    """
    kinds = {"full_attention": ("global", 160_000.0), "sliding_attention": ("local", 10_000.0)}
    both, rotations = options.section("rope_parameters"), list[dict[str, Any]]()
    for kind, (name, theta) in kinds.items():
        rope = both.section(kind)
        rope.default_to(**options.section("rope_scaling").values)
        rope.default_to(rope_theta=options.positive(f"{name}_rope_theta", theta))
        rotations.append(_rotation(options, rope, theta))
    return rotations


def modernbert_table(options: Options) -> Table:
    named = (name for name in MODERNBERT_NAMES if isinstance(name, str) and name.endswith("norm"))
    zeros: Names = {} if options.flag("norm_bias", False) else {f"{n}.bias": ZEROS for n in named}
    ignored = (r"decoder\..*", r"head\..*")  # of words that are guessed
    return Table({**MODERNBERT_NAMES, **zeros}, ignored=ignored, prefix="model.")


SQUASHING = {"gelu": "gelu", "relu": "relu", "tanh": "tanh"}


def classify_modernbert(options: Options) -> tuple[str, dict[str, Any]]:
    options.only("classifier_pooling", "cls", "mean")
    options.only("classifier_activation", *SQUASHING)
    return options.word("classifier_pooling", "cls"), {
        "dim": options.integer("hidden_size"),
        "activation": SQUASHING.get(options.word("classifier_activation", "gelu"), "none"),
        "bias": options.flag("classifier_bias", False),
        "norm_epsilon": options.positive("norm_eps", 1e-5),
    }


NOMIC_NAMES: Names = {
    "embedding": "nomic_bert.embeddings.word_embeddings",
    "types": "nomic_bert.embeddings.token_type_embeddings",
    "embedding_norm": "nomic_bert.emb_ln",
    "layers.*.attention_norm": "nomic_bert.encoder.layers.*.norm1",
    "layers.*.feed_forward_norm": "nomic_bert.encoder.layers.*.norm2",
    QUERY_KEY_VALUE: "nomic_bert.encoder.layers.*.attn.Wqkv",
    "layers.*.attention.output": "nomic_bert.encoder.layers.*.attn.out_proj",
    "layers.*.feed_forward.up": "nomic_bert.encoder.layers.*.mlp.fc11",
    "layers.*.feed_forward.gate": "nomic_bert.encoder.layers.*.mlp.fc12",
    "layers.*.feed_forward.down": "nomic_bert.encoder.layers.*.mlp.fc2",
    "head.dense.0.linear": "nomic_bert.pooler.dense",
    "head.labels": "classifier",
}
AFTER_GPT2 = {  # names in its authors' files, by those of transformers
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
UNSAID: Mapping[str, Any] = {  # what these files need not say
    "activation_function": "gelu_new",
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "qkv_proj_bias": True,
    "rotary_emb_fraction": 0.0,
}
ALONE: Mapping[str, Any] = {  # what their options must be
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "moe_every_n_layers": 0,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "use_rms_norm": False,
}
OF_KERNELS = (
    *("dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "last_layer_subset"),
    *("max_trained_positions", "pad_vocab_size_multiple", "parallel_block_tied_norm"),
    *("scale_attn_by_inverse_layer_idx", "scale_attn_weights", "use_flash_attn", "use_xentropy"),
)


def configure_nomic_bert(options: Options) -> dict[str, Any]:
    if "n_embd" in options:
        _read_after_gpt2(options)
    options.default_to(max_position_embeddings=2048, pad_token_id=0)
    rope = rope_section(options)
    theta = rope.positive("rope_theta", options.positive("rotary_emb_base", 1000.0))
    return {
        **_sizes(options),
        "head_dim": head_size(options),
        "num_types": options.integer("type_vocab_size", 2),
        "rotation": _rotation(options, rope, theta),
        "norm": {"place": "post", "epsilon": options.positive("layer_norm_eps", 1e-12)},
        "activation": read_activation(options, "hidden_act", "silu"),
    }


def _read_after_gpt2(options: Options) -> None:
    """Read the names of its authors' code. A dynamic scaling changes texts only that are longer
    than those it was trained on, which are the limit then.
    """
    options.default_to(**{ours: options.get(theirs) for ours, theirs in AFTER_GPT2.items()})
    options.default_to(**UNSAID)
    for name, value in ALONE.items():
        options.only(name, value)
    options.use(*OF_KERNELS)
    if "rotary_scaling_factor" in options:
        longest = options.integer("max_trained_positions", 2048)
        positions = min(options.integer("max_position_embeddings"), longest)
        options.values["max_position_embeddings"] = positions


def nomic_bert_table(options: Options) -> Table:
    ignored = (r"(\w+\.)?pooler\..*", r"cls\..*", r".*rotary_emb\.inv_freq")
    return Table(NOMIC_NAMES, ignored=ignored, prefix="nomic_bert.")


def classify_nomic_bert(options: Options) -> tuple[str, dict[str, Any]]:
    return "cls", {"dim": options.integer("hidden_size"), "activation": "tanh"}


FAMILIES: Mapping[str, RotaryFamily] = {
    "modernbert": RotaryFamily(configure_modernbert, modernbert_table, classify_modernbert),
    "nomic_bert": RotaryFamily(configure_nomic_bert, nomic_bert_table, classify_nomic_bert),
}
