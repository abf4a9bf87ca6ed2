"""Serves OpenAI's `POST /v1/embeddings`."""

import asyncio
import base64
import json
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi.responses import Response
from pydantic import Field

from serving.api.http.endpoint import Call, Endpoint
from serving.api.http.fields import READS_JSON
from serving.api.http.openapi import JSON
from serving.api.http.services import Services
from serving.api.openai.encoder_bodies import (
    EmbeddingList,
    EncodingBody,
    Given,
    check_inputs,
    field_names,
    listed,
    usage,
)
from serving.api.openai.protocol import PROTOCOL
from serving.bundle.manifest import Task
from serving.errors import RequestError
from serving.parameters import TokenIds
from serving.pipelines.catalog import Model
from serving.pipelines.jobs import EncodeJob, Encodings

MAX_INPUTS = 2048  # of one request, as OpenAI has it: an answer holds so many vectors
Format = Literal["float", "base64"]


class EmbeddingsBody(EncodingBody):
    """The body. input: texts, or token ids as they are, without special ones around them.
    encoding_format: base64 is of 32-bit floats, little-endian. dimensions: so many numbers of each
    embedding, of length 1 again if the model's are. prompt_name: which of the model's prompts comes
    before each text, as "query"; without it its default, if it has one.
    """

    input: Given
    encoding_format: Format = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    prompt_name: str | None = None

    @property
    def inputs(self) -> tuple[str | TokenIds, ...]:
        return listed(self.input)

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
    return await services.catalog.named(body.model, Task.EMBED)


async def _answer(call: Call[EmbeddingsBody, Model]) -> Response:
    found = await call.model.run(call.job)
    # Thousands of numbers take a while to write; others go on meanwhile.
    name, form = call.model.card.name, call.body.encoding_format
    written = await asyncio.to_thread(_written, name, form, found)
    return Response(written, media_type=JSON)


def _written(model: str, form: Format, found: Encodings) -> str:
    rows: Any = found.values.tolist() if form == "float" else map(_base64, found.values)
    data = [
        {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)
    ]
    used = usage(found.num_tokens_in_all)
    body = {"object": "list", "data": data, "model": model, "usage": used}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


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
    answer=_answer,
    answer_type=EmbeddingList,
    example={"model": "all-minilm", "input": ["A dog runs.", "Un chien court."]},
    id_prefix="embd-",
)
