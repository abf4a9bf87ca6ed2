"""Models that only encode: `/v1/embeddings`, vLLM's `/v1/score`, and `/v1/rerank` in the form of
Cohere, Jina and vLLM.
"""

import asyncio
import base64
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from serving.api.http.bodies import READS_JSON, RequestBody
from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.openapi import JSON
from serving.api.http.services import Services
from serving.api.openai.fields_without_effect import FieldsWithoutEffect
from serving.api.openai.protocol import (
    AT_THE_ROOT,
    PROTOCOL,
    EmbeddingList,
    PairScores,
    Ranking,
)
from serving.bundle.manifest import Task
from serving.errors import RequestError, TooLarge
from serving.pipelines.catalog import Model
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import EncodeInput, EncodeJob, Encodings, Matrix, TextPair
from serving.requests.parameters import TokenIds
from serving.text.checks import check_texts


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str


_ALL_THAT_IS_READ = -1  # as in vLLM


class EncodingBody(FieldsWithoutEffect, RequestBody):
    """The fields that all of them share. truncate_prompt_tokens: cut longer inputs to this number
    of tokens, with special ones; -1 cuts them to what the model reads. By default they are
    refused. priority: lower values come first.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    truncate_prompt_tokens: Annotated[int, Field(ge=_ALL_THAT_IS_READ)] | None = None
    priority: int = 0
    timeout_seconds: float | None = None

    @property
    @abstractmethod
    def inputs(self) -> tuple[EncodeInput, ...]:
        """Return the inputs to encode. Raises RequestError."""

    @property
    def num_characters(self) -> int:
        """Count the characters of texts, and the tokens of token ids."""
        return sum(map(len, self.inputs))

    def job(self, request_id: str) -> EncodeJob:
        decoding = Decoding(priority=self.priority, timeout_seconds=self.timeout_seconds)
        return EncodeJob(request_id, self.inputs, decoding, self._max_tokens())

    def _max_tokens(self) -> int | None:
        num_tokens = self.truncate_prompt_tokens
        if num_tokens == 0:
            message = "must be at least 1, or -1 for all that the model reads"
            raise RequestError("truncate_prompt_tokens", num_tokens, message)
        return 0 if num_tokens == _ALL_THAT_IS_READ else num_tokens


class RerankBody(EncodingBody):
    """The body. documents: texts, or objects with a text. top_n: number of the best documents to
    return; 0 for all. return_documents: with their texts.
    """

    query: str
    documents: Annotated[list[str | Document], Field(fail_fast=True)]
    top_n: Annotated[int, Field(ge=0)] = 0
    return_documents: bool = True

    @property
    def texts(self) -> list[str]:
        return [
            document if isinstance(document, str) else document.text for document in self.documents
        ]

    @property
    def inputs(self) -> tuple[TextPair, ...]:
        return tuple(TextPair(self.query, text) for text in self.texts)

    def check(self, max_characters: int) -> None:
        if not self.documents:
            raise RequestError("documents", self.documents, "must not be empty")
        check_texts("query", [self.query], max_characters)
        check_texts("documents", self.texts, max_characters)
        check_size("documents", self.inputs, max_characters)


_ONE_ERROR = Field(fail_fast=True)  # instead of ten thousand errors
TextList = Annotated[list[str], _ONE_ERROR]


class PairsBody(EncodingBody):
    """The body of `POST /v1/score`: lists of the same length, or one text and a list."""

    text_1: str | TextList
    text_2: str | TextList

    @property
    def inputs(self) -> tuple[TextPair, ...]:
        seconds = [self.text_2] if isinstance(self.text_2, str) else self.text_2
        if not seconds:
            raise RequestError("text_2", seconds, "must not be empty")
        firsts = [self.text_1] * len(seconds) if isinstance(self.text_1, str) else self.text_1
        if len(firsts) != len(seconds):
            message = f"must be as many as text_1 has, {len(firsts)}"
            raise RequestError("text_2", f"{len(seconds)} texts", message)
        return tuple(map(TextPair, firsts, seconds))

    def check(self, max_characters: int) -> None:
        check_texts("text_1", dict.fromkeys(pair.first for pair in self.inputs), max_characters)
        check_texts("text_2", [pair.second for pair in self.inputs], max_characters)
        check_size("text_2", self.inputs, max_characters)


async def _ranker(services: Services, body: EncodingBody) -> Model:
    model = await services.catalog.get_model(body.model)
    return model if model.card.task is Task.EMBED else await _reranker(services, body)


async def _reranker(services: Services, body: EncodingBody) -> Model:
    model = await services.catalog.get_model(body.model, Task.CLASSIFY)
    encoder = model.card.encoder
    assert encoder is not None
    if len(encoder.labels) > 1 or encoder.separator is None:
        message = f"gives {len(encoder.labels)} labels to a text; it does not score pairs of texts"
        raise RequestError("model", body.model, message)
    return model


async def _rank(call: Call[RerankBody, Model]) -> JSONResponse:
    name, texts = call.model.card.name, call.body.texts
    meta = {}
    if call.model.card.task is Task.EMBED:
        job = replace(call.job, inputs=(call.body.query, *texts))
        encodings = await call.model.run(job)
        scores = _cosines(encodings.values).tolist()
        warning = f"model {name} embeds texts: relevance_score is the cosine of two embeddings"
        meta = {"meta": {"warnings": [warning]}}
    else:
        encodings = await call.model.run(call.job)
        scores = encodings.values[:, 0].tolist()
    best_first = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": scores[index]}
        for index in best_first[: call.body.top_n or None]
    ]
    if call.body.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    head = {"id": call.job.request_id, "object": "list", "model": name}
    used = describe_usage(encodings.num_tokens_in_all)
    return JSONResponse({**head, "results": results, "usage": used, **meta})


def _cosines(values: Matrix) -> Matrix:
    """Return the cosine of the first embedding with each other one: [n, width] to [n - 1]."""
    lengths = np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    query, *others = values / lengths
    return np.array([(query * other).sum() for other in others])


async def _score(call: Call[PairsBody, Model]) -> JSONResponse:
    encodings = await call.model.run(call.job)
    data = [
        {"index": index, "object": "score", "score": score}
        for index, score in enumerate(encodings.values[:, 0].tolist())
    ]
    head = {"id": call.job.request_id, "object": "list", "created": int(time.time())}
    used = {**describe_usage(encodings.num_tokens_in_all), "completion_tokens": 0}
    return JSONResponse({**head, "model": call.model.card.name, "data": data, "usage": used})


def field_names(inputs: str) -> dict[str, str]:
    """Return the names that clients have for fields of pipelines; `inputs` is that of the texts."""
    return {"inputs": inputs, "source_ids": inputs, "max_tokens": "truncate_prompt_tokens"}


_NAMES = field_names("documents")


def check_size(field: str, inputs: Sequence[EncodeInput], max_characters: int) -> None:
    """Raise TooLarge for too many characters or tokens; the query counts with each document."""
    size = sum(map(len, inputs))
    if size > max_characters:
        message = f"must be at most {max_characters} characters or tokens in all"
        raise TooLarge(field, f"{size} of them", message)


def describe_usage(num_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


RERANK = Endpoint(
    protocol=replace(PROTOCOL, field_names=_NAMES),
    path="/rerank",
    name="rerank",
    description=(
        "Order documents by how well they answer a question, the best first. Of a model that embeds"
        " texts the score is a cosine."
        " As at `/rerank` and `/v2/rerank`."
    ),
    body=RerankBody,
    reader=READS_JSON,
    find_model=_ranker,
    answer=_rank,
    answer_type=Ranking,
    example={
        "model": "reranker",
        "query": "What do dogs eat?",
        "documents": ["Dogs eat meat.", "Snow is white."],
    },
    id_prefix="rerank-",
)
RERANK_AT_THE_ROOT = replace(RERANK, protocol=replace(AT_THE_ROOT, field_names=_NAMES))
RERANK_V2 = replace(RERANK_AT_THE_ROOT, path="/v2/rerank")  # for Cohere's newer clients
SCORE = Endpoint(
    protocol=replace(PROTOCOL, field_names=field_names("text_2")),
    path="/score",
    name="score_pairs",
    description="Score pairs of texts: how well the second answers the first.",
    body=PairsBody,
    reader=READS_JSON,
    find_model=_reranker,
    answer=_score,
    answer_type=PairScores,
    example={
        "model": "reranker",
        "text_1": "What do dogs eat?",
        "text_2": ["Dogs eat meat.", "Snow is white."],
    },
    id_prefix="score-",
)
TokenIdList = Annotated[list[int], _ONE_ERROR]
EncoderInput = str | TextList | TokenIdList | Annotated[list[TokenIdList], _ONE_ERROR]


def list_inputs(field: EncoderInput) -> tuple[str | TokenIds, ...]:
    """Return a tuple of all inputs."""
    is_one = isinstance(field, str) or (bool(field) and isinstance(field[0], int))
    several: Any = [field] if is_one else field
    return tuple(item if isinstance(item, str) else tuple(item) for item in several)


def check_inputs(field: str, inputs: Sequence[str | TokenIds], max_characters: int) -> None:
    """Raise RequestError for an empty input, for no inputs and for too many."""
    if not inputs or not all(inputs):
        index = next((index for index, item in enumerate(inputs) if not item), None)
        message = "must not be empty" if index is None else f"number {index} is empty"
        raise RequestError(field, inputs, message)
    check_texts(field, [item for item in inputs if isinstance(item, str)], max_characters)
    check_size(field, inputs, max_characters)


MAX_INPUTS = 2048  # of one request, as in OpenAI
EmbeddingFormat = Literal["float", "base64"]


class EmbeddingsBody(EncodingBody):
    """The body. input: texts, or token ids as they are, without added special tokens.
    encoding_format: base64 has 32-bit floats, little-endian. dimensions: keep this number of
    dimensions; normalised again if the model normalises. prompt_name: the model's prompt before
    each text, such as "query"; by default its default prompt, if it has one.
    """

    input: EncoderInput
    encoding_format: EmbeddingFormat = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    prompt_name: str | None = None

    @property
    def inputs(self) -> tuple[str | TokenIds, ...]:
        return list_inputs(self.input)

    def check(self, max_characters: int) -> None:
        inputs = self.inputs
        if len(inputs) > MAX_INPUTS:
            message = f"must be at most {MAX_INPUTS}, there are {len(inputs)}"
            raise RequestError("input", f"{len(inputs)} inputs", message)
        check_inputs("input", inputs, max_characters)

    def job(self, request_id: str) -> EncodeJob:
        job = super().job(request_id)
        return replace(job, prompt_name=self.prompt_name, dimensions=self.dimensions)


async def _embedder(services: Services, body: EmbeddingsBody) -> Model:
    return await services.catalog.get_model(body.model, Task.EMBED)


async def _answer_embeddings(call: Call[EmbeddingsBody, Model]) -> Response:
    encodings = await call.model.run(call.job)
    # On a thread, because thousands of numbers take long to write.
    name, form = call.model.card.name, call.body.encoding_format
    written = await asyncio.to_thread(_encode_answer, name, form, encodings)
    return Response(written, media_type=JSON)


def _encode_answer(model: str, form: EmbeddingFormat, encodings: Encodings) -> bytes:
    rows: Any = encodings.values.tolist() if form == "float" else map(_base64, encodings.values)
    data = [
        {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)
    ]
    used = describe_usage(encodings.num_tokens_in_all)
    body = {"object": "list", "data": data, "model": model, "usage": used}
    return to_json(body)  # numbers ten times as fast as `json`


def _base64(row: Any) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


EMBEDDINGS = Endpoint(
    protocol=replace(PROTOCOL, field_names=field_names("input")),
    path="/embeddings",
    name="embeddings",
    description="Return the embedding of one text or of several.",
    body=EmbeddingsBody,
    reader=READS_JSON,
    find_model=_embedder,
    answer=_answer_embeddings,
    answer_type=EmbeddingList,
    example={"model": "all-minilm", "input": ["A dog runs.", "Un chien court."]},
    id_prefix="embd-",
)
