"""Options that decoder-only language models share."""

from collections.abc import Iterator

from models.configs.base import LanguageModelConfig, Misfit, Size


class DecoderOnlyConfig(LanguageModelConfig):
    """Layers of causal attention and feed-forward networks."""

    d_model: Size = 256
    num_layers: Size = 4
    num_heads: Size = 4
    ffn_dim: Size = 512
    window: Size | None = None  # how many positions attention sees, its own included; None: all
    tied_embeddings: bool = True

    def misfits(self) -> Iterator[Misfit]:
        yield from self.must_be_multiple("d_model", "num_heads")
        if self.window is not None and self.window > self.context_length:
            message = f"window {self.window} is longer than context_length {self.context_length}"
            yield Misfit(("window", "context_length"), message)

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads
