"""Options of encoder-decoders that rotate: T5Gemma."""

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from models.configs.base import Conflict, Positive, Section, Size
from models.configs.rotary_encoder import (
    LayerWindow,
    RotaryEncoderImports,
    RotaryStackConfig,
    RotaryWindow,
    Rotation,
)
from models.configs.transformer import (
    Activation,
    BaseTransformerConfig,
    NoPositions,
    Norm,
    TransformerImports,
)


class PreNorm(Norm):
    """Sublayers normalise their input and their output."""

    kind: Literal["layer", "rms"] = "rms"
    place: Literal["pre"] = "pre"
    epsilon: Positive = 1e-6


class EncoderSizes(Section):
    """The sizes of the encoder's layers, and their window."""

    d_model: Size = 256
    num_heads: Size = 4
    num_kv_heads: Size | None = None
    head_dim: Size | None = None
    ffn_dim: Size = 1024
    window: LayerWindow | None = None


class RotaryEncoderDecoderConfig(BaseTransformerConfig):
    """Encoder and decoder have Gemma 2's layers (Zhang et al. 2025, T5Gemma), with rotations,
    windows and gated feed-forward networks. Sizes and the window are the decoder's, but for
    `encoder_layers`.

    tied_embeddings: one table for the target and the output. The source has one of its own.
    attention_cap: scores become cap * tanh(score / cap). logit_cap: logits likewise.
    """

    architecture: Literal["rotary-encoder-decoder"] = "rotary-encoder-decoder"
    encoder: EncoderSizes = EncoderSizes()
    rotation: Rotation = Rotation()
    window: LayerWindow | None = None
    norm: PreNorm = PreNorm()
    activation: Activation = "gelu_tanh"
    attention_cap: Positive | None = None
    logit_cap: Positive | None = None
    positions: ClassVar[NoPositions] = NoPositions()  # type: ignore[misc]
    gated_ffn: ClassVar[bool] = True  # type: ignore[misc]
    imported: ClassVar[TransformerImports] = TransformerImports(biases=False)  # type: ignore[misc]

    @property
    def source_encoder(self) -> RotaryStackConfig:
        """The options of the encoder."""
        sizes = self.encoder.model_dump(exclude={"window"})
        return self._stack(self.encoder.window, num_layers=self.encoder_layers, **sizes)

    def window_of(self, layer: int) -> int | None:
        """Return the window of a decoder layer."""
        return self.window.size if self.window and layer in self.window.layers else None

    def conflicts(self) -> Iterator[Conflict]:
        sizes = {name: getattr(self, name) for name in EncoderSizes.model_fields}
        decoder = self._stack(sizes.pop("window"), num_layers=self.decoder_layers, **sizes)
        yield from dict.fromkeys([*super().conflicts(), *decoder.conflicts()])  # some are alike
        for conflict in self.source_encoder.conflicts():
            yield Conflict(("encoder", "encoder_layers"), f"encoder: {conflict.message}")

    def _stack(self, window: LayerWindow | None, **sizes: Any) -> RotaryStackConfig:
        """Return the options of layers of these sizes. They may not fit together."""
        rotary_window = window and RotaryWindow(
            size=window.size, layers=window.layers, rotation=self.rotation
        )
        return RotaryStackConfig.model_construct(
            vocab_size=self.source_vocabulary,
            max_source_tokens=self.max_source_tokens,
            rotation=self.rotation,
            window=rotary_window,
            norm=self.norm,
            embedding_norm=False,
            activation=self.activation,
            dropout=self.dropout,
            imported=RotaryEncoderImports(sandwich_norms=True, attention_cap=self.attention_cap),
            **sizes,
        )
