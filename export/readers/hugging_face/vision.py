"""Vision encoders with text decoders: captioning by ViT or DeiT and GPT-2, and TrOCR.

ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021) read a picture's patches. GPT-2
(Radford et al. 2019) has layers of cross-attention here; TrOCR's decoder (Li et al. 2023) is
BART's. The linear layer between sides of unequal sizes is multiplied into the weights of keys and
values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from export.readers.common.options import (
    MOST_LAYERS,
    MOST_POSITIONS,
    WIDEST,
    Options,
    merge_options,
)
from export.readers.common.shapes import (
    Shapes,
    read_activation,
    sinusoids,
    stack_names,
    transformer_shapes,
)
from export.readers.common.weights import (
    ZEROS,
    Computed,
    Merged,
    Names,
    Table,
    TensorReference,
    read_weights,
)
from export.readers.hugging_face.config_keys import KEYS, OF_CONFIG, OF_GENERATION
from export.readers.hugging_face.folder import UNTIED, Folder
from export.readers.hugging_face.pictures import picture_options
from export.readers.hugging_face.translators import Decoding
from models.architectures.vision_transformer.config import VisionTransformerConfig
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint
from models.conventions import Conventions
from models.safetensors import Array

MOST_PIXELS = 2**12  # of a picture's side
PROJECTION = "enc_to_dec_proj"
IGNORED = (
    r"encoder\.(pooler\..*|embeddings\.mask_token)",
    r"decoder\.transformer\.h\.\d+\.(attn|crossattention)\.(bias|masked_bias)",
    r"decoder\.model\.decoder\.(version|embed_positions\._float_tensor)",
)


def read_vision_encoder_decoder(folder: Folder) -> Checkpoint:
    """Raise CheckpointError with every problem."""
    folder.check_head("VisionEncoderDecoderModel")
    encoder, decoder = folder.config.section("encoder"), folder.config.section("decoder")
    classes, family = _find_family(CLASS_TOKENS, encoder), _find_family(DECODERS, decoder)
    if classes is None or family is None:
        folder.fail()  # other families have other options
    decoding = _decoding(folder, encoder, decoder)
    config: Any = folder.make_config(
        merge_options(
            family.configure(decoder),
            decoding.special_tokens,
            _reading(folder, encoder, decoding, len(classes)),
            {"tied_embeddings": _is_tied(folder, decoder, family)},
        )
    )
    names = _encoder_names(config, classes, encoder.flag("qkv_bias", True))
    names |= family.all_names(config, decoder, PROJECTION + ".weight" in folder.tensors)
    weights = read_weights(_shapes(config), Table(names, ignored=IGNORED), folder.tensors)
    return folder.checkpoint(config, weights, _conventions(decoding))


def _reading(
    folder: Folder, encoder: Options, decoding: Decoding, num_class_tokens: int
) -> dict[str, Any]:
    """Return our options of all but the decoder."""
    vision = _vision(encoder, num_class_tokens)
    return {
        "architecture": "vision-transformer",
        "vocab_size": folder.config.integer("vocab_size"),
        "pad_id": folder.config.integer("pad_token_id", decoding.start),
        "source_languages": [UNKNOWN_LANGUAGE],
        "target_languages": [UNKNOWN_LANGUAGE],
        "encoder_layers": encoder.integer("num_hidden_layers", at_most=MOST_LAYERS),
        "max_source_tokens": num_class_tokens + _num_patches(vision),
        "vision": vision | picture_options(folder, vision["image_size"]),
    }


def _conventions(decoding: Decoding) -> Conventions:
    conventions = decoding.conventions(decoding.prompt)
    generation = {"temperature": 0.0, **conventions.generation}  # chats would sample
    return replace(conventions, source_suffix=(), generation=generation)


def _find_family(table: Mapping[str, Any], section: Options) -> Any:
    """Return what the table says of a side's family; None, and a problem, if that is nothing."""
    name = section.word("model_type", "")
    if name not in table:
        section.refuse("model_type", f"is none of {', '.join(table)}")
    return table.get(name)


def _decoding(folder: Folder, encoder: Options, decoder: Options) -> Decoding:
    """Read special tokens and defaults, also where older files have them in the decoder's section.
    The option that ties tables is the decoder's own.
    """
    folder.config.use("tie_word_embeddings")
    of_decoder = {*KEYS, "bos_token_id", "pad_token_id", "decoder_start_token_id", "vocab_size"}
    folder.config.default_to(**{n: v for n, v in decoder.values.items() if n in of_decoder})
    for section in (encoder, decoder):
        section.only("pruned_heads", {})
        for name in section.values:
            if name in of_decoder or OF_CONFIG.fullmatch(name) or OF_GENERATION.fullmatch(name):
                section.use(name)
    return Decoding(folder, default_start="bos_token_id")


def _is_tied(folder: Folder, decoder: Options, family: "VisionDecoder") -> bool:
    """If an output table is stored with other numbers, it is used, as in transformers 5."""
    table, output = f"{family.table}.weight", f"{family.output}.weight"
    is_tied = decoder.flag("tie_word_embeddings", True)
    if output not in folder.tensors:
        return is_tied
    differ = folder.tensors.differ(table, output)
    if is_tied and differ:
        folder.notes.append(UNTIED.format(file=decoder.file).replace("lm_head.weight", output))
    return not differ


_TROCR = "decoder.model.decoder"
CLASS_TOKENS = {"deit": ("cls_token", "distillation_token"), "vit": ("cls_token",)}
_LAYER = {
    "self_attention_norm": "layernorm_before",
    "self_attention.query": "attention.attention.query",
    "self_attention.key": "attention.attention.key",
    "self_attention.value": "attention.attention.value",
    "self_attention.output": "attention.output.dense",
    "feed_forward_norm": "layernorm_after",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
}


def _vision(encoder: Options, num_class_tokens: int) -> dict[str, Any]:
    encoder.only("num_channels", 3)
    encoder.use("encoder_stride", "pooler_act", "pooler_output_size", "tie_word_embeddings")
    return {
        "image_size": encoder.integer("image_size", 224, at_most=MOST_PIXELS),
        "patch_size": max(encoder.integer("patch_size", 16), 1),
        "d_model": encoder.integer("hidden_size", at_most=WIDEST),
        "num_heads": encoder.integer("num_attention_heads"),
        "ffn_dim": encoder.integer("intermediate_size"),
        "norm_epsilon": encoder.positive("layer_norm_eps", 1e-12),
        "activation": read_activation(encoder, "hidden_act", "gelu"),
        "num_class_tokens": num_class_tokens,
    }


def _num_patches(vision: Mapping[str, Any]) -> int:
    return int(vision["image_size"] // vision["patch_size"]) ** 2


def _encoder_names(
    config: VisionTransformerConfig, classes: tuple[str, ...], has_bias: bool
) -> Names:
    """Class tokens get their positions here; patches get theirs in the graph."""
    vision, before = config.vision, "encoder.embeddings"
    dim, size = vision.d_model, vision.patch_size
    names: dict[Any, Any] = {
        f"encoder.layers.*.{ours}": f"encoder.encoder.layer.*.{theirs}"
        for ours, theirs in _LAYER.items()
    }
    if not has_bias:
        parts = ("query", "key", "value")
        names |= {f"encoder.layers.*.self_attention.{part}.bias": ZEROS for part in parts}
    positions = {f"{before}.position_embeddings": (1, vision.num_positions, dim)}
    tokens = {f"{before}.{name}": (1, 1, dim) for name in classes}
    patches = f"{before}.patch_embeddings.projection"
    return names | {
        "encoder.norm": "encoder.layernorm",
        "encoder.patches.weight": TensorReference(
            f"{patches}.weight", shape=(dim, 3, size, size), change=_colours_last
        ),
        "encoder.patches.bias": f"{patches}.bias",
        "encoder.positions": Merged(positions | tokens, _with_tokens),
    }


def _colours_last(weight: Array) -> Array:
    return weight.transpose(0, 2, 3, 1).reshape(len(weight), -1)


def _with_tokens(positions: Array, *tokens: Array) -> Array:
    table = positions[0].copy()
    table[: len(tokens)] += np.concatenate([token[0] for token in tokens])
    return table


@dataclass(frozen=True)
class VisionDecoder:
    """A family of decoders. configure: makes options of ours. names: of all weights but tables of
    words. table, output: these. keys_values: their names of cross-attention's keys and values; of
    two in one tensor, [in, out], the first half are keys.
    """

    configure: Callable[[Options], dict[str, Any]]
    names: Callable[[VisionTransformerConfig, Options], Names]
    table: str
    output: str
    keys_values: tuple[str, ...]

    def all_names(
        self, config: VisionTransformerConfig, decoder: Options, has_projection: bool
    ) -> Names:
        vocabulary: Names = {
            "embedding.weight": TensorReference((f"{self.table}.weight", f"{self.output}.weight")),
            "target_embedding.weight": f"{self.table}.weight",
            "output.weight": f"{self.output}.weight",
        }
        names = {**self.names(config, decoder), **vocabulary}
        return {**names, **self._projected_names(config)} if has_projection else names

    def _projected_names(self, config: VisionTransformerConfig) -> Names:
        """Multiply the layer between the sides into keys and values."""
        dim, size, names = config.d_model, config.vision.d_model, dict[str, Merged]()
        layer: Shapes = {f"{PROJECTION}.weight": (dim, size), f"{PROJECTION}.bias": (dim,)}
        is_one = len(self.keys_values) == 1
        shapes = ((dim, 2 * dim), (2 * dim,)) if is_one else ((dim, dim), (dim,))
        for i, part in enumerate(("key", "value")):
            name = self.keys_values[0 if is_one else i]
            linear = dict(zip((f"{name}.weight", f"{name}.bias"), shapes, strict=True))
            half = slice(i * dim, (i + 1) * dim) if is_one else None
            ours = f"decoder.layers.*.cross_attention.{part}"
            names[f"{ours}.weight"] = Merged(linear | layer, partial(_product, half))
            names[f"{ours}.bias"] = Merged(linear | layer, partial(_multiply_bias, half))
        return names


def _take_half(half: slice | None, weight: Array, bias: Array) -> tuple[Array, Array]:
    """Return a weight [out, in] and a bias of ours."""
    return (weight, bias) if half is None else (weight[:, half].T, bias[half])


def _product(half: slice | None, weight: Array, bias: Array, first: Array, _: Array) -> Array:
    product, _ = _take_half(half, weight, bias)
    return (product.astype(np.float64) @ first).astype(np.float32)


def _multiply_bias(half: slice | None, weight: Array, bias: Array, _: Array, shift: Array) -> Array:
    product, added = _take_half(half, weight, bias)
    return (product.astype(np.float64) @ shift + added).astype(np.float32)


def _shapes(config: VisionTransformerConfig) -> Shapes:
    vision, dim = config.vision, config.vision.d_model
    shapes = {
        name: shape
        for stack, options in (("encoder", config.encoder), ("decoder", config))
        for name, shape in transformer_shapes(options).items()
        if name.startswith(f"{stack}.")
    }
    tables = ("embedding",) if config.tied_embeddings else ("target_embedding", "output")
    shapes |= {f"{name}.weight": (config.vocab_size, config.d_model) for name in tables}
    for layer in range(config.decoder_layers):
        for part in ("key", "value"):
            name = f"decoder.layers.{layer}.cross_attention.{part}.weight"
            shapes[name] = (shapes[name][0], dim)
    return shapes | {
        "encoder.patches.weight": (dim, 3 * vision.patch_size**2),
        "encoder.patches.bias": (dim,),
        "encoder.positions": (vision.num_positions, dim),
    }


def _configure_gpt2(decoder: Options) -> dict[str, Any]:
    decoder.only("scale_attn_weights", True)
    decoder.only("scale_attn_by_inverse_layer_idx", False)
    decoder.only("add_cross_attention", True)
    dim = decoder.integer("n_embd", at_most=WIDEST)
    return {
        "d_model": dim,
        "num_heads": decoder.integer("n_head"),
        "ffn_dim": decoder.integer("n_inner", 4 * dim),
        "decoder_layers": decoder.integer("n_layer", at_most=MOST_LAYERS),
        "max_target_tokens": decoder.integer("n_positions", at_most=MOST_POSITIONS),
        "positions": {"kind": "learned"},
        "norm": {"epsilon": decoder.positive("layer_norm_epsilon", 1e-5)},
        "activation": read_activation(decoder, "activation_function", "gelu_new"),
        "imported": {"embedding_scale": 1.0},
    }


def _gpt2_names(_: VisionTransformerConfig, __: Options) -> Names:
    layer, before = "decoder.layers.*", "decoder.transformer.h.*"
    linear = partial(TensorReference, is_transposed=True)
    attention, cross = f"{layer}.self_attention", f"{layer}.cross_attention"
    return {
        "decoder.positions": "decoder.transformer.wpe",
        "decoder.norm": "decoder.transformer.ln_f",
        f"{attention}_norm": f"{before}.ln_1",
        tuple(f"{attention}.{part}" for part in ("query", "key", "value")): linear(
            f"{before}.attn.c_attn"
        ),
        f"{attention}.output": linear(f"{before}.attn.c_proj"),
        f"{cross}_norm": f"{before}.ln_cross_attn",
        f"{cross}.query": linear(f"{before}.crossattention.q_attn"),
        (f"{cross}.key", f"{cross}.value"): linear(f"{before}.crossattention.c_attn"),
        f"{cross}.output": linear(f"{before}.crossattention.c_proj"),
        f"{layer}.feed_forward_norm": f"{before}.ln_2",
        f"{layer}.feed_forward.up": linear(f"{before}.mlp.c_fc"),
        f"{layer}.feed_forward.down": linear(f"{before}.mlp.c_proj"),
    }


def _configure_trocr(decoder: Options) -> dict[str, Any]:
    dim = decoder.integer("d_model", at_most=WIDEST)
    is_scaled = decoder.flag("scale_embedding", False)
    has_norm = decoder.flag("layernorm_embedding", True)
    decoder.use("cross_attention_hidden_size")  # must be the encoder's, where it is said
    return {
        "d_model": dim,
        "num_heads": decoder.integer("decoder_attention_heads"),
        "ffn_dim": decoder.integer("decoder_ffn_dim"),
        "decoder_layers": decoder.integer("decoder_layers", at_most=MOST_LAYERS),
        "max_target_tokens": decoder.integer("max_position_embeddings", at_most=MOST_POSITIONS),
        "positions": {"kind": "learned"},
        "norm": {"place": "post"},
        "activation": read_activation(decoder, "activation_function", "gelu"),
        "imported": {
            "embedding_scale": sqrt(dim) if is_scaled else 1.0,
            "embedding_norm": has_norm,
        },
    }


def _trocr_names(config: VisionTransformerConfig, decoder: Options) -> Names:
    """Learned positions begin after two unused ones, sinusoids after that of padding."""
    names = {
        n: theirs for n, theirs in stack_names("decoder.model.").items() if n.startswith("dec")
    }
    if decoder.flag("use_learned_position_embeddings", True):
        return {
            **names,
            "decoder.positions": TensorReference(f"{_TROCR}.embed_positions", skipped=2),
        }
    positions = Computed(partial(sinusoids, first=config.pad_id + 1))
    return {**names, "decoder.positions.weight": positions}


GPT2 = VisionDecoder(
    _configure_gpt2,
    _gpt2_names,
    "decoder.transformer.wte",
    "decoder.lm_head",
    ("decoder.transformer.h.*.crossattention.c_attn",),
)
TROCR = VisionDecoder(
    _configure_trocr,
    _trocr_names,
    f"{_TROCR}.embed_tokens",
    "decoder.output_projection",
    (f"{_TROCR}.layers.*.encoder_attn.k_proj", f"{_TROCR}.layers.*.encoder_attn.v_proj"),
)
DECODERS = {"gpt2": GPT2, "trocr": TROCR}
