"""The models of OpenAI's protocol: their list, the model of a body, and their tokens.

A translator translates the prompt, or the last message of the user. The target language is in the
field `target_language` or at the end of the model's name, as in `NAME:fr`; it may be left out if
there is only one. All texts of a request are in one language: `source_language`, or identified.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from fastapi import Request
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field, model_validator

from serving.api.http.bodies import READS_JSON, FieldsBody, RequestBody
from serving.api.http.endpoint import SimpleEndpoint
from serving.api.http.openapi import COMMON_STATUSES, MODEL_STATUSES
from serving.api.http.routing import Routes
from serving.api.http.services import Services
from serving.api.openai.chat import ChatFields, ChatMessage
from serving.api.openai.completion_body import GenerationBody
from serving.api.openai.protocol import (
    AT_THE_ROOT,
    Detokenized,
    ModelBody,
    ModelList,
    Tokenized,
)
from serving.bundle.manifest import Task
from serving.errors import ModelNotFound, RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog, Generator, Model
from serving.pipelines.jobs import DetokenizeJob, TokenizeJob
from serving.pipelines.routing import find_translator, identify_sources
from serving.pipelines.translation.completions import TranslatingGenerator
from serving.text.checks import check_texts
from serving.text.languages import match_codes


def add_models(routes: Routes, services: Services) -> None:
    started = int(time.time())

    async def models(request: Request) -> JSONResponse:
        """List the models."""
        models = [_describe(model.card, started) for model in await services.catalog.models()]
        return JSONResponse({"object": "list", "data": models})

    async def model(request: Request, name: str) -> JSONResponse:
        """Describe one model; the name of a translator may end with a language."""
        card = await card_of(services.catalog, name)
        return JSONResponse({**_describe(card, started), "card": card.text})

    routes.add("GET", "/models", models, ModelList, COMMON_STATUSES)
    routes.add("GET", "/models/{name:path}", model, ModelBody, MODEL_STATUSES)


async def generator(services: Services, body: GenerationBody) -> Generator:
    """Return the model that answers a body. Raises RequestError and ModelNotFound."""
    card, target = await model_and_target(services.catalog, body.model)
    if card.task is not Task.TRANSLATE:
        for field in ("target_language", "source_language"):
            if (value := getattr(body, field)) is not None:
                raise RequestError(field, value, f"model {card.name} does not translate")
        return await services.catalog.get_model(body.model, Task.GENERATE)
    target = _target(card, target, body)
    sources = [code for code in card.source_languages if card.translates(code, target)]
    source = body.source_language or _only(sources)
    texts = body.source_texts
    [guess] = await identify_sources(services, ["\n".join(texts)], source, target, card.name)
    translator = await find_translator(services.catalog, card.name, guess.language, target)
    return TranslatingGenerator(translator, texts, guess.language, target)


def billed_characters(body: RequestBody, generator: Generator) -> int:
    """Return how many characters of a body count against the quota."""
    is_kept = isinstance(generator, TranslatingGenerator) and not generator.runs_model
    return 0 if is_kept else body.num_characters


async def model_and_target(catalog: Catalog, name: str) -> tuple[ModelCard, str | None]:
    """Return the model of a name, and the language at the end of the name, if any.

    Raises ModelNotFound.
    """
    try:
        return (await catalog.get_model(name)).card, None
    except ModelNotFound:
        base, _, target = name.rpartition(":")
        cards = {card.name: card for card in await catalog.translator_cards()}
        if base not in cards or not target:
            raise
        return cards[base], target


async def card_of(catalog: Catalog, name: str) -> ModelCard:
    """Return the card of a model; its name may end with a target language.

    Raises ModelNotFound.
    """
    card, target = await model_and_target(catalog, name)
    if target is not None and not match_codes(target, card.target_languages):
        raise ModelNotFound(name)
    return card


def _target(card: ModelCard, named: str | None, body: GenerationBody) -> str:
    field = body.target_language
    if named and field and named != field:
        raise RequestError("target_language", field, f"the model's name says {named}")
    if target := field or named or _only(card.target_languages):
        return target
    source = body.source_language
    targets = card.targets_of(card.source_language(source)) if source else card.target_languages
    target = _only(targets)
    if target is None:
        message = f"is required: model {card.name} translates into {', '.join(targets)}"
        raise RequestError("target_language", None, message)
    return target


def _only(codes: Sequence[str]) -> str | None:
    return codes[0] if len(codes) == 1 else None


def _describe(card: ModelCard, created: int) -> dict[str, Any]:
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
        "domain": card.domain,
        "licence": card.licence,
        "origin": card.origin,
        "size_bytes": card.size_bytes,
        "quality": card.quality,
        "system_fingerprint": card.fingerprint,
        "has_chat_template": card.has_chat_template,
        "generation": card.generation,
        "attention": {kind: asdict(shape) for kind, shape in card.attention.items()},
        "plan": card.plan and asdict(card.plan),
        "encoder": card.encoder and asdict(card.encoder),
        "picture": card.picture and asdict(card.picture),
        "audio": card.audio and asdict(card.audio),
    }


class TokenizeBody(ChatFields, FieldsBody):
    """The body of `POST /tokenize`: a prompt, or the messages of a chat.

    add_special_tokens: of a prompt, by default true; the template adds those of a chat.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    prompt: str | None = None
    messages: list[ChatMessage] = Field(default_factory=list)
    add_special_tokens: bool | None = None
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _has_one_of_both(self) -> Self:
        if (self.prompt is None) == (not self.messages):
            raise ValueError("needs a prompt or messages, and not both")
        return self

    def job(self, max_characters: int) -> TokenizeJob:
        if self.prompt is None:
            if self.add_special_tokens:
                raise RequestError("add_special_tokens", True, "is for a prompt, not for messages")
            self.check_messages(max_characters)
            return TokenizeJob(self.chat())
        self._check_is_no_chat()
        check_texts("prompt", [self.prompt], max_characters)
        return TokenizeJob(self.prompt, self.add_special_tokens is not False)

    def _check_is_no_chat(self) -> None:
        for name in ChatFields.model_fields:
            if value := getattr(self, name):
                raise RequestError(name, value, "is for messages, not for a prompt")


class DetokenizeBody(FieldsBody):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    tokens: list[int]


async def _model_of(services: Services, name: str) -> Model:
    return await services.catalog.get_model((await card_of(services.catalog, name)).name)


async def _tokenize(services: Services, body: TokenizeBody) -> dict[str, Any]:
    model = await _model_of(services, body.model)
    tokens = await model.run(body.job(services.limits.max_characters))
    return {
        "count": len(tokens.token_ids),
        "max_model_len": model.card.max_tokens,
        "tokens": tokens.token_ids,
        "token_strs": tokens.token_texts if body.return_token_strs else None,
    }


async def _detokenize(services: Services, body: DetokenizeBody) -> dict[str, Any]:
    model = await _model_of(services, body.model)
    return {"prompt": await model.run(DetokenizeJob(tuple(body.tokens)))}


TOKENIZE = SimpleEndpoint(
    protocol=AT_THE_ROOT,
    path="/tokenize",
    name="tokenize",
    description="Show the tokens of a prompt, or of a chat as the model's template writes it.",
    body=TokenizeBody,
    reader=READS_JSON,
    answer=_tokenize,
    answer_type=Tokenized,
    example={"model": "llama-en", "prompt": "It was"},
)
DETOKENIZE = SimpleEndpoint(
    protocol=AT_THE_ROOT,
    path="/detokenize",
    name="detokenize",
    description="Show the text of tokens; special ones have none.",
    body=DetokenizeBody,
    reader=READS_JSON,
    answer=_detokenize,
    answer_type=Detokenized,
    example={"model": "llama-en", "tokens": [100, 200]},
)
