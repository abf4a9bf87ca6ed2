"""Options of the recurrent language model, and what all recurrent language models share."""

from typing import Literal

from models.configs.attention import Additive
from models.configs.base import LanguageModelConfig, Size
from models.configs.recurrent import Cell
from models.configs.scaling import HasScaledEmbeddings


class RecurrentLanguageModelConfig(LanguageModelConfig, HasScaledEmbeddings):
    """Layers of cells over embedded tokens; what they yield is read out at the embedding's size."""

    cell: Cell = "gru"
    hidden_dim: Size = 512
    num_layers: Size = 1
    tied_embeddings: bool = True


class RecurrentLMConfig(RecurrentLanguageModelConfig):
    """Attends to all of its past, or has no attention."""

    architecture: Literal["recurrent-lm"] = "recurrent-lm"
    attention: Additive | None = None
