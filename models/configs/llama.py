"""Options of the Llama-shaped language model."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from models.configs.base import LanguageModelConfig, Misfit, Size


class LlamaConfig(LanguageModelConfig):
    """Decoder-only language model with RoPE, RMSNorm, grouped-query attention and SwiGLU."""

    architecture: Literal["llama"] = "llama"
    d_model: Size = 256
    num_layers: Size = 4
    num_heads: Size = 4
    num_kv_heads: Size = 2
    ffn_dim: Size = 512
    rope_theta: float = Field(default=10000.0, gt=0)
    norm_epsilon: float = Field(default=1e-5, gt=0)
    tied_embeddings: bool = True
    window: Size | None = None  # how many positions attention sees, its own included; None: all

    def misfits(self) -> Iterator[Misfit]:
        yield from self.must_be_multiple("d_model", "num_heads")
        yield from self.must_be_multiple("num_heads", "num_kv_heads")
        if self.d_model % (2 * self.num_heads) and self.d_model % self.num_heads == 0:
            message = f"head_dim {self.head_dim} must be even for RoPE"
            yield Misfit(("d_model", "num_heads"), message)

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads
