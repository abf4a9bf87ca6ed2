"""Holds what all configurations share: sizes and options of an architecture, no torch.

A configuration refuses unknown keys, bad values and values of another type, and says which of its
options do not fit together. Options that belong together are a `Part`, a section: one of several
kinds, where each kind has others, and `imported`, which only readers of models that were trained
elsewhere fill in. `models.architectures.registry` reads one and reports everything wrong at once.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Size = Annotated[int, Field(gt=0, lt=2**31)]
Positive = Annotated[float, Field(gt=0.0)]
Length = Annotated[int, Field(ge=2, lt=2**31)]  # of tokens: <s> or </s>, and one more
TokenId = Annotated[int, Field(ge=0)]
Languages = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]  # in files a list


class Misfit(NamedTuple):
    """Options that are right by themselves and do not fit together."""

    fields: tuple[str, ...]
    message: str


class Part(BaseModel):
    """Holds options that belong together, and refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SpecialTokens(Part):
    """Ids that every tokenizer of ours begins with."""

    pad_id: TokenId = 0
    bos_id: TokenId = 1
    eos_id: TokenId = 2


class ArchitectureConfig(SpecialTokens):
    """Is told from others by its field `architecture`, which has one value."""

    architecture: str
    vocab_size: Size
    dropout: Fraction = 0.0

    def misfits(self) -> Iterator[Misfit]:
        """Yield what does not fit together, of an architecture's own options."""
        yield from ()

    def all_misfits(self) -> Iterator[Misfit]:
        for field in SpecialTokens.model_fields:
            token_id = getattr(self, field)
            if token_id >= self.vocab_size:
                message = f"{field} {token_id} must be less than vocab_size {self.vocab_size}"
                yield Misfit((field, "vocab_size"), message)
        yield from self.misfits()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        messages = [misfit.message for misfit in self.all_misfits()]
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
    """Holds what all sequence-to-sequence configurations share."""

    task: Literal["translate"] = "translate"
    source_languages: Languages = ("en",)
    target_languages: Languages = ("fr",)
    max_source_tokens: Length = 256
    max_target_tokens: Length = 256
    shortlist: bool = False  # exported, it scores the tokens of each row's lexical shortlist only
    dropout: Fraction = 0.1


class LanguageModelConfig(ArchitectureConfig):
    """Holds what all language models share."""

    task: Literal["generate"] = "generate"
    languages: Languages = ("en",)
    context_length: Length = 512


class HasWords(Protocol):
    """What a vocabulary needs: how many words there are, and whether one table embeds and scores
    them.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def tied_embeddings(self) -> bool: ...
