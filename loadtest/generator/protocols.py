"""The protocols: how each asks, and how its answers and events are read."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from loadtest.generator.items import DEFAULT, GREEDY, SAMPLED, Item, num_beams
from loadtest.plan import WorkPlan

BAD_ANSWER = "bad answer"


class AnswerError(Exception):
    """Says why a request got no usable answer; `kind` groups errors of a sort in the report."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(slots=True)
class Output:
    """Holds what an answer brought, and the server's own count of tokens where it gives one."""

    text: str = ""
    output_tokens: int | None = None
    prompt_tokens: int | None = None


class ApiProtocol(ABC):
    """Speaks one protocol. The class attributes say what it can do.

    default_kind: what it is asked for where no mix is given.
    """

    path: ClassVar[str]
    default_kind: ClassVar[str] = DEFAULT
    can_stream: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    knows_kinds: ClassVar[bool] = True
    translates: ClassVar[bool] = True

    @abstractmethod
    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        """Return the body that asks for an item."""

    @abstractmethod
    def output(self, answer: dict[str, Any]) -> Output:
        """Read a whole answer. Raises AnswerError where it is none."""

    def piece(self, chunk: dict[str, Any]) -> str:
        """Return the text of a streamed chunk, which may be empty; it is where nothing streams."""
        return ""


def required_text(value: Any, name: str) -> str:
    """Return a text of an answer. Raises AnswerError where it is anything else."""
    if not isinstance(value, str):
        raise AnswerError(BAD_ANSWER, f"no {name} in the answer")
    return value


def optional_count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


_DONE = b"[DONE]"


class Events:
    """Takes bytes as they come. `is_done` once the stream has said that it is over."""

    def __init__(self) -> None:
        self._rest = b""
        self.is_done = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the chunks that are complete. Raises AnswerError for errors and nonsense."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue  # comments, which keep connections open, and empty lines between events
            payload = line[5:].strip()
            if payload == _DONE:
                self.is_done = True
                return
            chunk = parsed(payload)
            if error := chunk.get("error"):
                raise AnswerError("error in stream", json.dumps(error))
            yield chunk


def parsed(data: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises AnswerError for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        start = data[:100].decode(errors="replace")
        raise AnswerError(BAD_ANSWER, f"not JSON: {start!r}") from error
    if not isinstance(value, dict):
        raise AnswerError(BAD_ANSWER, "not a JSON object")
    return value


class DeepL(ApiProtocol):
    path = "v2/translate"
    knows_kinds = False

    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        languages = {"source_lang": plan.source.upper(), "target_lang": plan.target.upper()}
        model = {} if item.model is None else {"model": item.model}
        return {"text": [item.whole_text]} | languages | model

    def output(self, answer: dict[str, Any]) -> Output:
        translations = answer.get("translations")
        first = translations[0] if isinstance(translations, list) and translations else None
        text = first.get("text") if isinstance(first, dict) else None
        return Output(required_text(text, "translations"))


class LibreTranslate(ApiProtocol):
    path = "translate"

    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        languages = {"source": plan.source, "target": plan.target}
        model = {} if item.model is None else {"model": item.model}
        text = {"q": item.whole_text, "format": "text"}
        length = {} if plan.max_tokens is None else {"max_new_tokens": plan.max_tokens}
        return text | languages | model | length | _decoding(item)

    def output(self, answer: dict[str, Any]) -> Output:
        return Output(required_text(answer.get("translatedText"), "translatedText"))


def _decoding(item: Item) -> dict[str, Any]:
    if item.kind == GREEDY:
        return {"num_beams": 1, "temperature": 0}
    if item.kind == SAMPLED:
        return {"temperature": 1.0, "top_p": 0.95, "seed": item.id}
    width = num_beams(item.kind)
    return {} if width is None else {"num_beams": width}


class OpenAI(ApiProtocol):
    """Holds what completions and chats share."""

    default_kind = GREEDY  # without a word OpenAI's temperature is 1
    can_stream = True
    needs_model = True
    translates = False

    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        length = plan.max_tokens or DEFAULT_MAX_TOKENS
        body = {"model": item.model, "max_tokens": length, **_openai_decoding(item)}
        if plan.is_streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | self.asked(item)

    @abstractmethod
    def asked(self, item: Item) -> dict[str, Any]:
        """Return the field that holds the text."""

    @abstractmethod
    def text_of(self, choice: dict[str, Any], part: str) -> Any:
        """Return the text of a choice; part is what a chat calls it there."""

    def output(self, answer: dict[str, Any]) -> Output:
        output = Output(required_text(self._text(answer, "message"), "text"))
        count_usage(output, answer)
        return output

    def piece(self, chunk: dict[str, Any]) -> str:
        text = self._text(chunk, "delta")
        return text if isinstance(text, str) else ""

    def _text(self, answer: dict[str, Any], part: str) -> Any:
        choices = answer.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        return self.text_of(first, part) if isinstance(first, dict) else None


class Completions(OpenAI):
    path = "v1/completions"

    def asked(self, item: Item) -> dict[str, Any]:
        return {"prompt": item.whole_text}

    def text_of(self, choice: dict[str, Any], part: str) -> Any:
        return choice.get("text")


class Chat(OpenAI):
    path = "v1/chat/completions"

    def asked(self, item: Item) -> dict[str, Any]:
        system = [{"role": "system", "content": item.beginning}] if item.beginning else []
        return {"messages": [*system, {"role": "user", "content": item.text}]}

    def text_of(self, choice: dict[str, Any], part: str) -> Any:
        message = choice.get(part)
        return message.get("content") if isinstance(message, dict) else None


PROTOCOLS: dict[str, ApiProtocol] = {
    "translate": LibreTranslate(),
    "completions": Completions(),
    "chat": Chat(),
    "deepl": DeepL(),
}


DEFAULT_MAX_TOKENS = 64


def count_usage(output: Output, answer: dict[str, Any]) -> None:
    """Take over the usage of an answer or of a chunk, where it has one."""
    usage = answer.get("usage")
    if isinstance(usage, dict):
        output.output_tokens = optional_count(usage.get("completion_tokens"))
        output.prompt_tokens = optional_count(usage.get("prompt_tokens"))


def _openai_decoding(item: Item) -> dict[str, Any]:
    if item.kind == SAMPLED:
        return {"temperature": 1.0, "top_p": 0.95, "seed": item.id}
    width = num_beams(item.kind)
    if width is not None:
        return {"use_beam_search": True, "best_of": width, "temperature": 0}
    return {"temperature": 0} if item.kind == GREEDY else {}
