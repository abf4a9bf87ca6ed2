"""Serves rankings by a model that reads a question and a document together: `POST /v1/rerank`, in
the shape of Cohere, Jina and vLLM, and vLLM's `POST /v1/score`.
"""

import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.fields import READS_JSON
from serving.api.http.services import Services
from serving.api.openai.encoder_bodies import (
    EncodingBody,
    PairScores,
    Ranking,
    Texts,
    check_size,
    field_names,
    usage,
)
from serving.api.openai.protocol import AT_THE_ROOT, PROTOCOL
from serving.bundle.manifest import Task
from serving.errors import RequestError
from serving.pipelines.catalog import Model
from serving.pipelines.jobs import Pair
from serving.text.plain_text import check_texts


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str


class RerankBody(EncodingBody):
    """The body. documents: texts, or objects with a text. top_n: of so many of the best is
    told; 0 means of all. return_documents: with their texts.
    """

    query: str
    documents: Annotated[list[str | Document], Field(fail_fast=True)]
    top_n: Annotated[int, Field(ge=0)] = 0
    return_documents: bool = True

    @property
    def texts(self) -> list[str]:
        return [each if isinstance(each, str) else each.text for each in self.documents]

    @property
    def inputs(self) -> tuple[Pair, ...]:
        return tuple(Pair(self.query, text) for text in self.texts)

    def check(self, max_characters: int) -> None:
        if not self.documents:
            raise RequestError("documents", self.documents, "must not be empty")
        check_texts("query", [self.query], max_characters)
        check_texts("documents", self.texts, max_characters)
        check_size("documents", self.inputs, max_characters)


class PairsBody(EncodingBody):
    """The body of `POST /v1/score`: lists of the same length, or one text and a list."""

    text_1: str | Texts
    text_2: str | Texts

    @property
    def inputs(self) -> tuple[Pair, ...]:
        seconds = [self.text_2] if isinstance(self.text_2, str) else self.text_2
        if not seconds:
            raise RequestError("text_2", seconds, "must not be empty")
        firsts = [self.text_1] * len(seconds) if isinstance(self.text_1, str) else self.text_1
        if len(firsts) != len(seconds):
            message = f"must be as many as text_1 has, {len(firsts)}"
            raise RequestError("text_2", f"{len(seconds)} texts", message)
        return tuple(map(Pair, firsts, seconds))

    def check(self, max_characters: int) -> None:
        check_texts("text_1", {pair.first for pair in self.inputs}, max_characters)
        check_texts("text_2", [pair.second for pair in self.inputs], max_characters)
        check_size("text_2", self.inputs, max_characters)


async def _reranker(services: Services, body: EncodingBody) -> Model:
    model = await services.catalog.named(body.model, Task.CLASSIFY)
    encoder = model.card.encoder
    assert encoder is not None
    if len(encoder.labels) > 1 or encoder.separator is None:
        message = f"gives {len(encoder.labels)} labels to a text; it does not score pairs of texts"
        raise RequestError("model", body.model, message)
    return model


async def _rank(call: Call[RerankBody, Model]) -> JSONResponse:
    found = await call.model.run(call.job)
    scores, texts = found.values[:, 0].tolist(), call.body.texts
    best_first = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    results: list[dict[str, Any]] = [
        {"index": index, "relevance_score": scores[index]}
        for index in best_first[: call.body.top_n or None]
    ]
    if call.body.return_documents:
        for result in results:
            result["document"] = {"text": texts[result["index"]]}
    head = {"id": call.job.request_id, "object": "list", "model": call.model.card.name}
    return JSONResponse({**head, "results": results, "usage": usage(found.num_tokens_in_all)})


async def _score(call: Call[PairsBody, Model]) -> JSONResponse:
    found = await call.model.run(call.job)
    data = [
        {"index": index, "object": "score", "score": score}
        for index, score in enumerate(found.values[:, 0].tolist())
    ]
    head = {"id": call.job.request_id, "object": "list", "created": int(time.time())}
    used = {**usage(found.num_tokens_in_all), "completion_tokens": 0}
    return JSONResponse({**head, "model": call.model.card.name, "data": data, "usage": used})


_NAMES = field_names("documents")
RERANK = Endpoint(
    protocol=replace(PROTOCOL, field_names=_NAMES),
    path="/rerank",
    name="rerank",
    description=(
        "Order documents by how well they answer a question, the best first."
        " As at `/rerank` and `/v2/rerank`."
    ),
    body=RerankBody,
    reader=READS_JSON,
    find_model=_reranker,
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
RERANK_V2 = replace(RERANK_AT_THE_ROOT, path="/v2/rerank")  # as Cohere's newer clients ask
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
