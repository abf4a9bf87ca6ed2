"""Writes models of ours with CTranslate2's own specifications."""

from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from tokenizers import Tokenizer

from models.checkpoint import Checkpoint
from models.safetensors import Array

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu_tanh": common_spec.Activation.GELUTanh,
    "swish": common_spec.Activation.SWISH,
    "gelu": common_spec.Activation.GELU,
}


def save_translator(
    checkpoint: Checkpoint,
    folder: Path,
    quantization: str | None = None,
    *,
    activation: common_spec.Activation | None = None,
    starts_from_zeros: bool = False,
    vocabulary: list[str] | None = None,
    **options: Any,
) -> Path:
    """Write a Transformer in a folder, as a converter of CTranslate2 does.

    starts_from_zeros: as models of Marian do. vocabulary: of both sides, in place of that of the
        checkpoint's tokenizers.
    options: of `config.json`.
    """
    config: Any = checkpoint.config
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=config.norm.place == "pre",
        no_final_norm=not config.has_final_norm,
        activation=activation or ACTIVATIONS[config.activation],
        layernorm_embedding=config.imported.embedding_norm,
        ffn_glu=config.gated_ffn,
        rms_norm=config.norm.kind == "rms",
        relative_attention_bias=config.positions.kind == "relative",
    )
    weights = {name: np.array(weight) for name, weight in checkpoint.weights.items()}
    heads = config.imported.encoder_heads or config.num_heads
    spec.encoder.num_heads = np.dtype("int16").type(heads)
    for name in ("encoder", "decoder"):
        _fill_stack(getattr(spec, name), weights, name, config)
    tied = weights.get("embedding.weight")
    source, target, output = (
        tied if tied is not None else weights[name]
        for name in ("source_embedding.weight", "target_embedding.weight", "output.weight")
    )
    spec.encoder.embeddings[0].weight = source
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = output
    if "output_bias" in weights:
        spec.decoder.projection.bias = weights["output_bias"]
    spec.decoder.start_from_zero_embedding = starts_from_zeros
    spec.config.layer_norm_epsilon = config.norm.epsilon
    for name, value in options.items():
        setattr(spec.config, name, value)
    for register, tokenizer in (
        (spec.register_source_vocabulary, checkpoint.tokenizer),
        (spec.register_target_vocabulary, checkpoint.target_tokenizer),
    ):
        register(vocabulary or list_tokens(tokenizer))
    write(spec, folder, quantization)
    return folder


def list_tokens(tokenizer_json: str) -> list[str]:
    ids = Tokenizer.from_str(tokenizer_json).get_vocab(with_added_tokens=True)
    return sorted(ids, key=lambda token: ids[token])


def write(spec: Any, folder: Path, quantization: str | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _fill_stack(spec: Any, weights: dict[str, Array], stack: str, config: Any) -> None:
    scale = config.imported.embedding_scale
    spec.scale_embeddings = True if scale is None else float(scale)
    if f"{stack}.positions.weight" in weights and config.positions.kind != "relative":
        spec.position_encodings.encodings = weights[f"{stack}.positions.weight"]
    for ours, theirs in (("norm", "layer_norm"), ("embedding_norm", "layernorm_embedding")):
        if hasattr(spec, theirs):
            _fill_norm(getattr(spec, theirs), weights, f"{stack}.{ours}")
    for number, layer in enumerate(spec.layer):
        ours = f"{stack}.layers.{number}"
        _fill_attention(layer.self_attention, weights, f"{ours}.self_attention", is_self=True)
        if config.positions.kind == "relative":
            attention = layer.self_attention
            attention.relative_attention_bias = weights[f"{stack}.positions.weight"]
            attention.relative_attention_max_distance = np.dtype("int32").type(
                config.positions.max_distance
            )
        if hasattr(layer, "attention"):
            _fill_attention(layer.attention, weights, f"{ours}.cross_attention", is_self=False)
        _fill_norm(layer.ffn.layer_norm, weights, f"{ours}.feed_forward_norm")
        parts = {"linear_0": "up", "linear_1": "down"}
        if config.gated_ffn:
            parts |= {"linear_0": "gate", "linear_0_noact": "up"}
        for theirs, part in parts.items():
            _fill_linear(getattr(layer.ffn, theirs), weights, f"{ours}.feed_forward.{part}")


def _fill_attention(spec: Any, weights: dict[str, Array], ours: str, *, is_self: bool) -> None:
    _fill_norm(spec.layer_norm, weights, f"{ours}_norm")
    groups = [["query", "key", "value"]] if is_self else [["query"], ["key", "value"]]
    for linear, parts in zip(spec.linear, [*groups, ["output"]], strict=True):
        _fill_linear(linear, weights, *(f"{ours}.{part}" for part in parts))


def _fill_linear(spec: Any, weights: dict[str, Array], *names: str) -> None:
    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    if f"{names[0]}.bias" in weights:
        spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def _fill_norm(spec: Any, weights: dict[str, Array], ours: str) -> None:
    spec.gamma = weights[f"{ours}.weight"]
    if f"{ours}.bias" in weights:
        spec.beta = weights[f"{ours}.bias"]
