"""Routes of OpenAI's protocol and of vLLM's extensions, except files and batches."""

from dataclasses import replace
from functools import partial

from serving.api.http.bodies import READS_JSON
from serving.api.http.endpoint import Endpoint
from serving.api.http.openapi import describe_events
from serving.api.http.routing import ProtocolRoute, Routes
from serving.api.http.services import Services
from serving.api.http.usage import add_usage
from serving.api.openai import chat, completion_body, responses
from serving.api.openai.chat import ChatBody
from serving.api.openai.classify import CLASSIFY, CLASSIFY_AT_THE_ROOT, FILL_MASK
from serving.api.openai.completion_body import CompletionBody
from serving.api.openai.encoders import (
    EMBEDDINGS,
    RERANK,
    RERANK_AT_THE_ROOT,
    RERANK_V2,
    SCORE,
)
from serving.api.openai.models import DETOKENIZE, TOKENIZE, add_models, billed_characters, generator
from serving.api.openai.protocol import (
    PROTOCOL,
    ChatCompletion,
    Completion,
    ResponseObject,
)
from serving.api.openai.response_shape import answer_response
from serving.api.openai.responses import ResponseBody
from serving.api.openai.shapes import ChatShape, CompletionShape, answer
from serving.api.openai.transcriptions import SPEECH_TRANSLATIONS, TRANSCRIPTIONS
from serving.pipelines.catalog import Generator

_STREAMED = describe_events("With `stream`: chunks, then [DONE].")
COMPLETIONS = Endpoint(
    protocol=replace(PROTOCOL, field_names=completion_body.FIELD_NAMES),
    path="/completions",
    name="completions",
    description="Complete one prompt or several; with `stream`, as server-sent events.",
    body=CompletionBody,
    reader=READS_JSON,
    find_model=generator,
    billed=billed_characters,
    answer=partial(answer, CompletionShape),
    answer_type=Completion,
    example={"model": "llama-en", "prompt": "It was"},
    id_prefix="cmpl-",
    other_answers=_STREAMED,
)
CHATS = Endpoint(
    protocol=replace(PROTOCOL, field_names=chat.FIELD_NAMES),
    path="/chat/completions",
    name="chat_completions",
    description="Answer the last of some messages; with `stream`, as server-sent events.",
    body=ChatBody,
    reader=READS_JSON,
    find_model=generator,
    billed=billed_characters,
    answer=partial(answer, ChatShape),
    answer_type=ChatCompletion,
    example={
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "Hello!"}],
    },
    id_prefix="chatcmpl-",
    other_answers=_STREAMED,
)


async def _generator(services: Services, body: ResponseBody) -> Generator:
    return await generator(services, body.chat)


RESPONSES = Endpoint(
    protocol=replace(PROTOCOL, field_names=responses.FIELD_NAMES),
    path="/responses",
    name="responses",
    description="Answer a text, or a conversation; with `stream`, as server-sent events.",
    body=ResponseBody,
    reader=READS_JSON,
    find_model=_generator,
    billed=billed_characters,
    answer=answer_response,
    answer_type=ResponseObject,
    example={"model": "smollm2-135m-instruct", "input": "Hello!"},
    id_prefix="resp_",
    other_answers=describe_events("With `stream`: events, the last one with the whole answer."),
)
_GENERATING = (COMPLETIONS, CHATS, RESPONSES)
_OTHERS = (EMBEDDINGS, CLASSIFY, FILL_MASK, RERANK, SCORE, TOKENIZE, DETOKENIZE)
_HEARING = (TRANSCRIPTIONS, SPEECH_TRANSLATIONS)
ENDPOINTS = (*_GENERATING, *_OTHERS, *_HEARING)
_ALIASES = (CLASSIFY_AT_THE_ROOT, RERANK_AT_THE_ROOT, RERANK_V2)  # where vLLM has them


def routes(services: Services) -> list[ProtocolRoute]:
    routes = Routes(PROTOCOL, "OpenAI", services.authenticator)
    for generating in _GENERATING:
        generating.add_to(routes, services)
    add_usage(routes, services, "openai_usage")
    add_models(routes, services)
    for other in _OTHERS:
        other.add_to(routes, services)
    for hearing in _HEARING:
        hearing.add_to(routes, services)
    for alias in _ALIASES:
        alias.add_to(routes, services, is_listed=False)
    return routes.routes
