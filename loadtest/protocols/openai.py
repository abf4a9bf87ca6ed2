"""Speaks OpenAI's protocol, whole or streamed: completions and chats."""

from abc import abstractmethod
from typing import Any

from loadtest.plan import WorkPlan
from loadtest.protocols.protocol import ApiProtocol, Output, optional_count, required_text
from loadtest.work.items import Item
from loadtest.work.mix import GREEDY, SAMPLED, num_beams


class OpenAI(ApiProtocol):
    """Holds what completions and chats share."""

    default_kind = GREEDY  # without a word OpenAI's temperature is 1
    can_stream = True
    needs_model = True
    translates = False

    def body(self, item: Item, plan: WorkPlan) -> dict[str, Any]:
        body = {"model": item.model, "max_tokens": plan.max_tokens, **_decoding(item)}
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


def count_usage(output: Output, answer: dict[str, Any]) -> None:
    """Take over the usage of an answer or of a chunk, where it has one."""
    usage = answer.get("usage")
    if isinstance(usage, dict):
        output.output_tokens = optional_count(usage.get("completion_tokens"))
        output.prompt_tokens = optional_count(usage.get("prompt_tokens"))


def _decoding(item: Item) -> dict[str, Any]:
    if item.kind == SAMPLED:
        return {"temperature": 1.0, "top_p": 0.95, "seed": item.id}
    width = num_beams(item.kind)
    if width is not None:
        return {"use_beam_search": True, "best_of": width, "temperature": 0}
    return {"temperature": 0} if item.kind == GREEDY else {}
