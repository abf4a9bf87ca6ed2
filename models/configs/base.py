"""What all configurations share: sizes and options of an architecture.

A configuration refuses unknown keys, bad values and values of another type, and reports which of
its options do not fit together. Options that belong together are a `Section` of the file. A section
may be one of several kinds, each with its own options. The section `imported` has options of models
that were trained elsewhere: only their readers set it. `models.architectures.registry` parses a
configuration and reports everything wrong with it at once.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Size = Annotated[int, Field(gt=0, lt=2**31)]
Positive = Annotated[float, Field(gt=0.0)]
Length = Annotated[int, Field(ge=2, lt=2**31)]  # of tokens: <s> or </s>, and one more
TokenId = Annotated[int, Field(ge=0)]
Languages = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]  # in files a list


class Conflict(NamedTuple):
    """Options that are right by themselves and do not fit together."""

    fields: tuple[str, ...]
    message: str


class Section(BaseModel):
    """A table of options that belong together. Unknown options are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SpecialTokens(Section):
    """Ids of the tokens that every tokenizer trained here begins with."""

    pad_id: TokenId = 0
    bos_id: TokenId = 1
    eos_id: TokenId = 2


class ArchitectureConfig(SpecialTokens):
    """The base of all configurations; the field `architecture` has one value in each.

    domain: the texts that the model was trained on, in a few words, such as "captions"; None for a
        model of general text. Servers prefer models of general text.
    """

    architecture: str
    domain: Annotated[str, Field(min_length=1)] | None = None
    vocab_size: Size
    dropout: Fraction = 0.0

    def conflicts(self) -> Iterator[Conflict]:
        """Yield the options of this architecture that do not fit together."""
        yield from ()

    def all_conflicts(self) -> Iterator[Conflict]:
        for field in SpecialTokens.model_fields:
            token_id = getattr(self, field)
            if token_id >= self.vocab_size:
                message = f"{field} {token_id} must be less than vocab_size {self.vocab_size}"
                yield Conflict((field, "vocab_size"), message)
        yield from self.conflicts()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        messages = [conflict.message for conflict in self.all_conflicts()]
        if messages:
            raise ValueError("; ".join(messages))
        return self

    def must_be_multiple(self, field: str, of: str) -> Iterator[Conflict]:
        size, divisor = getattr(self, field), getattr(self, of)
        if size % divisor:
            yield Conflict((field, of), f"{field} {size} must be a multiple of {of} {divisor}")

    def must_be_equal(self, field: str, other: str, reason: str) -> Iterator[Conflict]:
        size, other_size = getattr(self, field), getattr(self, other)
        if size != other_size:
            yield Conflict((field, other), f"{reason} needs {field} {size} = {other} {other_size}")


class TranslationModelConfig(ArchitectureConfig):
    """The base of all sequence-to-sequence configurations.

    split_tokens: as many source tokens had most sentences that the model was trained on; servers
        cut longer ones at clauses.
    """

    task: Literal["translate"] = "translate"
    source_languages: Languages = ("en",)
    target_languages: Languages = ("fr",)
    max_source_tokens: Length = 256
    max_target_tokens: Length = 256
    split_tokens: Length | None = None
    shortlist: bool = False  # bundles score only the tokens of each row's shortlist
    dropout: Fraction = 0.1


class LanguageModelConfig(ArchitectureConfig):
    """The base of all language models' configurations."""

    task: Literal["generate"] = "generate"
    languages: Languages = ("en",)
    context_length: Length = 512


class HasWords(Protocol):
    """What a vocabulary needs of a configuration."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def tied_embeddings(self) -> bool: ...


Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "swish"]
Squashing = Literal["none", "relu", "gelu", "tanh"]


class Dense(Section):
    """A linear layer with an activation, over a text's vector.

    norm_epsilon: of a LayerNorm that follows; None: none does.
    """

    dim: Size
    activation: Squashing = "tanh"
    bias: bool = True
    norm_epsilon: Positive | None = None


Layers = Annotated[tuple[Dense, ...], Field(strict=False)]  # in files a list


class EmbeddingHead(Section):
    """The model puts out a text's vector, of length 1 if `normalised`."""

    task: ClassVar[str] = "embed"
    per_token: ClassVar[bool] = False
    kind: Literal["embedding"] = "embedding"
    dense: Layers = ()
    normalised: bool = False


Labels = Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class LabelHead(Section):
    """The model scores labels; a reranker has one label.

    scores: the function that turns scores into numbers from 0 to 1, if there is one.
    """

    task: ClassVar[str] = "classify"
    per_token: ClassVar[bool] = False
    kind: Literal["labels"] = "labels"
    labels: Labels
    dense: Layers = ()
    scores: Literal["softmax", "sigmoid", "none"] = "softmax"


class TokenLabelHead(Section):
    """The model scores labels for each token, such as those of named entities."""

    task: ClassVar[str] = "classify-tokens"
    per_token: ClassVar[bool] = True
    kind: Literal["token-labels"] = "token-labels"
    labels: Labels
    dense: Layers = ()
    scores: ClassVar[Literal["softmax"]] = "softmax"


class MaskedWordHead(Section):
    """The model scores the vocabulary at each masked token, with the table of its embeddings: a
    layer, its activation and a norm come before (BERT, Devlin et al. 2019).

    mask_id: the token that stands for a word to guess.
    """

    task: ClassVar[str] = "fill-mask"
    per_token: ClassVar[bool] = True
    dense: ClassVar[Layers] = ()
    kind: Literal["masked-words"] = "masked-words"
    mask_id: TokenId = 3
    activation: Activation = "gelu"
    norm_epsilon: Positive = 1e-12


TextHead = Annotated[EmbeddingHead | LabelHead, Field(discriminator="kind")]
Head = Annotated[
    EmbeddingHead | LabelHead | TokenLabelHead | MaskedWordHead, Field(discriminator="kind")
]


class EncoderConfig(ArchitectureConfig):
    """The base of models that read a text or a pair of texts and generate none."""

    max_source_tokens: Length = 512
    head: Head = EmbeddingHead()

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not isinstance(self.head, MaskedWordHead):
            return
        if self.head.mask_id >= self.vocab_size:
            message = f"mask_id {self.head.mask_id} must be less than vocab_size {self.vocab_size}"
            yield Conflict(("head", "vocab_size"), message)
        if self.max_source_tokens < 3:
            message = "max_source_tokens 2 leaves no room for a masked word beside <s> and </s>"
            yield Conflict(("head", "max_source_tokens"), message)

    @property
    @abstractmethod
    def vector_dim(self) -> int:
        """The size of the vector of a text, or of a token, that the head reads."""

    @property
    def task(self) -> str:
        return self.head.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that are scored; empty for other heads."""
        return self.head.labels if isinstance(self.head, LabelHead | TokenLabelHead) else ()

    @property
    def dense_dim(self) -> int:
        """The size of the head's vector after its dense layers."""
        return self.head.dense[-1].dim if self.head.dense else self.vector_dim
