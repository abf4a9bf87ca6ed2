"""Describes these answers for the OpenAPI document; tests hold the answers to it."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.openai.answers import Usage


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
