"""Encoder-decoders whose layers are Gemma 2's (Zhang et al. 2025, T5Gemma).

Queries and keys of self-attention are rotated (Su et al. 2021), some layers attend to a window, and
sublayers normalise their input and their output. Cross-attention reads the whole source and does
not rotate. The encoder's embeddings are not scaled, the decoder's are.
"""

from torch import Tensor, nn

from models.architectures.rotary_encoder_decoder.config import RotaryEncoderDecoderConfig
from models.batch import length_mask
from models.layers.attention import Past, append, causal_mask
from models.layers.positions import Rotary
from models.layers.rotary_encoder import RotaryStack
from models.layers.transformer import (
    BaseTransformer,
    SelfAttentionDecoderLayer,
    TransformerState,
    norm_of,
)


class SandwichNorm(nn.Module):
    """Normalises a sublayer's input; `output` normalises what comes out of it."""

    def __init__(self, config: RotaryEncoderDecoderConfig) -> None:
        super().__init__()
        self.input, self.output = norm_of(config), norm_of(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.input(x)


class RotaryDecoderLayer(SelfAttentionDecoderLayer):
    """window: the last positions that are attended to, the own included; None: all."""

    window: int | None = None

    def __init__(self, config: RotaryEncoderDecoderConfig) -> None:
        super().__init__(config)
        cross, dim = self.cross_attention, config.encoder.d_model
        cross.key = nn.Linear(dim, cross.key.out_features, bias=False)
        cross.value = nn.Linear(dim, cross.value.out_features, bias=False)
        self.self_attention.cap = cross.cap = config.attention_cap
        self.self_attention_norm = SandwichNorm(config)
        self.cross_attention_norm = SandwichNorm(config)
        self.feed_forward_norm = SandwichNorm(config)
        rotation = config.rotation
        pairs = rotation.pairs_of(config.head_size)
        self.rotary = Rotary(config.max_target_tokens, pairs, rotation.magnitude)

    def after_sublayer(self, x: Tensor, update: Tensor, norm: nn.Module) -> Tensor:
        return super().after_sublayer(x, norm.output(update), norm)

    def read_target(self, x: Tensor, past: Past, mask: Tensor) -> tuple[Tensor, Past]:
        start, attention = past[0].shape[2] if past else 0, self.self_attention
        y = self.before_sublayer(x, self.self_attention_norm)
        keys, values = attention.keys_values(y)
        past_and_new = append(past, (self.rotary(keys, start), values))
        mask = causal_mask(start, start + x.shape[1], self.window, x.device)
        update = attention.attend(self.rotary(attention.queries(y), start), past_and_new, mask)
        return self.after_sublayer(x, update, self.self_attention_norm), past_and_new


class RotaryEncoderDecoder(BaseTransformer):
    """The source is read by a `RotaryStack`, with a table of words of its own."""

    decoder_layer = RotaryDecoderLayer
    config: RotaryEncoderDecoderConfig

    def __init__(self, config: RotaryEncoderDecoderConfig) -> None:
        super().__init__(config)
        self.source_embedding, self.cap = None, config.logit_cap
        for number, layer in enumerate(self.decoder.layers):
            layer.window = config.window_of(number)

    def make_encoder(self, config: RotaryEncoderDecoderConfig) -> RotaryStack:
        return RotaryStack(config.source_encoder)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> TransformerState:
        memory = self.encoder.hidden_states(source_ids, source_lengths)
        source = tuple(layer.cross_attention.keys_values(memory) for layer in self.decoder.layers)
        is_real = length_mask(source_lengths, source_ids.shape[1])[:, None, None]
        return TransformerState(source, is_real, ((),) * len(source), num_read=0)
