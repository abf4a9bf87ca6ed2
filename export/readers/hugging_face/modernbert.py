"""ModernBERT (Warner et al. 2024), an encoder with windows in two layers of three."""

from typing import Any

from export.readers.common.decoders.family import QUERY_KEY_VALUE, num_layers
from export.readers.common.options import Options
from export.readers.common.shapes import read_activation
from export.readers.common.weights import ZEROS, Names, Table
from export.readers.hugging_face.rotary_encoders import RotaryFamily, read_rotation, read_sizes

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
SQUASHING = {"gelu": "gelu", "relu": "relu", "tanh": "tanh"}
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
        **read_sizes(options),
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
        rotations.append(read_rotation(options, rope, theta))
    return rotations


def modernbert_table(options: Options) -> Table:
    named = (name for name in MODERNBERT_NAMES if isinstance(name, str) and name.endswith("norm"))
    zeros: Names = {} if options.flag("norm_bias", False) else {f"{n}.bias": ZEROS for n in named}
    ignored = (r"decoder\..*", r"head\..*")  # of words that are guessed
    return Table({**MODERNBERT_NAMES, **zeros}, ignored=ignored, prefix="model.")


def classify_modernbert(options: Options) -> tuple[str, dict[str, Any]]:
    options.only("classifier_pooling", "cls", "mean")
    options.only("classifier_activation", *SQUASHING)
    return options.word("classifier_pooling", "cls"), {
        "dim": options.integer("hidden_size"),
        "activation": SQUASHING.get(options.word("classifier_activation", "gelu"), "none"),
        "bias": options.flag("classifier_bias", False),
        "norm_epsilon": options.positive("norm_eps", 1e-5),
    }


MODERNBERT = RotaryFamily(configure_modernbert, modernbert_table, classify_modernbert)
