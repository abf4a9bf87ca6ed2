"""Layers of encoder-decoder Transformers (Vaswani et al. 2017), pre- or post-norm.

Embeddings are scaled, by sqrt(d_model) unless the configuration sets another scale (3.4). Tied
embeddings are shared by source, target and output.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from models.batch import length_mask
from models.configs.transformer import (
    Affine,
    BaseTransformerConfig,
    Learned,
    Linear,
    NoPositions,
    Relative,
    Sinusoidal,
)
from models.contract import DecoderState, TranslationModel
from models.layers.attention import Attention, KeysValues, Past, append, causal_mask
from models.layers.basic import Dropout, FeedForward, VocabularyLayers
from models.layers.positions import (
    AffinePositions,
    LearnedPositions,
    LinearPositions,
    Positions,
    RelativePositions,
    SinusoidalPositions,
)
from models.layers.recurrent import initialise


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """What every decoder layer reads of the source, and keeps of the target."""

    source: tuple[KeysValues, ...]
    is_real: Tensor  # [batch, 1, 1, source] bool: padding is not attended to
    past: tuple[Past, ...]
    num_read: int  # tokens of the target


class TransformerLayer(nn.Module):
    """The base of encoder and decoder layers: residual sublayers, a norm before or after."""

    def __init__(self, config: BaseTransformerConfig) -> None:
        super().__init__()
        self.is_pre_norm = config.norm.place == "pre"
        self.dropout = Dropout(config.dropout)
        self.feed_forward = FeedForward(
            config.d_model,
            config.ffn_dim,
            config.activation,
            is_gated=config.gated_ffn,
            bias=config.imported.biases,
        )
        self.feed_forward_norm = norm_of(config)

    def before_sublayer(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.is_pre_norm else x

    def after_sublayer(self, x: Tensor, update: Tensor, norm: nn.Module) -> Tensor:
        x = x + self.dropout(update)
        return x if self.is_pre_norm else norm(x)

    def feed(self, x: Tensor) -> Tensor:
        update = self.feed_forward(self.before_sublayer(x, self.feed_forward_norm))
        return self.after_sublayer(x, update, self.feed_forward_norm)


class EncoderLayer(TransformerLayer):
    """Attends to the whole source, then feeds forward."""

    def __init__(self, config: BaseTransformerConfig) -> None:
        super().__init__(config)
        self.self_attention = attention_of(config)
        self.self_attention_norm = norm_of(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.before_sublayer(x, self.self_attention_norm)
        attention = self.self_attention
        update = attention.attend(attention.queries(y), attention.keys_values(y), mask)
        return self.feed(self.after_sublayer(x, update, self.self_attention_norm))


class DecoderLayer(TransformerLayer, ABC):
    """Reads the target so far, then the source. Subclasses read the target in their own way."""

    def __init__(self, config: BaseTransformerConfig) -> None:
        super().__init__(config)
        self.cross_attention = attention_of(config)
        self.cross_attention_norm = norm_of(config)

    def forward(
        self, x: Tensor, past: Past, mask: Tensor, source: KeysValues, is_real: Tensor
    ) -> tuple[Tensor, Past]:
        """Read x [batch, new, d_model] after the past. Return the output, and the past with x."""
        x, past = self.read_target(x, past, mask)
        y = self.before_sublayer(x, self.cross_attention_norm)
        update = self.cross_attention.attend(self.cross_attention.queries(y), source, is_real)
        return self.feed(self.after_sublayer(x, update, self.cross_attention_norm)), past

    @abstractmethod
    def read_target(self, x: Tensor, past: Past, mask: Tensor) -> tuple[Tensor, Past]:
        """Read x [batch, new, d_model] after the past, where `mask` allows it."""


class SelfAttentionDecoderLayer(DecoderLayer):
    """Keeps the keys and values of the past."""

    def __init__(self, config: BaseTransformerConfig) -> None:
        super().__init__(config)
        self.self_attention = attention_of(config)
        self.self_attention_norm = norm_of(config)

    def read_target(self, x: Tensor, past: Past, mask: Tensor) -> tuple[Tensor, Past]:
        y = self.before_sublayer(x, self.self_attention_norm)
        past_and_new = append(past, self.self_attention.keys_values(y))
        update = self.self_attention.attend(self.self_attention.queries(y), past_and_new, mask)
        return self.after_sublayer(x, update, self.self_attention_norm), past_and_new


class LayerStack(nn.Module):
    """The positions, layers and norms of the encoder or the decoder."""

    def __init__(
        self,
        config: BaseTransformerConfig,
        layers: Sequence[TransformerLayer],
        num_positions: int,
        *,
        bidirectional: bool,
    ) -> None:
        super().__init__()
        self.positions = _positions(config, num_positions, bidirectional=bidirectional)
        self.has_biases = config.imported.layer_positions  # in each layer another
        self.layers = nn.ModuleList(layers)
        self.embedding_norm = norm_of(config) if config.imported.embedding_norm else nn.Identity()
        self.norm = norm_of(config) if config.has_final_norm else nn.Identity()

    def before_layers(self, embedded: Tensor, start: int = 0) -> Tensor:
        """Return the first layer's input for embedded tokens of positions from `start` on."""
        return self.embedding_norm(self.positions(embedded, start))

    def masks(self, mask: Tensor, start: int, end: int) -> Sequence[Tensor]:
        """Return the mask of queries start..end-1 with the bias added, if any, for each layer."""
        bias = self.positions.mask_scores(mask, start, end)
        number = len(self.layers)
        return bias.chunk(number, -3) if self.has_biases else [bias] * number


class BaseTransformer(VocabularyLayers, TranslationModel[TransformerState]):
    """Encodes by self-attention, and decodes by layers that also attend to the source."""

    decoder_layer: type[DecoderLayer]

    def __init__(self, config: BaseTransformerConfig) -> None:
        super().__init__(
            config,
            config.d_model,
            source_size=config.source_vocabulary,
            scale=config.scale_of_embeddings,
            has_bias=config.imported.output_bias,
        )
        self.dropout = Dropout(config.dropout)
        decoder = [self.decoder_layer(config) for _ in range(config.decoder_layers)]
        self.encoder = self.make_encoder(config)
        self.decoder = LayerStack(config, decoder, config.max_target_tokens, bidirectional=False)
        self.apply(initialise)

    def make_encoder(self, config: Any) -> Any:
        """Return the module that reads the source."""
        layers = [EncoderLayer(config.encoder_side) for _ in range(config.encoder_layers)]
        return LayerStack(config, layers, config.max_source_tokens, bidirectional=True)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> TransformerState:
        """Return the keys and values that every decoder layer attends to."""
        embedded = self.embed_source(source_ids)
        length = embedded.shape[1]
        is_real = length_mask(source_lengths, length)[:, None, None]
        x = self.dropout(self.encoder.before_layers(embedded))
        masks = self.encoder.masks(is_real, 0, length)
        for layer, mask in zip(self.encoder.layers, masks, strict=True):
            x = layer(x, mask)
        memory = self.encoder.norm(x)
        source = tuple(layer.cross_attention.keys_values(memory) for layer in self.decoder.layers)
        return TransformerState(source, is_real, ((),) * len(source), num_read=0)

    def read(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        start, end = state.num_read, state.num_read + ids.shape[1]
        causal = causal_mask(start, end, None, ids.device)
        masks = self.decoder.masks(causal, start, end)
        x = self.dropout(self.decoder.before_layers(self.embed(ids), start))
        pasts = []
        parts = zip(self.decoder.layers, state.past, masks, state.source, strict=True)
        for layer, past, mask, source in parts:
            x, past = layer(x, past, mask, source, state.is_real)
            pasts.append(past)
        return self.decoder.norm(x), replace(state, past=tuple(pasts), num_read=end)


def _positions(
    config: BaseTransformerConfig, num_positions: int, *, bidirectional: bool
) -> Positions:
    match config.positions:
        case Relative(num_buckets=num_buckets, max_distance=farthest):
            stack = "encoder" if bidirectional else "decoder"
            return RelativePositions(
                config.num_biases(stack),
                num_buckets,
                farthest,
                bidirectional=bidirectional,
                window=config.imported.encoder_window if bidirectional else None,
            )
        case Learned():
            return LearnedPositions(num_positions, config.d_model)
        case Affine():
            return AffinePositions(num_positions, config.d_model)
        case Sinusoidal():
            return SinusoidalPositions(num_positions, config.d_model)
        case Linear():
            return LinearPositions(config.num_heads)
        case NoPositions():
            return Positions()


def attention_of(config: BaseTransformerConfig) -> Attention:
    return Attention(
        config.d_model,
        config.num_heads,
        config.kv_heads,
        bias=config.imported.biases,
        head_dim=config.head_dim,
    )


def norm_of(config: BaseTransformerConfig) -> nn.Module:
    kind = nn.RMSNorm if config.norm.kind == "rms" else nn.LayerNorm
    return kind(config.d_model, eps=config.norm.epsilon)
