"""The HTTP protocols: how each asks, and how its answers and streamed events are read."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from loadtest.plan import WorkPlan

BAD_ANSWER = "bad answer"
DEFAULT_MAX_TOKENS = 64  # of completions and chats


class AnswerError(Exception):
    """Raised for an answer that cannot be used; the report groups errors by `kind`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(slots=True)
class Output:
    """The text of an answer, and its number of tokens if the server says so."""

    text: str = ""
    output_tokens: int | None = None


class ApiProtocol(ABC):
    path: ClassVar[str]
    can_stream: ClassVar[bool] = False
    translates: ClassVar[bool] = True

    @abstractmethod
    def body(self, text: str, plan: WorkPlan) -> dict[str, Any]:
        """Return the request body that asks for a text."""

    @abstractmethod
    def output(self, answer: dict[str, Any]) -> Output:
        """Read a whole answer. Raise AnswerError if it has no text."""

    def piece(self, chunk: dict[str, Any]) -> str:
        """Return the text of a streamed chunk, which may be empty."""
        return ""


class DeepL(ApiProtocol):
    path = "v2/translate"

    def body(self, text: str, plan: WorkPlan) -> dict[str, Any]:
        languages = {"source_lang": plan.source.upper(), "target_lang": plan.target.upper()}
        return {"text": [text]} | languages | _model(plan)

    def output(self, answer: dict[str, Any]) -> Output:
        translations = answer.get("translations")
        first = translations[0] if isinstance(translations, list) and translations else None
        text = first.get("text") if isinstance(first, dict) else None
        return Output(_required_text(text, "translations"))


class LibreTranslate(ApiProtocol):
    path = "translate"

    def body(self, text: str, plan: WorkPlan) -> dict[str, Any]:
        body = {"q": text, "format": "text", "source": plan.source, "target": plan.target}
        length = {} if plan.max_tokens is None else {"max_new_tokens": plan.max_tokens}
        return body | _model(plan) | length

    def output(self, answer: dict[str, Any]) -> Output:
        return Output(_required_text(answer.get("translatedText"), "translatedText"))


class OpenAI(ApiProtocol):
    """Base class of completions and chats."""

    can_stream = True
    translates = False

    def body(self, text: str, plan: WorkPlan) -> dict[str, Any]:
        body: dict[str, Any] = {
            "max_tokens": plan.max_tokens or DEFAULT_MAX_TOKENS,
            "temperature": 0,
        }
        if plan.is_streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | _model(plan) | self.prompt_fields(text)

    @abstractmethod
    def prompt_fields(self, text: str) -> dict[str, Any]:
        """Return the field that holds the text."""

    @abstractmethod
    def text_of(self, choice: dict[str, Any], name: str) -> Any:
        """Return the text of a choice; a chat keeps it in the object of that name."""

    def output(self, answer: dict[str, Any]) -> Output:
        output = Output(_required_text(self._text(answer, "message"), "text"))
        count_usage(output, answer)
        return output

    def piece(self, chunk: dict[str, Any]) -> str:
        text = self._text(chunk, "delta")
        return text if isinstance(text, str) else ""

    def _text(self, answer: dict[str, Any], name: str) -> Any:
        choices = answer.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return self.text_of(first, name) if isinstance(first, dict) else None


class Completions(OpenAI):
    path = "v1/completions"

    def prompt_fields(self, text: str) -> dict[str, Any]:
        return {"prompt": text}

    def text_of(self, choice: dict[str, Any], name: str) -> Any:
        return choice.get("text")


class ChatProtocol(OpenAI):
    path = "v1/chat/completions"

    def prompt_fields(self, text: str) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}]}

    def text_of(self, choice: dict[str, Any], name: str) -> Any:
        """Return the reasoning and the answer: the first token of either is the first."""
        message = choice.get(name)
        if not isinstance(message, dict):
            return None
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        texts = [text for text in (reasoning, message.get("content")) if isinstance(text, str)]
        return "".join(texts) if texts else None


PROTOCOLS: dict[str, ApiProtocol] = {
    "translate": LibreTranslate(),
    "completions": Completions(),
    "chat": ChatProtocol(),
    "deepl": DeepL(),
}


def _model(plan: WorkPlan) -> dict[str, Any]:
    return {} if plan.model is None else {"model": plan.model}


def _required_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise AnswerError(BAD_ANSWER, f"no {name} in the answer")
    return value


def count_usage(output: Output, answer: dict[str, Any]) -> None:
    """Copy the number of tokens from an answer or a chunk that has one."""
    usage = answer.get("usage")
    if isinstance(usage, dict):
        count = usage.get("completion_tokens")
        output.output_tokens = count if isinstance(count, int) else None


class Events:
    """Reads server-sent events from bytes as they arrive. `is_done` after `[DONE]`."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_done = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the chunks that are complete. Raise AnswerError for errors and invalid JSON."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue  # comments, which keep connections open, and empty lines between events
            payload = line[5:].strip()
            if payload == b"[DONE]":
                self.is_done = True
                return
            chunk = parse_event(payload)
            if error := chunk.get("error"):
                raise AnswerError("error in stream", json.dumps(error))
            yield chunk


def parse_event(data: bytes) -> dict[str, Any]:
    """Return a JSON object. Raise AnswerError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        start = data[:100].decode(errors="replace")
        raise AnswerError(BAD_ANSWER, f"not JSON: {start!r}") from error
    if not isinstance(value, dict):
        raise AnswerError(BAD_ANSWER, "not a JSON object")
    return value
