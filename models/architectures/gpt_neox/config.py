"""Options of the GPT-NeoX-shaped language model."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, Positive, Size
from models.configs.transformer import Activation, LayerNumbers, RotaryConfig, RotaryImports


class GPTNeoXImports(RotaryImports):
    """Options of Phi, GPT-J, BLOOM, Falcon, StableLM, OLMo and Command R, and of a Pythia without
    biases.
    """

    attention_bias: bool = True
    ffn_bias: bool = True
    gated_ffn: bool = False
    embedding_norm: bool = False
    output_bias: bool = False
    qkv_limit: Positive | None = None  # queries, keys and values are cut to -limit..limit
    qk_norm: bool = False  # each head's queries and keys are divided by their root mean square
    position_biases: bool = False  # of scores, for each head and position of the key; no rotation
    residual_after_norm: bool = False  # sublayers are added to their normalised inputs (BLOOM)
    layers_without_window: LayerNumbers = ()
    layers_without_rotation: LayerNumbers = ()


class GPTNeoXConfig(RotaryConfig):
    """Decoder-only language model with LayerNorm, biases and parallel sublayers (GPT-NeoX, Pythia),
    and what else models with LayerNorm have.
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

    def window_of(self, layer: int) -> int | None:
        return None if layer in self.imported.layers_without_window else self.window

    @property
    def frequencies(self) -> tuple[float, ...]:
        return () if self.imported.position_biases else super().frequencies

    def frequencies_of(self, layer: int) -> tuple[float, ...]:
        """Return the frequencies of the pairs that the layer rotates."""
        return () if layer in self.imported.layers_without_rotation else self.frequencies

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.num_kv_heads is not None:
            yield from self.must_be_multiple("num_heads", "num_kv_heads")
        if self.imported.output_bias and self.tied_embeddings:
            message = "imported.output_bias needs tied_embeddings false"
            yield Conflict(("imported", "tied_embeddings"), message)
        if self.imported.residual_after_norm and self.parallel_residual:
            message = "imported.residual_after_norm needs parallel_residual false"
            yield Conflict(("imported", "parallel_residual"), message)
        if self.imported.position_biases and self.kv_heads != self.num_heads:
            message = "imported.position_biases needs keys for each head"
            yield Conflict(("imported", "num_kv_heads"), message)
        for field in ("layers_without_window", "layers_without_rotation"):
            yield from self.missing_layers(field, getattr(self.imported, field))
