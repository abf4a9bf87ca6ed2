"""Holds the messages of OpenAI's chats, and what is said of how they are written as a prompt."""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.api.openai.chat_tools import Tool, ToolCall
from serving.errors import RequestError
from serving.text.chat.template import Chat
from serving.text.plain_text import check_texts

_CACHE_MARK = "prompt_cache_breakpoint"  # of a text part, for OpenAI's cache alone
_OF_THE_TEMPLATE = {"add_generation_prompt", "documents", "messages", "tools"}


class ChatMessage(BaseModel):
    """Holds one message. content: text, or a list of parts that are text; those become lines. What
    else there is of a message is for the template to read or to leave.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    name: str | None = None
    reasoning_content: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _without_no_op_fields(cls, value: Any) -> Any:
        """Drop what says nothing: answers come back as messages with fields that they had not."""
        if not isinstance(value, dict):
            return value
        said = {name: each for name, each in value.items() if each is not None and each != []}
        return {"content": "", **said} if "tool_calls" in said else said

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(map(_text_of_part, self.content))

    def as_template_reads_it(self) -> dict[str, Any]:
        said = self.model_dump(exclude_none=True, exclude={"tool_calls"}) | {"content": self.text}
        calls = [call.as_template_reads_it() for call in self.tool_calls]
        return said | ({"tool_calls": calls} if calls else {})


class ChatFields(BaseModel):
    """Holds what becomes a prompt.

    add_generation_prompt: the template opens the answer. continue_final_message: the answer goes on
    with the last message instead. chat_template_kwargs: further variables of the template, as
    `enable_thinking`.
    """

    messages: list[ChatMessage]
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    tools: list[Tool] = Field(default_factory=list)

    @property
    def shown_tools(self) -> tuple[dict[str, Any], ...]:
        """Return the tools that the template shows."""
        return tuple(tool.as_template_reads_it() for tool in self.tools)

    def check_messages(self, max_characters: int) -> None:
        """Raise RequestError for texts that cannot be read, TooLarge for too many characters."""
        read = (message.as_template_reads_it() for message in self.messages)
        texts = [
            each if isinstance(each, str) else json.dumps(each)
            for message in read
            for each in message.values()
        ]
        check_texts("messages", texts, max_characters)
        check_texts("tools", [json.dumps(tool) for tool in self.shown_tools], max_characters)

    def chat(self) -> Chat:
        self._check_template_fields()
        return Chat(
            tuple(message.as_template_reads_it() for message in self.messages),
            opens_answer=not self.continue_final_message
            and self.add_generation_prompt is not False,
            continues_last=self.continue_final_message,
            variables=self.chat_template_kwargs,
            tools=self.shown_tools,
        )

    def _check_template_fields(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            message = "cannot be combined with add_generation_prompt"
            raise RequestError("continue_final_message", True, message)
        for name in _OF_THE_TEMPLATE & {*self.chat_template_kwargs}:
            raise RequestError("chat_template_kwargs", name, "is not for it to say")


def _text_of_part(part: dict[str, Any]) -> str:
    kind = part.get("type")
    if kind != "text":
        message = "parts of this type are not supported here, only those of type text"
        raise RequestError("messages", kind, message)
    if {*part} - {_CACHE_MARK} != {"type", "text"} or not isinstance(part["text"], str):
        raise RequestError("messages", part, "a part of type text must have a text, and no more")
    return str(part["text"])
