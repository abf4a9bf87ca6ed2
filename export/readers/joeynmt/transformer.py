"""Reads Transformers of JoeyNMT: joeynmt/transformer_layers.py, encoders.py and decoders.py."""

from typing import Any

from export.readers.common.activations import read_activation
from export.readers.common.shapes import STACKS, transformer_shapes
from export.readers.common.tables import Names, Table, read_weights
from export.readers.common.toolkits import LONGEST, TorchModel
from export.readers.common.weights import WeightReader
from export.readers.joeynmt.embeddings import NAMES, Embeddings

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
NEEDLESS = (r"(encoder|decoder)\.pe\.pe",)  # sinusoids
UNSAID = {"encoder": "pre", "decoder": "post"}  # where layers are normalised, if nothing is said
EPSILON = 1e-6


class JoeyNMTTransformer:
    """Reads configuration and weights of one checkpoint."""

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
        """Tell where sublayers are normalised: version 1 knew "pre" only, and said nothing."""
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
        """Find them by our names."""
        names: dict[str, str] = {**NAMES, **NORM}
        for stack in STACKS:
            ours = theirs = f"{stack}.layers.*"
            names[f"{ours}.feed_forward_norm"] = f"{theirs}.feed_forward.layer_norm"
            names[f"{ours}.feed_forward.up"] = f"{theirs}.feed_forward.pwff_layer.0"
            names[f"{ours}.feed_forward.down"] = f"{theirs}.feed_forward.pwff_layer.3"
        for ours, theirs in ATTENTIONS.items():
            names |= {f"{ours}.{part}": f"{theirs}.{name}" for part, name in PARTS.items()}
        table: Names = names
        return read_weights(
            transformer_shapes(config), Table(table, needless=NEEDLESS), self.tensors
        )
