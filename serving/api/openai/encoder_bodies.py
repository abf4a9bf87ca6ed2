"""Bodies and answers of models that only encode: embeddings, rankings and classes."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.bodies import RequestBody
from serving.api.openai.answers import Usage
from serving.errors import RequestError, TooLarge
from serving.parameters import TokenIds
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import EncodeJob, Input
from serving.text.plain_text import check_texts


class EncodingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """Holds one embedding: numbers, or with `encoding_format` base64 their bytes."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(TypedDict):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EncodingUsage


class Class(TypedDict):
    """Holds the likeliest label of a text, and the score of each in the order of `labels`, which
    `/v1/models` lists.
    """

    index: int
    label: str
    probs: list[float]
    num_classes: int


class Classes(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Class]
    usage: Usage


class RankedText(TypedDict):
    text: str


class Ranked(TypedDict):
    """Holds one document. index: its place in the request."""

    index: int
    relevance_score: float
    document: NotRequired[RankedText]


class Ranking(TypedDict):
    id: str
    object: Literal["list"]
    model: str
    results: list[Ranked]
    usage: EncodingUsage


class PairScoreBody(TypedDict):
    index: int
    object: Literal["score"]
    score: float


class PairScores(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[PairScoreBody]
    usage: Usage


_ONE_ERROR = Field(fail_fast=True)  # not one for each of ten thousand
Texts = Annotated[list[str], _ONE_ERROR]
Ids = Annotated[list[int], _ONE_ERROR]
Given = str | Texts | Ids | Annotated[list[Ids], _ONE_ERROR]
_ALL_THAT_IS_READ = -1


class EncodingBody(RequestBody):
    """Holds them. truncate_prompt_tokens: longer inputs are cut to so many tokens, special ones
    included; -1 cuts them to what the model reads, and without it they are refused. priority: lower
    comes first. user: is not used.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    truncate_prompt_tokens: Annotated[int, Field(ge=_ALL_THAT_IS_READ)] | None = None
    user: str | None = None
    priority: int = 0
    timeout_seconds: float | None = None

    @property
    @abstractmethod
    def inputs(self) -> tuple[Input, ...]:
        """List what is encoded. Raises RequestError."""

    @property
    def num_characters(self) -> int:
        """Count the characters of texts, and of those in token ids the tokens."""
        return sum(map(len, self.inputs))

    def job(self, request_id: str) -> EncodeJob:
        decoding = Decoding(priority=self.priority, timeout_seconds=self.timeout_seconds)
        return EncodeJob(request_id, self.inputs, decoding, self._max_tokens())

    def _max_tokens(self) -> int | None:
        asked = self.truncate_prompt_tokens
        if asked == 0:
            message = "must be at least 1, or -1 for all that the model reads"
            raise RequestError("truncate_prompt_tokens", asked, message)
        return 0 if asked == _ALL_THAT_IS_READ else asked


def field_names(inputs: str) -> dict[str, str]:
    """Say what clients call what pipelines do, of bodies whose texts are in the field `inputs`."""
    return {"inputs": inputs, "source_ids": inputs, "max_tokens": "truncate_prompt_tokens"}


def listed(given: Given) -> tuple[str | TokenIds, ...]:
    """Return texts, or token ids, as a tuple of them."""
    is_one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    several: Any = [given] if is_one else given
    return tuple(each if isinstance(each, str) else tuple(each) for each in several)


def check_inputs(field: str, inputs: Sequence[str | TokenIds], max_characters: int) -> None:
    """Raise RequestError where one is empty, or where there are none or too many."""
    if not inputs or not all(inputs):
        index = next((index for index, each in enumerate(inputs) if not each), None)
        message = "must not be empty" if index is None else f"number {index} is empty"
        raise RequestError(field, inputs, message)
    check_texts(field, [each for each in inputs if isinstance(each, str)], max_characters)
    check_size(field, inputs, max_characters)


def check_size(field: str, inputs: Sequence[Input], max_characters: int) -> None:
    """Raise TooLarge for more than any request may carry; the question counts with each text."""
    size = sum(map(len, inputs))
    if size > max_characters:
        message = f"must be at most {max_characters} characters or tokens in all"
        raise TooLarge(field, f"{size} of them", message)


def usage(num_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
