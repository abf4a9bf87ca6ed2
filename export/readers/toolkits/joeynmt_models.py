"""Configurations and weights of JoeyNMT's recurrent models and Transformers."""

from functools import partial
from typing import Any

import numpy as np

from export.readers.common.shapes import (
    STACKS,
    luong_shapes,
    read_activation,
    recurrent_encoder_names,
    transformer_shapes,
)
from export.readers.common.weights import (
    ZEROS,
    Names,
    Table,
    TensorReference,
    WeightReader,
    WeightSource,
    read_weights,
)
from export.readers.toolkits.toolkit import LONGEST, TorchModel
from models.safetensors import Array

SOURCE, TARGET = "src_embed.lut.weight", "trg_embed.lut.weight"
OUTPUT = "decoder.output_layer.weight"
NAMES = {
    "embedding.weight": TARGET,
    "source_embedding.weight": SOURCE,
    "target_embedding.weight": TARGET,
    "output.weight": OUTPUT,
}


class Embeddings:
    """The sizes of both embedding tables: one table, the output's too, if all are shared."""

    def __init__(self, model: TorchModel) -> None:
        source, target, output = model.dims(SOURCE, TARGET, OUTPUT)
        self.source_words, source_dim = source
        self.target_words, self.dim = target
        self.readout_dim = output[1]
        flag = model.options.flag
        self.are_tied = flag("tied_embeddings", False) and flag("tied_softmax", False)
        if source_dim != self.dim:
            message = f"embeddings of {source_dim} and {self.dim} numbers are not supported"
            model.problems.append(message)
        self.is_scaled = self._scales(model)

    def _scales(self, model: TorchModel) -> bool:
        """Return whether embeddings are multiplied by the root of their size; both sides must
        agree.
        """
        encoder, decoder = (
            model.options.section(stack).section("embeddings") for stack in ("encoder", "decoder")
        )
        is_scaled = encoder.flag("scale", False)
        if not model.options.flag("tied_embeddings", False):
            decoder.only("scale", is_scaled, *([] if is_scaled else [None]))
        return is_scaled


SCORES = {"luong": "general", "bahdanau": "concat"}
BRIDGES = {"bridge": "tanh", "last": "top", "zero": "zeros", "zeros": "zeros"}
CELL_TYPES = ("gru", "lstm")


class JoeyNMTRecurrent:
    """A recurrent model as our `luong`: joeynmt/encoders.py, decoders.py and attention.py.

    luong      score(h_t, h_s) = h_t . W h_s
    bahdanau   v . tanh(W h_t + U h_s)          readout tanh(W_out [h_t; c] + b), in both
    """

    def __init__(self, model: TorchModel, embeddings: Embeddings) -> None:
        self.model, self.embeddings, self.tensors = model, embeddings, model.tensors
        self.encoder = model.options.section("encoder")
        self.decoder = model.options.section("decoder")

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        [encoder, decoder] = self.model.dims("encoder.rnn.weight_hh_l0", "decoder.rnn.weight_hh_l0")
        attention = self.decoder.word("attention", "bahdanau")
        return {
            "architecture": "luong",
            "cell": self.encoder.word("rnn_type", "gru"),
            "embedding_dim": self.embeddings.dim,
            "embedding_scale": None if self.embeddings.is_scaled else 1.0,
            "hidden_dim": decoder[1],
            "readout_dim": self.embeddings.readout_dim,
            "num_layers": self.model.count("decoder.rnn.weight_hh_l{}"),
            "score": SCORES.get(attention, "general"),
            "input_feeding": self.decoder.flag("input_feeding", True),
            "imported": {
                "biases": True,
                "bidirectional": True,
                "memory_dim": 2 * encoder[1],
                "encoder_layers": self.model.count("encoder.rnn.weight_hh_l{}"),
                "bridge": BRIDGES.get(self.decoder.word("init_hidden", "bridge"), "none"),
            },
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
        }

    def _refuse_what_differs(self) -> None:
        self.encoder.only("rnn_type", *CELL_TYPES)
        self.encoder.only("bidirectional", True)
        self.decoder.only("rnn_type", self.encoder.word("rnn_type", "gru"))
        self.decoder.only("attention", *SCORES)
        self.decoder.only("init_hidden", *BRIDGES)
        self.decoder.only("activation", "tanh")

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Return readers of all weights by our names."""
        turn = partial(_context_first, dim=config.hidden_dim)
        names: dict[Any, str | WeightSource] = {
            **NAMES,
            **recurrent_encoder_names(config, "encoder.rnn"),
            "output_bias": ZEROS,
            "bridge.parts.0": "decoder.bridge_layer",
            "decoder.layers.*.input": "decoder.rnn.{}_ih_l*",
            "decoder.layers.*.hidden": "decoder.rnn.{}_hh_l*",
            "attention.score.key": "decoder.attention.key_layer",
            "attention.score.query": "decoder.attention.query_layer",
            "attention.score.query.bias": ZEROS,
            "attention.score.score": "decoder.attention.energy_layer",
            "readout": "decoder.att_vector_layer",
            "readout.weight": TensorReference("decoder.att_vector_layer.weight", change=turn),
        }
        if config.input_feeding:  # the first layer reads a word and the last readout side by side
            first = "decoder.layers.0.input.weight", "decoder.layers.0.context.weight"
            names[first] = TensorReference("decoder.rnn.weight_ih_l0", axis=1)
        return read_weights(luong_shapes(config), Table(names), self.tensors)


def _context_first(weight: Array, dim: int) -> Array:
    """Reorder the columns of a matrix for [h; c] into those for [c; h]."""
    return np.concatenate([weight[:, dim:], weight[:, :dim]], 1)


NORM = {  # of the sublayers, by ours
    "encoder.layers.*.self_attention_norm": "encoder.layers.*.layer_norm",
    "decoder.layers.*.self_attention_norm": "decoder.layers.*.x_layer_norm",
    "decoder.layers.*.cross_attention_norm": "decoder.layers.*.dec_layer_norm",
    "encoder.norm": "encoder.layer_norm",
    "decoder.norm": "decoder.layer_norm",
}
ATTENTIONS = {
    "encoder.layers.*.self_attention": "encoder.layers.*.src_src_att",
    "decoder.layers.*.self_attention": "decoder.layers.*.trg_trg_att",
    "decoder.layers.*.cross_attention": "decoder.layers.*.src_trg_att",
}
PARTS = {"query": "q_layer", "key": "k_layer", "value": "v_layer", "output": "output_layer"}
IGNORED = (r"(encoder|decoder)\.pe\.pe",)  # sinusoids
UNSAID = {"encoder": "pre", "decoder": "post"}  # where layers are normalised, if nothing is said
EPSILON = 1e-6


class JoeyNMTTransformer:
    """A Transformer: joeynmt/transformer_layers.py, encoders.py and decoders.py."""

    def __init__(self, model: TorchModel, embeddings: Embeddings) -> None:
        self.model, self.embeddings, self.tensors = model, embeddings, model.tensors
        self.stacks = {stack: model.options.section(stack) for stack in STACKS}

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        encoder, count = self.stacks["encoder"], self.model.count
        final = [f"{stack}.layer_norm.weight" in self.tensors for stack in STACKS]
        if len(set(final)) > 1:
            missing = STACKS[final.index(False)]
            self.model.problems.append(f"{missing}.layer_norm.weight is missing")
        for stack in self.stacks.values():
            stack.only("alpha", 1, 1.0)  # how often a sublayer's input counts (Wang et al. 2022)
        return {
            "architecture": "transformer",
            "d_model": self.embeddings.dim,
            "num_heads": self._equal("num_heads", encoder.integer("num_heads", 4)),
            "ffn_dim": self.model.dims("encoder.layers.0.feed_forward.pwff_layer.0.weight")[0][0],
            "encoder_layers": count("encoder.layers.{}.feed_forward.pwff_layer.0.weight"),
            "decoder_layers": count("decoder.layers.{}.feed_forward.pwff_layer.0.weight"),
            "positions": {"kind": "sinusoidal"},
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
            "norm": {"place": self._place(final[0]), "epsilon": EPSILON},
            "imported": {
                "final_norm": final[0],
                "embedding_scale": None if self.embeddings.is_scaled else 1.0,
            },
            "activation": self._equal(
                "activation", read_activation(encoder, "activation", "relu"), "relu"
            ),
        }

    def _equal(self, name: str, expected: Any, default: Any = None) -> Any:
        """Check an option that both sides must agree on; `expected` is the encoder's."""
        decoder, said = self.stacks["decoder"], self.stacks["encoder"].values.get(name, default)
        if decoder.values.get(name, default) != said:
            decoder.refuse(name, f"must be {said}: unequal sides are not supported")
        return expected

    def _place(self, has_final_norm: bool) -> str:
        """Return where sublayers are normalised. Version 1 had only "pre", and no option."""
        unsaid = dict.fromkeys(STACKS, "pre") if has_final_norm else UNSAID
        encoder, decoder = (
            options.word("layer_norm", unsaid[stack]) for stack, options in self.stacks.items()
        )
        self.stacks["encoder"].only("layer_norm", "pre", "post")
        if encoder != decoder:
            message = f"must be {encoder}: unequal sides are not supported"
            self.stacks["decoder"].refuse("layer_norm", message)
        return encoder

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Return readers of all weights by our names."""
        names: dict[str, str] = {**NAMES, **NORM}
        for stack in STACKS:
            ours = theirs = f"{stack}.layers.*"
            names[f"{ours}.feed_forward_norm"] = f"{theirs}.feed_forward.layer_norm"
            names[f"{ours}.feed_forward.up"] = f"{theirs}.feed_forward.pwff_layer.0"
            names[f"{ours}.feed_forward.down"] = f"{theirs}.feed_forward.pwff_layer.3"
        for ours, theirs in ATTENTIONS.items():
            names |= {f"{ours}.{part}": f"{theirs}.{name}" for part, name in PARTS.items()}
        table: Names = names
        return read_weights(transformer_shapes(config), Table(table, ignored=IGNORED), self.tensors)
