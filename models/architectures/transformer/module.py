"""The encoder-decoder Transformer (Vaswani et al. 2017), pre- or post-norm."""

from torch import Tensor

from models.configs.transformer import BaseTransformerConfig
from models.layers.attention import Past, append
from models.layers.transformer import BaseTransformer, DecoderLayer, attention_of, norm_of


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


class Transformer(BaseTransformer):
    """Decodes by layers that attend to the target so far and to the source."""

    decoder_layer = SelfAttentionDecoderLayer
