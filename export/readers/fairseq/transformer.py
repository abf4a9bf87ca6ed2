"""Reads fairseq's Transformers: models/transformer and modules/transformer_layer.py of it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from export.readers.common.activations import read_activation
from export.readers.common.bart_names import stack_names
from export.readers.common.shapes import STACKS, transformer_shapes
from export.readers.common.sinusoids import sinusoids
from export.readers.common.tables import Held, Made, Names, Table, read_weights
from export.readers.common.toolkits import LONGEST, TorchModel
from export.readers.common.weights import WeightReader
from export.readers.fairseq.embeddings import FIRST_POSITION, SOURCE, TARGET
from export.readers.fairseq.reader import FairseqReader

OUTPUTS = ("decoder.output_projection.weight", "decoder.embed_out")  # now and before 0.9

OLDER_NORMS = {  # once they were numbered
    "encoder": ("self_attention_norm", "feed_forward_norm"),
    "decoder": ("self_attention_norm", "cross_attention_norm", "feed_forward_norm"),
}
ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
NEEDLESS = (
    r"(encoder|decoder)\.version",
    r"(encoder|decoder)\.embed_positions\.(_float_tensor|weights)",
    # copies for torch's fused encoder layers (0.12)
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
)


class FairseqTransformer(FairseqReader):
    """Reads configuration and weights of one checkpoint."""

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
        """Tell whether the encoder and the decoder have this norm; one alone is a problem."""
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
        """Find them by our names."""
        names = stack_names()
        table = {**names, **self._vocabulary(), **self._older_norms(names), **self._joined()}
        table |= {f"{stack}.positions": self._positions(stack) for stack in STACKS}
        found = Table(table, needless=NEEDLESS)
        return read_weights(transformer_shapes(config), found, self.tensors)

    def _vocabulary(self) -> Names:
        """Take the target's table for a shared output, which the file need not repeat."""
        is_shared = self.options.flag("share_decoder_input_output_embed", False)
        held = (*OUTPUTS, TARGET) if is_shared else OUTPUTS[::-1]
        return {
            "embedding.weight": TARGET,
            "source_embedding.weight": SOURCE,
            "target_embedding.weight": TARGET,
            "output.weight": Held(held),
        }

    def _older_norms(self, names: Mapping[str, str]) -> Names:
        older = {
            f"{stack}.layers.*.{name}": f"{stack}.layers.*.layer_norms.{number}"
            for stack, norms in OLDER_NORMS.items()
            for number, name in enumerate(norms)
        }
        return {ours: Held((theirs, names[ours])) for ours, theirs in older.items()}

    def _joined(self) -> Names:
        """Before 0.9 queries, keys and values were one matrix."""
        if not any(".self_attn.in_proj_" in name for name in self.tensors.stored):
            return {}
        parts = ("query", "key", "value")
        return {
            tuple(f"{stack}.layers.*.{ours}.{part}" for part in parts): Held(
                f"{stack}.layers.*.{theirs}.in_proj_{{}}"
            )
            for stack in STACKS
            for theirs, ours in ATTENTIONS.items()
        }

    def _positions(self, stack: str) -> Held | Made:
        if self.has_learned_positions:
            return Held(f"{stack}.embed_positions", skipped=FIRST_POSITION)
        return Made(partial(sinusoids, first=FIRST_POSITION))
