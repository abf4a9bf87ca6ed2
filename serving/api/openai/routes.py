"""Routes of OpenAI's protocol: completions, chats, embeddings, and the list of models."""

import time
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from serving.api.http.bodies import READS_JSON
from serving.api.http.endpoint import Endpoint, Routes
from serving.api.http.openapi import OF_A_LIST, OF_A_MODEL, described_events
from serving.api.http.services import Services
from serving.api.http.usage import add_usage
from serving.api.openai import chat, completion_body
from serving.api.openai.chat import ChatBody
from serving.api.openai.completion_body import CompletionBody
from serving.api.openai.encoders import (
    CLASSIFY,
    CLASSIFY_AT_THE_ROOT,
    EMBEDDINGS,
    RERANK,
    RERANK_AT_THE_ROOT,
    RERANK_V2,
    SCORE,
)
from serving.api.openai.models import card_of, generator
from serving.api.openai.protocol import (
    AT_THE_ROOT,
    PROTOCOL,
    ChatCompletion,
    Completion,
    ModelBody,
    ModelList,
)
from serving.api.openai.shapes import ChatShape, CompletionShape, answer
from serving.pipelines.cards import ModelCard

_STREAMED = described_events("With `stream`: chunks, then [DONE].")
_COMPLETIONS = Endpoint(
    protocol=replace(PROTOCOL, field_names=completion_body.FIELD_NAMES),
    path="/completions",
    name="completions",
    description="Complete one prompt or several; with `stream`, as server-sent events.",
    body=CompletionBody,
    reader=READS_JSON,
    find_model=generator,
    answer=partial(answer, CompletionShape),
    answer_type=Completion,
    example={"model": "llama-en", "prompt": "It was"},
    id_prefix="cmpl-",
    other_answers=_STREAMED,
)
_CHATS = Endpoint(
    protocol=replace(PROTOCOL, field_names=chat.FIELD_NAMES),
    path="/chat/completions",
    name="chat_completions",
    description="Answer the last of some messages; with `stream`, as server-sent events.",
    body=ChatBody,
    reader=READS_JSON,
    find_model=generator,
    answer=partial(answer, ChatShape),
    answer_type=ChatCompletion,
    example={
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "Hello!"}],
    },
    id_prefix="chatcmpl-",
    other_answers=_STREAMED,
)
_ENCODER_ENDPOINTS = (EMBEDDINGS, CLASSIFY, RERANK, SCORE)
_ALIASES = (CLASSIFY_AT_THE_ROOT, RERANK_AT_THE_ROOT, RERANK_V2)  # where vLLM has them
ENDPOINTS = (_COMPLETIONS, _CHATS, *_ENCODER_ENDPOINTS)


def router(services: Services) -> APIRouter:
    """Return all routes except those of files and batches."""
    started = int(time.time())

    async def models() -> JSONResponse:
        """List the models."""
        found = [_described(model.card, started) for model in await services.catalog.models()]
        return JSONResponse({"object": "list", "data": found})

    async def model(name: str) -> JSONResponse:
        """Describe one model; the name of a translator may end with a language."""
        card = await card_of(services.catalog, name)
        return JSONResponse({**_described(card, started), "card": card.text})

    routes, aliases = Routes(PROTOCOL, services, "OpenAI"), AT_THE_ROOT.router("OpenAI")
    _COMPLETIONS.add_to(routes.router, services)
    _CHATS.add_to(routes.router, services)
    add_usage(routes, services, "openai_usage")
    routes.add("GET", "/models", models, ModelList, OF_A_LIST)
    routes.add("GET", "/models/{name:path}", model, ModelBody, OF_A_MODEL)
    for endpoint in _ENCODER_ENDPOINTS:
        endpoint.add_to(routes.router, services)
    for alias in _ALIASES:
        alias.add_to(aliases, services)
    whole = APIRouter()
    whole.include_router(routes.router)
    whole.include_router(aliases, include_in_schema=False)
    return whole


def _described(card: ModelCard, created: int) -> dict[str, Any]:
    """Describe a model; see `ModelBody`."""
    return {
        "id": card.name,
        "root": card.name,
        "object": "model",
        "created": created,
        "owned_by": "attendant",
        "task": card.task,
        "source_languages": card.source_languages,
        "target_languages": card.target_languages,
        "max_model_len": card.max_tokens,
        "max_source_tokens": card.max_source_tokens,
        "precision": card.precision,
        "architecture": card.architecture,
        "system_fingerprint": card.fingerprint,
        "has_chat_template": card.has_chat_template,
        "generation": card.generation,
        "attention": {kind: asdict(shape) for kind, shape in card.attention.items()},
        "plan": card.plan and asdict(card.plan),
        "encoder": card.encoder and asdict(card.encoder),
    }
