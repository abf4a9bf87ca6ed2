"""Transformers of fairseq (fairseq/models/transformer, fairseq/modules/transformer_layer.py)."""

from typing import Any

from export.readers.hugging_face.tensors import Source, rows
from export.readers.sinusoids import concatenated
from export.readers.torch_models import LONGEST, TorchModel

ACTIVATIONS = {  # activation_fn -> ours
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "swish",
}
FIRST_POSITION = 2  # positions count on from the padding's id, which is 1
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
OUTPUTS = ("decoder.output_projection.weight", "decoder.embed_out")  # now and before 0.9
STACKS = ("encoder", "decoder")

# of a layer: theirs, once a number -> ours
NORMS = {
    "encoder": {
        "self_attn_layer_norm": ("layer_norms.0", "self_attention_norm"),
        "final_layer_norm": ("layer_norms.1", "feed_forward_norm"),
    },
    "decoder": {
        "self_attn_layer_norm": ("layer_norms.0", "self_attention_norm"),
        "encoder_attn_layer_norm": ("layer_norms.1", "cross_attention_norm"),
        "final_layer_norm": ("layer_norms.2", "feed_forward_norm"),
    },
}
ATTENTIONS = {
    "encoder": {"self_attn": "self_attention"},
    "decoder": {"self_attn": "self_attention", "encoder_attn": "cross_attention"},
}
NEEDLESS = (
    r"(encoder|decoder)\.version",
    r"(encoder|decoder)\.embed_positions\.(_float_tensor|weights)",
    # copies for torch's fused encoder layers (0.12)
    r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)",
)


class TransformerReader:
    """Configuration and weights of one checkpoint."""

    def __init__(self, model: TorchModel) -> None:
        self.model, self.options, self.tensors = model, model.options, model.tensors
        source, target = model.dims(SOURCE, TARGET)
        self.source_words, source_dim = source
        self.target_words, self.dim = target
        if source_dim != self.dim:
            model.problems.append(f"embeddings of {source_dim} and {self.dim} are not supported")
        self.are_tied = model.options.flag("share_all_embeddings", False)
        self.has_learned_positions = bool(self._equal("learned_pos", False))

    def values(self) -> dict[str, Any]:
        """Options of ours."""
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
            "positions": "learned",
            "max_source_tokens": self._num_positions("encoder", "max_source_positions"),
            "max_target_tokens": self._num_positions("decoder", "max_target_positions"),
            "norm": "pre" if self._equal("normalize_before", False) else "post",
            "final_norm": self._has_in_both("layer_norm"),
            "embedding_norm": self._has_in_both("layernorm_embedding"),
            "embedding_scale": 1.0 if options.flag("no_scale_embedding", False) else None,
            "activation": self._activation(),
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

    def _activation(self) -> str:
        name = self.options.word("activation_fn", "relu")
        if name not in ACTIVATIONS:
            self.options.refuse("activation_fn")
        return ACTIVATIONS.get(name, "relu")

    def _equal(self, name: str, default: int) -> int:
        """An option that the encoder and the decoder must agree on; a flag if the default is."""
        read: Any = self.options.flag if isinstance(default, bool) else self.options.integer
        encoder, decoder = (read(f"{stack}_{name}", default) for stack in STACKS)
        if encoder != decoder:
            message = f"must be encoder_{name} {encoder}: unequal sides are not supported"
            self.options.refuse(f"decoder_{name}", message)
        return encoder

    def _has_in_both(self, name: str) -> bool:
        """Whether the encoder and the decoder have this norm; one alone is a problem."""
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

    def weights(self, config: Any) -> dict[str, Source]:
        """By our names."""
        for pattern in NEEDLESS:
            self.tensors.drop(pattern)
        found = self._embeddings()
        for stack in STACKS:
            for n in range(getattr(config, f"{stack}_layers")):
                found |= self._layer(config, stack, f"{stack}.layers.{n}")
            if config.has_final_norm:
                found |= self._norm(f"{stack}.layer_norm", f"{stack}.norm")
            if config.embedding_norm:
                found |= self._norm(f"{stack}.layernorm_embedding", f"{stack}.embedding_norm")
        found["encoder.positions.weight"] = self._positions("encoder", config.max_source_tokens)
        found["decoder.positions.weight"] = self._positions("decoder", config.max_target_tokens)
        return found

    def _embeddings(self) -> dict[str, Source]:
        target = self.tensors.take(TARGET, self.target_words, self.dim)
        source = self.tensors.take(SOURCE, self.source_words, self.dim)
        output = self._output(target)
        if self.are_tied:
            return {"embedding.weight": target}
        return {
            "source_embedding.weight": source,
            "target_embedding.weight": target,
            "output.weight": output,
        }

    def _output(self, target: Source) -> Source:
        """The target's table, where it is shared and the file need not hold it again."""
        is_shared = self.options.flag("share_decoder_input_output_embed", False) or self.are_tied
        held = next((name for name in OUTPUTS if name in self.tensors), None)
        if held is None and is_shared:
            return target
        return self.tensors.take(held or OUTPUTS[0], self.target_words, self.dim)

    def _positions(self, stack: str, number: int) -> Source:
        if not self.has_learned_positions:
            return lambda: concatenated(number, self.dim, FIRST_POSITION)
        end = number + FIRST_POSITION
        table = self.tensors.take(f"{stack}.embed_positions.weight", end, self.dim)
        return rows(table, FIRST_POSITION, end)

    def _layer(self, config: Any, stack: str, layer: str) -> dict[str, Source]:
        found: dict[str, Source] = {}
        for theirs, ours in ATTENTIONS[stack].items():
            found |= self._attention(f"{layer}.{theirs}", f"{layer}.{ours}")
        for theirs, (once, ours) in NORMS[stack].items():
            is_old = f"{layer}.{once}.weight" in self.tensors
            found |= self._norm(f"{layer}.{once if is_old else theirs}", f"{layer}.{ours}")
        dims = {"fc1": ("up", config.ffn_dim, self.dim), "fc2": ("down", self.dim, config.ffn_dim)}
        for theirs, (ours, out_dim, in_dim) in dims.items():
            there, here = f"{layer}.{theirs}", f"{layer}.feed_forward.{ours}"
            found[f"{here}.weight"] = self.tensors.take(f"{there}.weight", out_dim, in_dim)
            found[f"{here}.bias"] = self.tensors.take(f"{there}.bias", out_dim)
        return found

    def _attention(self, theirs: str, ours: str) -> dict[str, Source]:
        """Before 0.9 queries, keys and values were one matrix."""
        found: dict[str, Source] = {}
        for kind, shape in (("weight", (self.dim,)), ("bias", ())):
            joined = f"{theirs}.in_proj_{kind}"
            is_old = joined in self.tensors
            whole = self.tensors.take(joined, 3 * self.dim, *shape) if is_old else None
            for n, part in enumerate(("query", "key", "value")):
                name = f"{theirs}.{part[0]}_proj.{kind}"
                found[f"{ours}.{part}.{kind}"] = (
                    rows(whole, n * self.dim, (n + 1) * self.dim)
                    if whole is not None
                    else self.tensors.take(name, self.dim, *shape)
                )
            output = self.tensors.take(f"{theirs}.out_proj.{kind}", self.dim, *shape)
            found[f"{ours}.output.{kind}"] = output
        return found

    def _norm(self, theirs: str, ours: str) -> dict[str, Source]:
        parts = ("weight", "bias")
        return {f"{ours}.{part}": self.tensors.take(f"{theirs}.{part}", self.dim) for part in parts}
