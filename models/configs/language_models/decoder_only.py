"""Options that decoder-only language models share."""

from collections.abc import Iterator

from models.configs.base import LanguageModelConfig, Misfit, Size
from models.configs.heads import HasHeads


class DecoderOnlyConfig(LanguageModelConfig, HasHeads):
    """Layers of causal attention and feed-forward networks."""

    num_layers: Size = 4
    ffn_dim: Size = 512
    window: Size | None = None  # how many positions attention sees, its own included; None: all
    tied_embeddings: bool = True

    def window_of(self, layer: int) -> int | None:
        """Tell the window of one layer: all have the same."""
        return self.window

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.window is not None and self.window > self.context_length:
            message = f"window {self.window} is longer than context_length {self.context_length}"
            yield Misfit(("window", "context_length"), message)
