"""CTranslate2's TransformerSpec: encoder-decoders of OpenNMT, Marian, fairseq, BART, T5 and others.

The computation is that of CTranslate2's src/layers/transformer.cc and attention.cc. Weights are
[out, in]; queries, keys and values are in one matrix. A model of Marian begins to decode with a
vector of zeros in place of a token: here that is a token of its own, the last of the target's
vocabulary, which is never produced.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.shapes import STACKS, sinusoids, transformer_shapes
from export.readers.common.weights import (
    ZEROS,
    Change,
    Computed,
    Names,
    StoredTensors,
    Table,
    TensorReference,
    WeightReader,
    WeightSource,
    read_weights,
    scale_by,
)
from export.readers.ctranslate2.container import ModelFile
from models.safetensors import Array, Stored

ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu", 4: "swish"}  # theirs -> ours
SIGMOID_GELU = 4  # x sigmoid(1.702 x): swish of 1.702 times x, divided by 1.702
SIGMOID_GELU_FACTOR = 1.702
LONGEST = 1024  # tokens, where sinusoids have no end: the engine's buffers need one
NEVER = -300.0  # added to the score of the token that stands for the zero vector: e^-300 is 0
OUTPUT = "decoder/projection"
NORM_WORDS = ("gamma", "beta")
ATTENTIONS = {"self_attention": "self_attention", "cross_attention": "attention"}
REFUSED = {  # parts of variables' names, and the feature that they are of
    "relative_position_keys": "relative positions of Shaw et al. 2018",
    "relative_asymmetric_position_keys": "asymmetric relative positions",
    "rotary_dim": "rotary positions in an encoder-decoder",
    "q_norm": "norms of queries and keys in an encoder-decoder",
    "v_norm": "norms of values",
    "sliding_window": "attention to a window in an encoder-decoder",
    "memory_kv": "one attention to source and target (T5Gemma 2)",
    "input_layer_norm": "norms before and after each sublayer",
    "post_attention_layer_norm": "norms before and after each sublayer",
    "pre_feedforward_layer_norm": "norms before and after each sublayer",
    "external_pre_encoder_attention_layer_norm": "norms around the attention to the source",
    "embeddings_1": "source features",
    "conv1": "audio",
    "project_in": "projections of the embeddings",
    "final_logit_softcapping": "limits of the scores",
}
WITHOUT_EFFECT = frozenset(  # of what is computed here
    {"alignment_layer", "alignment_heads", "embeddings_merge", "relative_attention_max_distance"}
    | {"alibi_use_positive_positions", "scale_alibi", "num_heads", "num_heads_kv", "head_dim"}
    | {"pre_norm", "activation", "queries_scale", "scale_embeddings", "multiply_by_sqrt_depth"}
    | {"start_from_zero_embedding", "scale_outputs", "alibi"}
    | {"multi_query_attention", "with_source_bos", "with_source_eos", "with_target_bos"}
    | {"user_decoder_start_tokens"}
)


class Translator:
    """The options and weights of one model. Everything that is wrong is added to `problems`."""

    def __init__(self, model: ModelFile, config: Options) -> None:
        """config: of `config.json`."""
        self.problems = config.problems
        self._config = config
        self._scalars = _spread_old_options(model)
        self._tensors = StoredTensors(_rename_embeddings(model.tensors), self.problems)
        self._refuse_features(model)

    def _refuse_features(self, model: ModelFile) -> None:
        names = [*self._tensors.stored, *self._scalars]
        parts = {part for name in names for part in name.split("/")}
        features = {feature for part, feature in REFUSED.items() if part in parts}
        if self._number("decoder/alibi", 0):
            features.add("linear biases of scores (ALiBi) in an encoder-decoder")
        self.problems += [f"model.bin: {feature} are not supported" for feature in sorted(features)]
        last_parts = {name.rpartition("/")[2] for name in self._scalars}
        if not features and (unknown := sorted(last_parts - WITHOUT_EFFECT)):
            self.problems.append(f"model.bin: options not known here: {', '.join(unknown)}")

    def _number(self, name: str, default: float) -> float:
        return self._scalars.get(name, default)

    def _count_layers(self, stack: str) -> int:
        return next(
            (n for n in range(MOST_LAYERS) if f"{stack}/layer_{n}/ffn/linear_0/weight" not in self),
            MOST_LAYERS,
        )

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def _shape(self, name: str, num_dimensions: int = 2) -> tuple[int, ...]:
        """Return a shape; one of ones, and a problem, if there is no such tensor."""
        stored = self._tensors.stored.get(name)
        if stored is not None and len(stored.shape) == num_dimensions and min(stored.shape):
            return stored.shape
        shape = "missing" if stored is None else f"of shape {list(stored.shape)}"
        self.problems.append(f"{name} is {shape}")
        return (1,) * num_dimensions

    @property
    def source_size(self) -> int:
        """The rows of the source's table."""
        return self._shape("encoder/embeddings/weight")[0]

    @property
    def target_size(self) -> int:
        return self._shape("decoder/embeddings/weight")[0]

    @property
    def starts_from_zeros(self) -> bool:
        """Whether decoding begins with a vector of zeros, as in Marian."""
        return self._number("decoder/start_from_zero_embedding", 0) != 0

    @property
    def _has_one_table(self) -> bool:
        first, *others = (
            self._tensors.stored.get(f"{name}/weight")
            for name in ("encoder/embeddings", "decoder/embeddings", OUTPUT)
        )
        return all(_are_equal(first, other) for other in others)

    def read_options(self) -> dict[str, Any]:
        """Return the values of our configuration, but for those of vocabularies and languages."""
        heads = {stack: int(self._number(f"{stack}/num_heads", 8)) for stack in STACKS}
        wide = {stack: self._shape(f"{stack}/layer_0/ffn/linear_0/weight") for stack in STACKS}
        d_model = wide["decoder"][1]
        attention = "layer_0/self_attention"
        kv_heads = int(self._number(f"decoder/{attention}/num_heads_kv", 0))
        head_dim = int(self._number(f"decoder/{attention}/head_dim", 0))
        is_layer_norm = f"decoder/{attention}/layer_norm/beta" in self
        default_epsilon = 1e-5 if is_layer_norm else 1e-6
        longest = {stack: self._count_positions(stack) for stack in STACKS}
        imported: dict[str, Any] = {
            "embedding_norm": self._has_in_both("layernorm_embedding/gamma"),
            "final_norm": self._has_in_both("layer_norm/gamma"),
            "embedding_scale": self._read_embedding_scale(d_model),
            "biases": any(f"{name}/bias" in self for name in self._linears("decoder")),
            "output_bias": f"{OUTPUT}/bias" in self or self.starts_from_zeros,
        }
        if heads["encoder"] != heads["decoder"]:
            imported["encoder_heads"] = heads["encoder"]
        if wide["encoder"] != wide["decoder"]:
            imported["encoder_ffn_dim"] = wide["encoder"][0]
        return {
            "architecture": "transformer",
            "tied_embeddings": self._has_one_table,
            "d_model": d_model,
            "num_heads": heads["decoder"],
            "num_kv_heads": kv_heads or None,
            "head_dim": head_dim or None,
            "ffn_dim": wide["decoder"][0],
            "encoder_layers": self._count_layers("encoder"),
            "decoder_layers": self._count_layers("decoder"),
            "positions": self._read_positions(),
            "max_source_tokens": longest["encoder"],
            "max_target_tokens": longest["decoder"],
            "norm": {
                "kind": "layer" if is_layer_norm else "rms",
                "place": "pre" if self._number("decoder/pre_norm", 1) else "post",
                "epsilon": self._config.positive("layer_norm_epsilon", default_epsilon),
            },
            "activation": self._read_activation(),
            "gated_ffn": self._has_in_both("layer_0/ffn/linear_0_noact/weight"),
            "imported": imported,
        }

    def _read_activation(self) -> str:
        numbers = {int(self._number(f"{stack}/activation", 0)) for stack in STACKS}
        (number, *others) = sorted(numbers)
        if others or number not in ACTIVATIONS:
            listed = ", ".join(map(str, sorted(numbers)))
            self.problems.append(f"model.bin: the activation {listed} is not supported")
        return ACTIVATIONS.get(number, "relu")

    def _has_in_both(self, name: str) -> bool:
        has = [f"{stack}/{name}" in self for stack in STACKS]
        if len(set(has)) > 1:
            self.problems.append(f"{STACKS[has.index(False)]}/{name} is missing")
        return all(has)

    def _read_embedding_scale(self, d_model: int) -> float | None:
        """Return what embeddings are multiplied by; None: sqrt(d_model)."""
        scales = set()
        for stack in STACKS:
            old_name = f"{stack}/embeddings/multiply_by_sqrt_depth"
            scale = self._scalars.get(f"{stack}/scale_embeddings", self._scalars.get(old_name, 1))
            # An integer says whether there is the usual scale, a float is the scale itself.
            is_usual = isinstance(scale, int) and scale
            scales.add(math.sqrt(d_model) if is_usual else 1.0 if scale == 0 else float(scale))
        if len(scales) > 1:
            self.problems.append("model.bin: embeddings have unequal scales in encoder and decoder")
        scale = scales.pop()
        return None if math.isclose(scale, math.sqrt(d_model), rel_tol=1e-6) else scale

    def _read_positions(self) -> dict[str, Any]:
        bias = "decoder/layer_0/self_attention/relative_attention_bias"
        if bias not in self:
            return {"kind": "learned"}
        distance = "layer_0/self_attention/relative_attention_max_distance"
        distances = {int(self._number(f"{stack}/{distance}", 128)) for stack in STACKS}
        if len(distances) > 1:
            self.problems.append("model.bin: relative positions differ in encoder and decoder")
        num_buckets = self._shape(bias)[0]
        return {"kind": "relative", "num_buckets": num_buckets, "max_distance": max(distances)}

    def _count_positions(self, stack: str) -> int:
        name = f"{stack}/position_encodings/encodings"
        return self._shape(name)[0] if name in self else LONGEST

    def read_weights(self, config: Any) -> dict[str, WeightReader]:
        """Return a reader for each weight of our configuration."""
        names = {**self._vocabulary_names(config)}
        for stack in STACKS:
            names |= self._stack_names(stack, config)
        changes = self._changes(config)
        shared = r".*/layer_[1-9]\d*/self_attention/relative_attention_bias"
        table = Table(names, changes, ignored=(shared,))
        weights = read_weights(transformer_shapes(config), table, self._tensors)
        self._tensors.refuse_unused()
        return weights

    def _vocabulary_names(self, config: Any) -> dict[Any, str | WeightSource]:
        source, target = "encoder/embeddings/weight", "decoder/embeddings/weight"
        output = f"{OUTPUT}/weight"
        bias: WeightSource = (
            TensorReference(f"{OUTPUT}/bias") if f"{OUTPUT}/bias" in self else ZEROS
        )
        if not self.starts_from_zeros:
            return {
                "embedding.weight": target,
                "source_embedding.weight": source,
                "target_embedding.weight": target,
                "output.weight": output,
                "output_bias": bias,
            }
        size, dim = config.vocab_size - 1, config.d_model
        table = TensorReference(target, shape=(size, dim), change=_append_zero_row)
        if isinstance(bias, TensorReference):
            bias = TensorReference(bias.name, shape=(size,), change=_append_never)
        else:
            bias = Computed(lambda shape: _append_never(np.zeros(shape[0] - 1, np.float32)))
        return {
            "embedding.weight": table,
            "source_embedding.weight": source,
            "target_embedding.weight": table,
            "output.weight": TensorReference(output, shape=(size, dim), change=_append_zero_row),
            "output_bias": bias,
        }

    def _linears(self, stack: str) -> dict[str, tuple[str, ...]]:
        """Return the names of ours that are in each linear layer of theirs, of layer 0."""
        layer = f"{stack}/layer_0"
        linears = {
            f"{layer}/self_attention/linear_0": ("query", "key", "value"),
            f"{layer}/self_attention/linear_1": ("output",),
            f"{layer}/ffn/linear_0": ("up",),
            f"{layer}/ffn/linear_1": ("down",),
        }
        linears = {
            name: tuple(
                f"{'feed_forward' if '/ffn/' in name else 'self_attention'}.{part}"
                for part in parts
            )
            for name, parts in linears.items()
        }
        gate = f"{layer}/ffn/linear_0_noact"
        if f"{gate}/weight" in self:
            linears[f"{layer}/ffn/linear_0"] = ("feed_forward.gate",)
            linears[gate] = ("feed_forward.up",)
        if stack == "decoder":
            linears |= {
                f"{layer}/attention/linear_0": ("cross_attention.query",),
                f"{layer}/attention/linear_1": ("cross_attention.key", "cross_attention.value"),
                f"{layer}/attention/linear_2": ("cross_attention.output",),
            }
        return linears

    def _stack_names(self, stack: str, config: Any) -> Names:
        ours, theirs = f"{stack}.layers.*", f"{stack}/layer_*"
        names: dict[Any, str | WeightSource] = {
            f"{stack}.positions.weight": self._position_source(stack),
            f"{stack}.norm": _norm(f"{stack}/layer_norm"),
            f"{stack}.embedding_norm": _norm(f"{stack}/layernorm_embedding"),
            f"{ours}.self_attention_norm": _norm(f"{theirs}/self_attention/layer_norm"),
            f"{ours}.cross_attention_norm": _norm(f"{theirs}/attention/layer_norm"),
            f"{ours}.feed_forward_norm": _norm(f"{theirs}/ffn/layer_norm"),
        }
        for name, parts in self._linears(stack).items():
            key = tuple(f"{ours}.{part}" for part in parts)
            names[key] = TensorReference(f"{name.replace('layer_0', 'layer_*')}/{{}}")
            if config.imported.biases and f"{name}/bias" not in self:
                names |= {f"{part}.bias": ZEROS for part in key}
        return names

    def _position_source(self, stack: str) -> WeightSource:
        bias = f"{stack}/layer_0/self_attention/relative_attention_bias"
        if bias in self:
            return TensorReference(bias)
        name = f"{stack}/position_encodings/encodings"
        return TensorReference(name) if name in self else Computed(partial(sinusoids, first=1))

    def _changes(self, config: Any) -> dict[str, Change]:
        """Return what is done to weights for a computation that is not ours."""
        changes: dict[str, Change] = {}
        if int(self._number("decoder/activation", 0)) == SIGMOID_GELU:
            activated = "gate" if config.gated_ffn else "up"
            for stack in STACKS:
                ours = f"{stack}.layers.*.feed_forward"
                changes[f"{ours}.{activated}"] = scale_by(SIGMOID_GELU_FACTOR)
                changes[f"{ours}.down.weight"] = scale_by(1 / SIGMOID_GELU_FACTOR)
        for stack in STACKS:
            for ours, theirs in ATTENTIONS.items():
                # Scores are divided by sqrt(head_size), unless the file has another scale.
                scale = self._scalars.get(f"{stack}/layer_0/{theirs}/queries_scale")
                if scale is not None:
                    factor = float(scale) * math.sqrt(config.head_size)
                    changes[f"{stack}.layers.*.{ours}.query"] = scale_by(factor)
        outputs = self._scalars.get("decoder/scale_outputs")
        if outputs is not None:
            if config.has_final_norm:
                changes["decoder.norm"] = scale_by(float(outputs))
            else:
                self.problems.append("model.bin: scale_outputs without a final norm")
        return changes


def _spread_old_options(model: ModelFile) -> dict[str, int | float]:
    """Return single numbers by the names that they have since revision 5 of the specification:
    before, both stacks had one.
    """
    scalars = dict(model.scalars)
    if model.revision < 5:
        for name in ("num_heads", "pre_norm", "activation"):
            if (value := scalars.pop(name, None)) is not None:
                scalars |= {f"{stack}/{name}": value for stack in STACKS}
    return scalars


def _rename_embeddings(tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    """The source's table is one of a list since there are source features."""
    first = "encoder/embeddings_0/"
    return {name.replace(first, "encoder/embeddings/"): stored for name, stored in tensors.items()}


def _are_equal(first: Stored | None, other: Stored | None) -> bool:
    if first is None or other is None or first.shape != other.shape:
        return False
    return first is other or np.array_equal(first.read(), other.read())


def _norm(name: str) -> TensorReference:
    return TensorReference(f"{name}/{{}}", words=NORM_WORDS)


def _append_zero_row(table: Array) -> Array:
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])


def _append_never(bias: Array) -> Array:
    return np.append(bias, np.float32(NEVER))
