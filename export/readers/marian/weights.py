"""Marian's weights under our names.

Marian multiplies by [in, out], we by [out, in]. Its decoder begins with a vector of zeros in place
of a token: here that is a token of its own, the last of the target's vocabulary, which is never
produced. Its sinusoids are [sin | cos] halves. Its `gelu` is x sigmoid(1.702 x): swish of 1.702
times x, divided by 1.702, which goes into the weights before and after it.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from export.readers.hugging_face.options import Options
from export.readers.hugging_face.tensors import Source, Tensors, scaled, then, transposed
from export.readers.marian.items import OPTIONS, Item
from export.readers.marian.options import has_trained_positions
from models.arrays import Array
from models.configs.translators.transformer import TransformerSizes
from models.storage.quantised import Quantised

GELU = 1.702
LEVELS = 127  # of int8: Marian clips what it multiplies to -127..127
NEVER = -300.0  # added to the score of the token that stands for the zero vector: e^-300 is 0
ALPHA = "_QuantMultA"  # levels to a unit of what is multiplied by a weight
OUTPUT_ALPHA = f"none{ALPHA}"  # of the output layer, where its weight is an embedding


class MarianWeights:
    """Sources of a model's weights by our names, and how those in int8 are quantised."""

    def __init__(
        self,
        items: Mapping[str, Item],
        config: TransformerSizes,
        options: Options,
        unk: int | None,
    ) -> None:
        """unk: is never produced, as in Marian; None where there is no such token."""
        stored = {name: item.stored for name, item in items.items()}
        self._items, self._tensors = items, Tensors(stored, options.problems)
        self._config, self._options, self._unk = config, options, unk
        self.sources: dict[str, Source] = {}
        self.quantised: dict[str, Quantised] = {}
        self._add_embeddings()
        for stack, num_layers in (
            ("encoder", config.encoder_layers),
            ("decoder", config.decoder_layers),
        ):
            self._add_stack(stack, num_layers)
        self._tensors.drop(f".*{ALPHA}")
        self._tensors.drop(OPTIONS)
        self._tensors.finish()

    def _add_stack(self, stack: str, num_layers: int) -> None:
        self._add_positions(stack)
        if self._config.embedding_norm:
            self._add_norm(f"{stack}.embedding_norm", f"{stack}_emb_ln", "_pre")
        if self._config.has_final_norm:
            self._add_norm(f"{stack}.norm", f"{stack}_top_ln")
        for layer in range(num_layers):
            add = self._add_encoder_layer if stack == "encoder" else self._add_decoder_layer
            add(f"{stack}.layers.{layer}", f"{stack}_l{layer + 1}")

    def _add_encoder_layer(self, name: str, theirs: str) -> None:
        self._add_attention(f"{name}.self_attention", f"{theirs}_self")
        self._add_feed_forward(f"{name}.feed_forward", f"{theirs}_ffn")

    def _add_decoder_layer(self, name: str, theirs: str) -> None:
        if self._config.architecture == "transformer-ssru":
            self._add_recurrence(f"{name}.recurrence", f"{theirs}_rnn")
        else:
            self._add_attention(f"{name}.self_attention", f"{theirs}_self")
        self._add_attention(f"{name}.cross_attention", f"{theirs}_context")
        self._add_feed_forward(f"{name}.feed_forward", f"{theirs}_ffn")

    def _add_attention(self, name: str, theirs: str) -> None:
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")):
            self._add_linear(f"{name}.{part}", f"{theirs}_W{letter}", f"{theirs}_b{letter}")
        self._add_sublayer_norm(f"{name}_norm", f"{theirs}_Wo")

    def _add_recurrence(self, name: str, theirs: str) -> None:
        self._add_linear(f"{name}.forget", f"{theirs}_Wf", f"{theirs}_bf")
        self._add_linear(f"{name}.input", f"{theirs}_W", None)
        self._add_sublayer_norm(f"{name}_norm", theirs, post="_ffn")

    def _add_feed_forward(self, name: str, theirs: str) -> None:
        dims = self._config.d_model, self._config.ffn_dim
        is_gelu = self._options.values.get("transformer-ffn-activation") == "gelu"
        factor = GELU if is_gelu else 1.0
        self._add_linear(f"{name}.up", f"{theirs}_W1", f"{theirs}_b1", dims, factor)
        down = f"{name}.down"
        self._add_linear(down, f"{theirs}_W2", f"{theirs}_b2", dims[::-1])
        if is_gelu:
            self._divide_input(f"{down}.weight", GELU)
        self._add_sublayer_norm(f"{name}_norm", f"{theirs}_ffn")

    def _add_linear(
        self,
        name: str,
        weight: str,
        bias: str | None,
        dims: tuple[int, int] | None = None,
        factor: float = 1.0,
    ) -> None:
        """dims: of input and output; d_model both by default. factor: of what comes out."""
        in_dim, out_dim = dims or (self._config.d_model, self._config.d_model)
        source = self._tensors.take(weight, in_dim, out_dim)
        self.sources[f"{name}.weight"] = scaled(transposed(source), factor)
        self._note_levels(f"{name}.weight", weight, f"{weight}{ALPHA}", factor)
        if bias is not None:
            self.sources[f"{name}.bias"] = scaled(self._vector(bias, out_dim), factor)

    def _divide_input(self, name: str, factor: float) -> None:
        self.sources[name] = scaled(self.sources[name], 1 / factor)
        if name in self.quantised:
            self.quantised[name] = self.quantised[name].of_input_times(factor)

    def _note_levels(self, name: str, weight: str, alpha: str, factor: float = 1.0) -> None:
        item = self._items.get(weight)
        if item is None or item.multiplier is None:
            return
        if not (math.isfinite(item.multiplier) and item.multiplier > 0):
            self._options.problems.append(f"{weight} has the multiplier {item.multiplier}")
            return
        self.quantised[name] = Quantised(factor / item.multiplier, self._input_range(alpha))

    def _input_range(self, alpha: str) -> float | None:
        item = self._items.get(alpha)
        if item is None or item.kind != "F32" or item.multiplier is not None:
            return None
        levels = float(item.read().flat[0])
        if not (math.isfinite(levels) and levels > 0):
            self._options.problems.append(f"{alpha} is {levels}, which is no multiplier")
            return None
        return LEVELS / levels

    def _add_sublayer_norm(self, name: str, theirs: str, post: str = "") -> None:
        """Before a sublayer the norm is named after it alone, after it as well after `post`."""
        if self._config.norm == "pre":
            self._add_norm(name, f"{theirs}_ln", "_pre")
        else:
            self._add_norm(name, f"{theirs}{post}_ln")

    def _add_norm(self, name: str, theirs: str, suffix: str = "") -> None:
        for part, word in (("weight", "scale"), ("bias", "bias")):
            tensor = f"{theirs}_{word}{suffix}"
            self.sources[f"{name}.{part}"] = self._vector(tensor, self._config.d_model)

    def _vector(self, name: str, dim: int) -> Source:
        return then(self._tensors.take(name, 1, dim), np.ravel)

    def _add_positions(self, stack: str) -> None:
        config = self._config
        count = config.max_source_tokens if stack == "encoder" else config.max_target_tokens
        name = f"{stack}.positions.weight"
        if not has_trained_positions(self._options):
            self.sources[name] = partial(sinusoids, count, config.d_model)
            return
        num_rows = self._items["Wpos"].shape[0] if "Wpos" in self._items else 1
        table = self._tensors.take("Wpos", num_rows, config.d_model)
        self.sources[name] = then(table, partial(_first_rows, count=count))

    def _add_embeddings(self) -> None:
        config, options = self._config, self._options
        size, dim = config.vocab_size - 1, config.d_model
        for name, theirs in _embedding_names(options):
            if theirs == "decoder_ff_logit_out_W":
                source = transposed(self._tensors.take(theirs, dim, size))
                self._note_levels(name, theirs, f"{theirs}{ALPHA}")
            else:
                num_rows = config.source_vocabulary if name == "source_embedding.weight" else size
                source = self._tensors.take(theirs, num_rows, dim)
                self._note_levels(name, theirs, OUTPUT_ALPHA)
            if name != "source_embedding.weight":
                source = then(source, _with_zero_row)
            self.sources[name] = source
        self.sources["output_bias"] = then(self._output_bias(size), self._without_specials)

    def _without_specials(self, bias: Array) -> Array:
        bias = np.append(bias, np.float32(NEVER))
        if self._unk is not None and self._unk < len(bias):
            bias[self._unk] = NEVER
        return bias

    def _output_bias(self, size: int) -> Source:
        if self._options.flag("output-omit-bias", False):
            return lambda: np.zeros(size, np.float32)
        return self._vector("decoder_ff_logit_out_b", size)


def embedding_names(options: Options) -> tuple[str, str]:
    """Theirs, of source and target."""
    if options.flag("tied-embeddings-all", False) or options.flag("tied-embeddings-src", False):
        return "Wemb", "Wemb"
    return "encoder_Wemb", "decoder_Wemb"


def _embedding_names(options: Options) -> Iterator[tuple[str, str]]:
    """Our name and theirs, of every embedding and of the output layer."""
    source, target = embedding_names(options)
    if options.flag("tied-embeddings-all", False):
        yield "embedding.weight", source
        return
    yield "source_embedding.weight", source
    yield "target_embedding.weight", target
    is_tied = options.flag("tied-embeddings", False)
    yield "output.weight", target if is_tied else "decoder_ff_logit_out_W"


def sinusoids(count: int, dim: int) -> Array:
    """[sin | cos] of position * 10000^(-i / (dim / 2 - 1)): marian-dev's
    src/graph/node_initializers.cpp, sinusoidalPositionEmbeddings.
    """
    num_rates = dim // 2
    rates = np.exp(np.arange(num_rates) * (-math.log(10000.0) / max(num_rates - 1, 1)))
    angles = np.arange(count)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _first_rows(table: Array, count: int) -> Array:
    """Positions beyond the table are as its last."""
    return table[np.minimum(np.arange(count), len(table) - 1)]


def _with_zero_row(table: Array) -> Array:
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])
