"""vLLM's `/tokenize` and `/detokenize`: the tokens of texts and chats, and the text of tokens."""

from typing import Any, Self

from fastapi import APIRouter
from pydantic import ConfigDict, Field, model_validator

from serving.api.http.bodies import READS_JSON, FieldsBody
from serving.api.http.endpoint import SimpleEndpoint
from serving.api.http.services import Services
from serving.api.openai.chat import ChatFields, ChatMessage
from serving.api.openai.models import card_of
from serving.api.openai.protocol import AT_THE_ROOT, Detokenized, Tokenized
from serving.errors import RequestError
from serving.pipelines.jobs import DetokenizeJob, TokenizeJob
from serving.text.plain_text import check_texts


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


async def _tokenize(services: Services, body: TokenizeBody) -> dict[str, Any]:
    card = await card_of(services.catalog, body.model)
    model = await services.catalog.named(card.name)
    found = await model.run(body.job(services.limits.max_characters))
    return {
        "count": len(found.token_ids),
        "max_model_len": card.max_tokens,
        "tokens": found.token_ids,
        "token_strs": found.written if body.return_token_strs else None,
    }


async def _detokenize(services: Services, body: DetokenizeBody) -> dict[str, Any]:
    card = await card_of(services.catalog, body.model)
    model = await services.catalog.named(card.name)
    return {"prompt": await model.run(DetokenizeJob(tuple(body.tokens)))}


_TOKENIZE = SimpleEndpoint(
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
_DETOKENIZE = SimpleEndpoint(
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
ENDPOINTS = (_TOKENIZE, _DETOKENIZE)


def router(services: Services) -> APIRouter:
    routes = AT_THE_ROOT.router("OpenAI")
    for endpoint in ENDPOINTS:
        endpoint.add_to(routes, services)
    return routes
