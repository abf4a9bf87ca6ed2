"""Options of the N-gram RNN."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import Conflict
from models.configs.recurrent import RecurrentLanguageModelConfig


class NgramLMConfig(RecurrentLanguageModelConfig):
    """Parts of the last `order` - 1 outputs predict the next token (Daniluk et al. 2017)."""

    architecture: Literal["ngram-lm"] = "ngram-lm"
    order: Annotated[int, Field(ge=2)] = 5

    def conflicts(self) -> Iterator[Conflict]:
        if self.hidden_dim % self.num_parts:
            message = (
                f"hidden_dim {self.hidden_dim} must be a multiple of {self.num_parts}, "
                f"the parts of order {self.order}"
            )
            yield Conflict(("hidden_dim", "order"), message)

    @property
    def num_parts(self) -> int:
        return self.order - 1

    @property
    def part_dim(self) -> int:
        return self.hidden_dim // self.num_parts
