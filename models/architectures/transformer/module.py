"""The encoder-decoder Transformer (Vaswani et al. 2017), pre- or post-norm."""

from models.layers.transformer import BaseTransformer, SelfAttentionDecoderLayer


class Transformer(BaseTransformer):
    """Decodes by layers that attend to the target so far and to the source."""

    decoder_layer = SelfAttentionDecoderLayer
