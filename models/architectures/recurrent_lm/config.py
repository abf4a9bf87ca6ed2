"""Options of the recurrent language model."""

from typing import Literal

from models.configs.recurrent import Additive, RecurrentLanguageModelConfig


class RecurrentLMConfig(RecurrentLanguageModelConfig):
    """attention: to all earlier outputs; None: no attention."""

    architecture: Literal["recurrent-lm"] = "recurrent-lm"
    attention: Additive | None = None
