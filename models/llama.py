"""Decoder-only language model in the shape of Llama (Touvron et al. 2023).

RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021), grouped-query attention (Ainslie et al.
2023) and SwiGLU (Shazeer 2020), no biases. A `window` makes it Mistral (Jiang et al. 2023, 2).
"""

from torch import Tensor, nn
from torch.nn.functional import silu

from models.configs.llama import LlamaConfig
from models.layers.attention import Attention
from models.layers.decoder_only import Block, DecoderOnly, initialise
from models.layers.positions import rotary_tables, rotate


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.up = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.down = nn.Linear(config.ffn_dim, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


class Llama(DecoderOnly):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config, (_block(config) for _ in range(config.num_layers)), _norm(config))
        cos, sin = rotary_tables(config.context_length, config.head_size, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(initialise)

    def place(self, x: Tensor, start: int) -> Tensor:
        positions = slice(start, start + x.shape[2])
        return rotate(x, self.cos[positions], self.sin[positions])


def _block(config: LlamaConfig) -> Block:
    attention = Attention(config.d_model, config.num_heads, config.num_kv_heads, bias=False)
    return Block(attention, _norm(config), SwiGLU(config), _norm(config), config.dropout)


def _norm(config: LlamaConfig) -> nn.Module:
    return nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
