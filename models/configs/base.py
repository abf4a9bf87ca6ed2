"""What all configurations share: sizes and options of an architecture, no torch.

A configuration refuses unknown keys and bad values, and says which of its options do not fit
together. `models.configs.registry` reads one and reports everything that is wrong at once.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Size = Annotated[int, Field(gt=0)]


class Misfit(NamedTuple):
    """Options that are right by themselves and do not fit together."""

    fields: tuple[str, ...]
    message: str


class SpecialTokens(BaseModel):
    """Ids that every tokenizer of ours begins with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2


class ArchitectureConfig(SpecialTokens):
    """A field `architecture` of one literal value tells configurations apart."""

    architecture: str
    task: str
    vocab_size: Size
    dropout: Fraction = 0.0

    def misfits(self) -> Iterator[Misfit]:
        """What does not fit together."""
        yield from ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        messages = [misfit.message for misfit in self.misfits()]
        if messages:
            raise ValueError("; ".join(messages))
        return self

    def must_be_multiple(self, field: str, of: str) -> Iterator[Misfit]:
        size, divisor = getattr(self, field), getattr(self, of)
        if size % divisor:
            yield Misfit((field, of), f"{field} {size} must be a multiple of {of} {divisor}")

    def must_be_equal(self, field: str, other: str, reason: str) -> Iterator[Misfit]:
        size, other_size = getattr(self, field), getattr(self, other)
        if size != other_size:
            yield Misfit((field, other), f"{reason} needs {field} {size} = {other} {other_size}")


class TranslationModelConfig(ArchitectureConfig):
    """What all sequence-to-sequence configurations share."""

    task: Literal["translate"] = "translate"
    source_languages: tuple[str, ...] = ("en",)
    target_languages: tuple[str, ...] = ("fr",)
    max_source_tokens: Size = 256
    max_target_tokens: Size = 256
    dropout: Fraction = 0.1


class LanguageModelConfig(ArchitectureConfig):
    """What all language models share."""

    task: Literal["generate"] = "generate"
    languages: tuple[str, ...] = ("en",)
    context_length: Size = 512
