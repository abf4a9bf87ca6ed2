"""Options of the recurrent language model, and what all recurrent language models share."""

from typing import Literal

from models.configs.recurrent import (
    Additive,
    RecurrentLanguageModelConfig,
)


class RecurrentLMConfig(RecurrentLanguageModelConfig):
    """Attends to all of its past, or has no attention."""

    architecture: Literal["recurrent-lm"] = "recurrent-lm"
    attention: Additive | None = None
