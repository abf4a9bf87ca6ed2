"""Options of the GPT-NeoX-shaped language model."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, Positive, Size
from models.configs.transformer import Activation, RotaryConfig, RotaryImports


class GPTNeoXImports(RotaryImports):
    """Options of Phi, and of a Pythia without biases."""

    attention_bias: bool = True
    output_bias: bool = False


class GPTNeoXConfig(RotaryConfig):
    """Decoder-only language model with LayerNorm, biases and parallel sublayers (GPT-NeoX, Pythia),
    optionally with a bias of the output layer (Phi).
    """

    architecture: Literal["gpt-neox"] = "gpt-neox"
    num_kv_heads: Size | None = None  # None: one for each head
    norm_epsilon: Positive = 1e-5
    parallel_residual: bool = True
    activation: Activation = "gelu"
    imported: GPTNeoXImports = GPTNeoXImports()

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")
        if self.imported.output_bias and self.tied_embeddings:
            message = "imported.output_bias needs tied_embeddings false"
            yield Conflict(("imported", "tied_embeddings"), message)
