"""Options of the Llama-shaped language model."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from models.configs.base import Misfit, Size
from models.configs.decoder_only import DecoderOnlyConfig


class LlamaConfig(DecoderOnlyConfig):
    """Decoder-only language model with RoPE, RMSNorm, grouped-query attention and SwiGLU."""

    head_multiple = 16  # of those that the exported attention rotates
    architecture: Literal["llama"] = "llama"
    num_kv_heads: Size = 2
    rope_theta: float = Field(default=10000.0, gt=0)
    norm_epsilon: float = Field(default=1e-5, gt=0)

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        yield from self.must_be_multiple("num_heads", "num_kv_heads")
