"""Options of the GPT-2-shaped language model."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, Positive, Section, Size
from models.configs.transformer import Activation, DecoderOnlyConfig, LayerNumbers


class GPT2Imports(Section):
    """Options of GPT-Neo."""

    layers_without_window: LayerNumbers = ()


class GPT2Config(DecoderOnlyConfig):
    """Decoder-only language model with learned positions, LayerNorm and GELU."""

    architecture: Literal["gpt2"] = "gpt2"
    ffn_dim: Size = 1024
    activation: Activation = "gelu_tanh"
    norm_epsilon: Positive = 1e-5
    imported: GPT2Imports = GPT2Imports()

    def window_of(self, layer: int) -> int | None:
        return None if layer in self.imported.layers_without_window else self.window

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        name = "layers_without_window"
        yield from self.missing_layers(name, self.imported.layers_without_window)
