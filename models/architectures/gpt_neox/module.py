"""Decoder-only language models in the shape of GPT-NeoX (Black et al. 2022).

LayerNorm, biases, GELU, RoPE of a part of each head, and attention and feed-forward network in
parallel: Pythia (Biderman et al. 2023). A bias of the output layer and one norm for both sublayers,
here two equal ones, make it Phi (Gunasekar et al. 2023, Li et al. 2023).
"""

from functools import partial

from torch import Tensor, nn

from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.layers.attention import Attention
from models.layers.basic import FeedForward
from models.layers.decoder_only import Block, DecoderOnly, ParallelBlock, initialise
from models.layers.positions import Rotary


class GPTNeoX(DecoderOnly):
    """Rotates queries and keys. The output layer may have a bias."""

    config: GPTNeoXConfig

    def __init__(self, config: GPTNeoXConfig) -> None:
        super().__init__(config, (_block(config) for _ in range(config.num_layers)), _norm(config))
        if config.imported.output_bias:
            self.output = nn.Linear(config.d_model, config.vocab_size)
        self.rotary = Rotary(
            config.context_length, config.frequencies, config.imported.rotary_magnitude
        )
        self.apply(initialise)

    def project(self, hidden: Tensor) -> Tensor:
        return self.output(hidden) if self.config.imported.output_bias else super().project(hidden)

    def rotate(self, x: Tensor, start: int, layer: int) -> Tensor:
        return self.rotary(x, start)


def _block(config: GPTNeoXConfig) -> Block:
    attention = Attention(
        config.d_model,
        config.num_heads,
        config.kv_heads,
        bias=config.imported.attention_bias,
        head_dim=config.head_size,
    )
    feed_forward = FeedForward(config.d_model, config.ffn_dim, config.activation)
    kind = ParallelBlock if config.parallel_residual else Block
    return kind(attention, feed_forward, partial(_norm, config), config.dropout)


def _norm(config: GPTNeoXConfig) -> nn.Module:
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
