"""Options of the language model that attends to its last outputs."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, Size
from models.configs.recurrent import RecurrentLanguageModelConfig

NUM_PARTS = {"attention": 1, "key-value": 2, "key-value-predict": 3}


class KeyValueLMConfig(RecurrentLanguageModelConfig):
    """Attention over the last `window` outputs, each cut in `parts` (Daniluk et al. 2017)."""

    architecture: Literal["key-value-lm"] = "key-value-lm"
    hidden_dim: Size = 768
    parts: Literal["attention", "key-value", "key-value-predict"] = "key-value-predict"
    window: Size = 10

    def conflicts(self) -> Iterator[Conflict]:
        if self.hidden_dim % self.num_parts:
            message = (
                f"hidden_dim {self.hidden_dim} must be a multiple of {self.num_parts}, "
                f"the parts of {self.parts}"
            )
            yield Conflict(("hidden_dim", "parts"), message)
        if self.window > self.context_length:
            message = f"window {self.window} is longer than context_length {self.context_length}"
            yield Conflict(("window", "context_length"), message)

    @property
    def num_parts(self) -> int:
        return NUM_PARTS[self.parts]

    @property
    def part_dim(self) -> int:
        return self.hidden_dim // self.num_parts
