"""Configurations and weights of fairseq's Transformers and LSTMs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.shapes import (
    STACKS,
    luong_shapes,
    read_activation,
    recurrent_encoder_names,
    sinusoids,
    stack_names,
    transformer_shapes,
)
from export.readers.common.weights import (
    ZEROS,
    Computed,
    Merged,
    Names,
    Shape,
    Table,
    TensorReference,
    WeightReader,
    WeightSource,
    read_weights,
)
from export.readers.toolkits.toolkit import LONGEST, TorchModel
from models.architectures.luong.config import LuongConfig
from models.safetensors import Array

FIRST_POSITION = 2  # positions count on from the padding's id, which is 1
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"


class FairseqReader:
    """Base class of the readers of fairseq's models.

    dim: of both embedding tables; models whose tables differ are refused.
    """

    def __init__(self, model: TorchModel) -> None:
        self.model, self.options, self.tensors = model, model.options, model.tensors
        source, target = model.dims(SOURCE, TARGET)
        self.source_words, source_dim = source
        self.target_words, self.dim = target
        if source_dim != self.dim:
            model.problems.append(f"embeddings of {source_dim} and {self.dim} are not supported")


OUTPUTS = ("decoder.output_projection.weight", "decoder.embed_out")  # now and before 0.9

OLDER_NORMS = {  # once they were numbered
    "encoder": ("self_attention_norm", "feed_forward_norm"),
    "decoder": ("self_attention_norm", "cross_attention_norm", "feed_forward_norm"),
}
ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
IGNORED = (
    r"(encoder|decoder)\.version",
    r"(encoder|decoder)\.embed_positions\.(_float_tensor|weights)",
    # copies for torch's fused encoder layers (0.12)
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
)


class FairseqTransformer(FairseqReader):
    """A Transformer of fairseq: models/transformer and modules/transformer_layer.py."""

    def __init__(self, model: TorchModel) -> None:
        super().__init__(model)
        self.are_tied = model.options.flag("share_all_embeddings", False)
        self.has_learned_positions = bool(self._equal("learned_pos", False))

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        options, count = self.options, self.model.count
        return {
            "architecture": "transformer",
            "vocab_size": self.target_words,
            "source_vocab_size": None if self.are_tied else self.source_words,
            "tied_embeddings": self.are_tied,
            "d_model": self.dim,
            "num_heads": self._equal("attention_heads", 8),
            "ffn_dim": self.model.dims("encoder.layers.0.fc1.weight")[0][0],
            "encoder_layers": count("encoder.layers.{}.fc1.weight"),
            "decoder_layers": count("decoder.layers.{}.fc1.weight"),
            "positions": {"kind": "learned"},
            "max_source_tokens": self._num_positions("encoder", "max_source_positions"),
            "max_target_tokens": self._num_positions("decoder", "max_target_positions"),
            "norm": {"place": "pre" if self._equal("normalize_before", False) else "post"},
            "activation": read_activation(options, "activation_fn", "relu"),
            "imported": {
                "final_norm": self._has_in_both("layer_norm"),
                "embedding_norm": self._has_in_both("layernorm_embedding"),
                "embedding_scale": 1.0 if options.flag("no_scale_embedding", False) else None,
            },
        }

    def _refuse_what_differs(self) -> None:
        only = self.options.only
        for name in (
            "adaptive_input",
            "no_cross_attention",
            "cross_self_attention",
            "no_token_positional_embeddings",
            "character_embeddings",
        ):
            only(name, False)
        if "adaptive_softmax_cutoff" in self.options:
            self.options.refuse("adaptive_softmax_cutoff")

    def _equal(self, name: str, default: int) -> int:
        """Read an option that both sides must agree on; a flag if the default is."""
        read: Any = self.options.flag if isinstance(default, bool) else self.options.integer
        encoder, decoder = (read(f"{stack}_{name}", default) for stack in STACKS)
        if encoder != decoder:
            message = f"must be encoder_{name} {encoder}: unequal sides are not supported"
            self.options.refuse(f"decoder_{name}", message)
        return encoder

    def _has_in_both(self, name: str) -> bool:
        """Return whether encoder and decoder have this norm. If only one of them has it, that is a
        problem.
        """
        has = [f"{stack}.{name}.weight" in self.tensors for stack in STACKS]
        if len(set(has)) > 1:
            missing = STACKS[has.index(False)]
            self.model.problems.append(f"{missing}.{name}.weight is missing")
        return all(has)

    def _num_positions(self, stack: str, option: str) -> int:
        if self.has_learned_positions:
            [table] = self.model.dims(f"{stack}.embed_positions.weight")
            return max(table[0] - FIRST_POSITION, 0)
        return min(self.options.integer(option, LONGEST), LONGEST)

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Return readers of all weights by our names."""
        names = stack_names()
        table = {**names, **self._vocabulary(), **self._older_norms(names), **self._joined()}
        table |= {f"{stack}.positions": self._positions(stack) for stack in STACKS}
        found = Table(table, ignored=IGNORED)
        return read_weights(transformer_shapes(config), found, self.tensors)

    def _vocabulary(self) -> Names:
        """Take the target's table for a shared output, which the file need not repeat."""
        is_shared = self.options.flag("share_decoder_input_output_embed", False)
        held = (*OUTPUTS, TARGET) if is_shared else OUTPUTS[::-1]
        return {
            "embedding.weight": TARGET,
            "source_embedding.weight": SOURCE,
            "target_embedding.weight": TARGET,
            "output.weight": TensorReference(held),
        }

    def _older_norms(self, names: Mapping[str, str]) -> Names:
        older = {
            f"{stack}.layers.*.{name}": f"{stack}.layers.*.layer_norms.{number}"
            for stack, norms in OLDER_NORMS.items()
            for number, name in enumerate(norms)
        }
        return {ours: TensorReference((theirs, names[ours])) for ours, theirs in older.items()}

    def _joined(self) -> Names:
        """Before 0.9 queries, keys and values were one matrix."""
        if not any(".self_attn.in_proj_" in name for name in self.tensors.stored):
            return {}
        parts = ("query", "key", "value")
        return {
            tuple(f"{stack}.layers.*.{ours}.{part}" for part in parts): TensorReference(
                f"{stack}.layers.*.{theirs}.in_proj_{{}}"
            )
            for stack in STACKS
            for theirs, ours in ATTENTIONS.items()
        }

    def _positions(self, stack: str) -> TensorReference | Computed:
        if self.has_learned_positions:
            return TensorReference(f"{stack}.embed_positions", skipped=FIRST_POSITION)
        return Computed(partial(sinusoids, first=FIRST_POSITION))


OUTPUT, INNER = "decoder.fc_out", "decoder.additional_fc"
PROJECTED = "decoder.encoder_hidden_proj.weight"
PROJECTIONS = {"bridge.parts.0": "hidden", "bridge.parts.1": "cell"}
CELLS: dict[Any, str | WeightSource] = {
    "decoder.layers.*.input": "decoder.layers.*.{}_ih",
    "decoder.layers.*.hidden": "decoder.layers.*.{}_hh",
    # the first reads a word and the last readout side by side
    ("decoder.layers.0.input.weight", "decoder.layers.0.context.weight"): TensorReference(
        "decoder.layers.0.weight_ih", axis=1
    ),
}


class FairseqRecurrent(FairseqReader):
    """An LSTM of fairseq as our `luong`: models/lstm.py.

    score(h_t, h_s) = (W h_t) . h_s, readout tanh(W_out [c; h_t]). A layer between the readout and
    the output, where there is one, is multiplied into the output.
    """

    def __init__(self, model: TorchModel) -> None:
        super().__init__(model)
        self.has_inner = f"{INNER}.weight" in self.tensors
        self.shares_all = model.options.flag("share_all_embeddings", False)
        shares_output = model.options.flag("share_decoder_input_output_embed", False)
        self.shares_output = self.shares_all or shares_output

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        [encoder, decoder] = self.model.dims(
            "encoder.lstm.weight_hh_l0", "decoder.layers.0.weight_hh"
        )
        is_both = "encoder.lstm.weight_hh_l0_reverse" in self.tensors
        is_tied = self.shares_all and not self.has_inner
        return {
            "architecture": "luong",
            "cell": "lstm",
            "vocab_size": self.target_words,
            "source_vocab_size": None if is_tied else self.source_words,
            "tied_embeddings": is_tied,
            "embedding_dim": self.dim,
            "embedding_scale": 1.0,
            "hidden_dim": decoder[1],
            "readout_dim": decoder[1],
            "num_layers": self.model.count("decoder.layers.{}.weight_hh"),
            "score": "general",
            "imported": {
                "bidirectional": is_both,
                "memory_dim": encoder[1] * (2 if is_both else 1),
                "bridge": "linear" if PROJECTED in self.tensors else "none",
            },
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
        }

    def _refuse_what_differs(self) -> None:
        self.options.only("decoder_attention", True, "1", "True")
        if "decoder.adaptive_softmax.head.weight" in self.tensors:
            self.options.refuse("adaptive_softmax_cutoff")

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Return readers of all weights by our names."""
        names: dict[Any, str | WeightSource] = {
            "embedding.weight": TARGET,
            "source_embedding.weight": SOURCE,
            "target_embedding.weight": TARGET,
            **recurrent_encoder_names(config, "encoder.lstm"),
            **CELLS,
            **{ours: f"decoder.encoder_{part}_proj" for ours, part in PROJECTIONS.items()},
            "attention.score.key": TensorReference(
                "decoder.attention.input_proj", is_transposed=True
            ),
            "readout": "decoder.attention.output_proj",
            "output_bias": self._output_bias(config),
        }
        if not config.tied_embeddings:
            names["output.weight"] = self._output(config)
        ignored = (r"encoder\.embed_tokens\.weight",) if self.shares_all else ()
        return read_weights(luong_shapes(config), Table(names, {}, ignored), self.tensors)

    def _output(self, config: LuongConfig) -> str | WeightSource:
        name = TARGET if self.shares_output else f"{OUTPUT}.weight"
        if not self.has_inner:
            return name
        [(inner, _)] = self.model.dims(f"{INNER}.weight")
        parts = {name: (config.vocab_size, inner), f"{INNER}.weight": (inner, config.hidden_dim)}
        return Merged(parts, product)

    def _output_bias(self, config: LuongConfig) -> str | WeightSource:
        """Make zeros where there is none, and of the inner layer's bias its part."""
        bias: dict[str, Shape] = {}
        if not self.shares_output:
            bias = {f"{OUTPUT}.bias": (config.vocab_size,)}
        if not self.has_inner:
            return next(iter(bias), ZEROS)
        [(inner, _)] = self.model.dims(f"{INNER}.weight")
        name = TARGET if self.shares_output else f"{OUTPUT}.weight"
        parts = {name: (config.vocab_size, inner), f"{INNER}.bias": (inner,)}
        return Merged(parts | bias, _biased)


def product(outer: Array, inner: Array) -> Array:
    """Multiply matrices, or a matrix and a vector, in double precision."""
    return (outer.astype(np.float64) @ inner).astype(np.float32)


def _biased(outer: Array, inner: Array, *bias: Array) -> Array:
    return product(outer, inner) + (bias[0] if bias else np.float32(0))
