"""Encoders that rotate queries and keys (Su et al. 2021) in place of adding positions.

ModernBERT (Warner et al. 2024) attends to a window in two layers of three, with rotations of its
own, and normalises before sublayers. NomicBERT (Nussbaum et al. 2024) normalises after them.
Decoders that embed texts, as Qwen3-Embedding and EmbeddingGemma do, have the layers of their
language models (see `models.architectures.llama`), causal or not, and no vocabulary to score.
"""

from torch import Tensor

from models.architectures.rotary_encoder.config import RotaryEncoderConfig
from models.contract import EncoderModel
from models.layers.encoder import HeadLayers, pool
from models.layers.recurrent import initialise
from models.layers.rotary_encoder import RotaryStack


class RotaryEncoder(RotaryStack, EncoderModel):
    """Layers over a text's words, then pooling of its tokens."""

    config: RotaryEncoderConfig

    def __init__(self, config: RotaryEncoderConfig) -> None:
        super().__init__(config)
        self.head = HeadLayers(config.vector_dim, config.head, config.dropout)
        self.apply(initialise)

    def encode(
        self, source_ids: Tensor, source_lengths: Tensor, source_types: Tensor | None = None
    ) -> Tensor:
        x = self.hidden_states(source_ids, source_lengths, source_types)
        return self.head(pool(x, source_lengths, self.config.pooling))

    def project(self, hidden: Tensor) -> Tensor:
        return self.head.project(hidden)
