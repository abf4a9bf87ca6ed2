"""Options that Transformers share: heads, norms, positions, and the sizes of encoder-decoders."""

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.configs.base import Activation as Activation
from models.configs.base import (
    ArchitectureConfig,
    Conflict,
    LanguageModelConfig,
    Positive,
    Section,
    Size,
    TranslationModelConfig,
)


class Norm(Section):
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019). It normalises a sublayer's
    input ("pre"), or the sum of its input and output ("post", as in Vaswani et al. 2017).
    """

    kind: Literal["layer", "rms"] = "layer"
    place: Literal["pre", "post"] = "pre"
    epsilon: Positive = 1e-5


class HasHeads(ArchitectureConfig):
    """Attention heads over vectors of d_model."""

    d_model: Size = 256
    num_heads: Size = 4
    head_dim: Size | None = None  # None: d_model is cut into heads

    @property
    def head_size(self) -> int:
        """The size of a head."""
        return self.head_dim or self.d_model // self.num_heads

    def conflicts(self) -> Iterator[Conflict]:
        if self.head_dim is None:
            yield from self.must_be_multiple("d_model", "num_heads")


class Sinusoidal(Section):
    """Sines and cosines of the position are added (Vaswani et al. 2017, 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"


class Learned(Section):
    """A learned vector for each position is added."""

    kind: Literal["learned"] = "learned"


class Affine(Section):
    """A learned linear function of the position, a * position + b, is added: two vectors in place
    of one for each position. Positions are fractions of the longest length.
    """

    kind: Literal["affine"] = "affine"


class Relative(Section):
    """A learned bias is added to scores, by the distance of two positions (Raffel et al. 2020).

    Distances share `num_buckets`; all from `max_distance` on share the last one.
    """

    kind: Literal["relative"] = "relative"
    num_buckets: int = Field(default=32, ge=4, lt=2**16, multiple_of=2)
    max_distance: Size = 128

    @model_validator(mode="after")
    def _reaches_farther_than_exact_buckets(self) -> Self:
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(
                f"max_distance {self.max_distance} must be more than half of"
                f" num_buckets {self.num_buckets}"
            )
        return self


class Linear(Section):
    """Scores are lowered in proportion to distance, by a fixed slope for each head (ALiBi, Press et
    al. 2022). In the encoder both directions are alike.
    """

    kind: Literal["linear"] = "linear"


class NoPositions(Section):
    """No positions: the encoder reads the source as a bag of words."""

    kind: Literal["none"] = "none"


Added = Annotated[Sinusoidal | Learned | Affine | NoPositions, Field(discriminator="kind")]


Positions = Annotated[
    Sinusoidal | Learned | Affine | Relative | Linear | NoPositions, Field(discriminator="kind")
]


Pooling = Literal["cls", "last", "max", "mean", "mean_sqrt_length"]
Poolings = Annotated[tuple[Pooling, ...], Field(min_length=1, strict=False)]  # in files a list


class GateLimits(Section):
    """Limits of a gated network's numbers before its activation: gates are at most `gate`, what
    they gate is within `up`.
    """

    gate: float
    up: Annotated[tuple[float, float], Field(strict=False)]  # in files a list


class ExpertGroups(Section):
    """Experts lie in `number` groups of the same size, and a token uses experts of the `num_used`
    groups whose sums of the `num_summed` highest scores are highest (DeepSeek-AI 2024).
    """

    number: Size
    num_used: Size
    num_summed: Size = 1


class Experts(Section):
    """A mixture of experts (Shazeer et al. 2017; Fedus et al. 2022) in place of a feed-forward
    network: each token goes through the `num_used` of `num_experts` networks whose scores are
    highest, and takes their sum, weighted by the softmax of the scores, or by their sigmoids.

    ffn_dim: the inner size of one expert. normalised: the weights of those used sum to 1. bias: of
    the scores and of the networks' layers. shared_ffn_dim: the inner size of a network that every
    token goes through besides (Dai et al. 2024), if there is one. shared_gate: its output is
    multiplied by the sigmoid of a score of its own (Qwen2-MoE, Qwen Team 2024). selection_bias:
    weights get a bias while experts are chosen by them (DeepSeek-AI 2024, V3). scale: the factor of
    weights in the end.
    """

    num_experts: Size
    num_used: Size
    ffn_dim: Size
    normalised: bool = True
    bias: bool = False
    limits: GateLimits | None = None
    shared_ffn_dim: Size | None = None
    shared_gate: bool = True
    weighting: Literal["softmax", "sigmoid"] = "softmax"
    selection_bias: bool = False
    groups: ExpertGroups | None = None
    scale: Positive = 1.0

    @property
    def has_shared_gate(self) -> bool:
        return self.shared_ffn_dim is not None and self.shared_gate

    @model_validator(mode="after")
    def _has_enough(self) -> Self:
        if self.num_used > self.num_experts:
            raise ValueError(f"num_used {self.num_used} is more than {self.num_experts} experts")
        if self.groups is not None:
            self._check_groups(self.groups)
        return self

    def _check_groups(self, groups: ExpertGroups) -> None:
        if self.num_experts % groups.number:
            raise ValueError(
                f"{self.num_experts} experts cannot be cut into {groups.number} groups"
            )
        if groups.num_used > groups.number:
            raise ValueError(
                f"groups.num_used {groups.num_used} is more than {groups.number} groups"
            )
        size = self.num_experts // groups.number
        if groups.num_summed > size or self.num_used > groups.num_used * size:
            raise ValueError(f"groups of {size} experts are too small")


class TransformerImports(Section):
    """Options of BART, Marian, T5 and models of OpenNMT-py and fairseq.

    layer_positions: whether each layer has a relative bias of its own (UMT5, Chung et al. 2023).
    encoder_window: how far the source's positions attend to each side (LongT5, Guo et al. 2022);
        None: everywhere.
    encoder_heads, encoder_ffn_dim: num_heads and ffn_dim of the encoder, where they are others.
    """

    embedding_norm: bool = False  # of the inputs of encoder and decoder
    final_norm: bool | None = None  # of their outputs; None: if norms are pre
    embedding_scale: Positive | None = None  # None: sqrt(d_model)
    biases: bool = True  # of attention and feed-forward layers
    output_bias: bool = False
    layer_positions: bool = False
    encoder_window: Size | None = None
    encoder_heads: Size | None = None
    encoder_ffn_dim: Size | None = None


class BaseTransformerConfig(TranslationModelConfig, HasHeads):
    """What encoder-decoder Transformers share, whatever their decoder layers."""

    source_vocab_size: Size | None = None  # None: that of the target, vocab_size
    num_kv_heads: Size | None = None  # None: one for each head; 1: multi-query attention
    ffn_dim: Size = 1024
    encoder_layers: Size = 4
    decoder_layers: Size = 2
    positions: Positions = Sinusoidal()
    norm: Norm = Norm()
    activation: Activation = "relu"
    gated_ffn: bool = False
    tied_embeddings: bool = True
    imported: TransformerImports = TransformerImports()

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")
        for name in ("layer_positions", "encoder_window"):
            if getattr(self.imported, name) and not isinstance(self.positions, Relative):
                message = f"imported.{name} is there for relative positions only"
                yield Conflict(("imported", "positions"), message)
        if self.imported.encoder_heads is not None:
            yield from self._conflicts_of_heads(self.imported.encoder_heads)
        if self.tied_embeddings and self.source_vocab_size is not None:
            yield from self.must_be_equal(
                "source_vocab_size", "vocab_size", "one embedding for source and target"
            )

    def _conflicts_of_heads(self, number: int) -> Iterator[Conflict]:
        """Yield the conflicts of an encoder with this number of heads, not that of the decoder."""
        fields = ("imported", "d_model")
        if self.head_dim is None and self.d_model % number:
            message = (
                f"d_model {self.d_model} must be a multiple of imported.encoder_heads {number}"
            )
            yield Conflict(fields, message)
        if isinstance(self.positions, Relative | Linear) or self.num_kv_heads is not None:
            message = "imported.encoder_heads needs positions without biases, and no num_kv_heads"
            yield Conflict(("imported", "positions", "num_kv_heads"), message)

    @property
    def encoder_side(self) -> Self:
        """Return the configuration with the encoder's sizes of layers in place of the decoder's."""
        heads, ffn_dim = self.imported.encoder_heads, self.imported.encoder_ffn_dim
        if heads is None and ffn_dim is None:
            return self
        sizes = {"num_heads": heads or self.num_heads, "ffn_dim": ffn_dim or self.ffn_dim}
        return self.model_copy(update=sizes)

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size

    @property
    def scale_of_embeddings(self) -> float:
        scale = self.imported.embedding_scale
        return math.sqrt(self.d_model) if scale is None else scale

    def num_biases(self, stack: str) -> int:
        """Return the number of heads with a relative bias: those of one layer, or of all."""
        layers = self.encoder_layers if stack == "encoder" else self.decoder_layers
        return self.num_heads * (layers if self.imported.layer_positions else 1)

    @property
    def has_final_norm(self) -> bool:
        final_norm = self.imported.final_norm
        return self.norm.place == "pre" if final_norm is None else final_norm


class DecoderOnlyConfig(LanguageModelConfig, HasHeads):
    """The base of decoder-only models: layers of causal attention and feed-forward networks."""

    num_layers: Size = 4
    ffn_dim: Size = 512
    window: Size | None = None  # last positions that are attended to, the own included
    tied_embeddings: bool = True

    def window_of(self, layer: int) -> int | None:
        """Return the window of one layer. All layers have the same unless a subclass says
        otherwise.
        """
        return self.window

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.window is not None and self.window > self.context_length:
            message = f"window {self.window} is longer than context_length {self.context_length}"
            yield Conflict(("window", "context_length"), message)

    def missing_layers(self, field: str, numbers: Iterable[int]) -> Iterator[Conflict]:
        """Yield a conflict if an imported option names layers that there are not."""
        beyond = [number for number in numbers if not 0 <= number < self.num_layers]
        if beyond:
            message = f"{field} {beyond} must be less than num_layers {self.num_layers}"
            yield Conflict(("imported", "num_layers"), f"imported.{message}")


Frequencies = Annotated[tuple[float, ...], Field(min_length=1, strict=False)]  # in files a list
LayerNumbers = Annotated[tuple[int, ...], Field(strict=False)]  # in files a list


class RotaryImports(Section):
    """Rotary frequencies of models whose positions were rescaled, as a table of the final values.

    rotary_frequencies: of each pair, in radians per position; None: computed from rope_theta.
    rotary_magnitude: factor that rotated queries and keys are multiplied by.
    """

    rotary_frequencies: Frequencies | None = None
    rotary_magnitude: Positive = 1.0


class RotaryConfig(DecoderOnlyConfig):
    """Rotates the pairs of queries and keys for which there are frequencies."""

    rope_theta: Positive = 10000.0
    imported: RotaryImports = RotaryImports()

    @property
    def frequencies(self) -> tuple[float, ...]:
        """The frequency of every rotated pair, by default theta^(-2i / head_size)."""
        if self.imported.rotary_frequencies is not None:
            return self.imported.rotary_frequencies
        size = self.head_size
        return tuple(self.rope_theta ** (-i / size) for i in range(0, size, 2))

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        is_whole = self.head_dim is not None or self.d_model % self.num_heads == 0
        is_usual = self.imported.rotary_frequencies is None and is_whole
        if is_usual and 2 * len(self.frequencies) > self.head_size:
            message = f"heads of {self.head_size} cannot be cut into pairs"
            yield Conflict(("head_dim", "d_model", "num_heads"), message)
        yield from self.excess_pairs("rotary_frequencies")

    def excess_pairs(self, field: str) -> Iterator[Conflict]:
        """Yield a conflict if a table has more pairs than a head."""
        number = len(getattr(self.imported, field) or ())
        fields = ("imported", "head_dim", "d_model", "num_heads")
        if 2 * number > self.head_size:
            yield Conflict(
                fields, f"imported.{field}: {number} are too many for heads of {self.head_size}"
            )
