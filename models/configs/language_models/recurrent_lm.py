"""Options of the recurrent language model, and what all recurrent language models share."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import LanguageModelConfig, Misfit, Size
from models.configs.recurrent import Cell
from models.configs.scaling import HasScaledEmbeddings


class RecurrentLanguageModelConfig(LanguageModelConfig, HasScaledEmbeddings):
    """Layers of cells over embedded tokens; what they yield is read out at the embedding's size."""

    cell: Cell = "gru"
    hidden_dim: Size = 512
    num_layers: Size = 1
    tied_embeddings: bool = True


class RecurrentLMConfig(RecurrentLanguageModelConfig):
    """A recurrent language model, with additive attention over all of its past or without."""

    architecture: Literal["recurrent-lm"] = "recurrent-lm"
    attention: Literal["none", "additive"] = "none"
    attention_dim: Size | None = None

    def misfits(self) -> Iterator[Misfit]:
        fields, size = ("attention", "attention_dim"), self.attention_dim
        if self.attention == "none" and size is not None:
            yield Misfit(fields, f"attention_dim {size} is for additive attention, not for none")
        if self.attention != "none" and size is None:
            yield Misfit(fields, f"attention {self.attention} needs an attention_dim")
