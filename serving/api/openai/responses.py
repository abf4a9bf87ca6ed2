"""The body of OpenAI's Responses, which is read as a chat. Nothing is kept here: a conversation
goes on when the client sends all of it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from serving.api.http.bodies import DecodingFields, NoOpValues, Refusals, RequestBody, validate
from serving.api.openai.chat import PICTURE, ChatBody, drop_ignored_members
from serving.api.openai.fields_without_effect import NO_OP_VALUES, FieldsWithoutEffect
from serving.errors import RequestError
from serving.pipelines.jobs import CompletionJob

# The fields of the engine, the pipelines and chats, and their names here.
FIELD_NAMES = {
    **dict.fromkeys(("forced_ids", "messages", "prompt_ids", "text"), "input"),
    **dict.fromkeys(("max_completion_tokens", "max_new_tokens", "max_tokens"), "max_output_tokens"),
    **dict.fromkeys(("response_format", "text_options"), "text"),
    "source": "source_language",
    "target": "target_language",
}
_CHAT_FIELDS = {*ChatBody.model_fields} - {"stream_options", "tool_choice", "tools"}
_STATELESS = "nothing is kept here, so send the whole conversation as input"
_LOGPROBS = "message.output_text.logprobs"


class TextOptions(BaseModel):
    """What the text of an answer is like. verbosity: no model has another than medium."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: dict[str, Any] = Field(default_factory=lambda: {"type": "text"})
    verbosity: Literal["medium"] | None = None


class ResponseBody(FieldsWithoutEffect, DecodingFields, RequestBody):
    """The body of `POST /v1/responses`."""

    # `text` is also the pipelines' name of an input, so its errors have the name of the attribute.
    model_config = ConfigDict(extra="forbid", strict=True, loc_by_alias=False)
    no_op_values: ClassVar[NoOpValues] = NO_OP_VALUES | {
        "background": (False,),
        "reasoning": ({}, {"effort": None}, {"effort": None, "summary": None}),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
    }
    refusals: ClassVar[Refusals] = {
        "background": _STATELESS,
        "conversation": _STATELESS,
        "previous_response_id": _STATELESS,
        "reasoning": "no model here has options of reasoning",
    }
    _chat: ChatBody = PrivateAttr()

    model: str
    """The name of a model of `/v1/models`."""
    input: str | list[dict[str, Any]]
    """The text of the user, or the conversation so far, whose last item is answered: messages of
    texts and pictures, calls of functions, and what these returned."""
    instructions: str | None = None
    """The first message, of the system."""
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    """Ends the answer after this many tokens."""
    max_tool_calls: Any = None
    """Limits calls of OpenAI's own tools. Without effect here."""
    text_options: TextOptions = Field(default=TextOptions(), alias="text")
    """{"format": {"type": "json_object"}}: the answer is a JSON object. "json_schema": it follows a
    schema."""
    tools: list[dict[str, Any]] = Field(default_factory=list)
    """Functions that the model may ask to call."""
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] = "auto"
    """Whether the model may call functions (auto), must (required), or must not (none); or the
    function that it must call."""
    parallel_tool_calls: bool = True
    """Whether the model may call several functions in one answer."""
    include: list[str] = Field(default_factory=list)
    """"message.output_text.logprobs" returns log-probabilities, of answers without tools. Others
    are without effect."""
    top_logprobs: int | None = None
    """Returns those of this many of the likeliest tokens, too."""
    stream: bool = False
    """Sends the answer in pieces, as server-sent events."""
    stream_options: dict[Literal["include_obfuscation"], Any] | None = None
    """Options of OpenAI's streams. Without effect here."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further variables of the model's template, such as {"enable_thinking": false}."""
    source_language: str | None = None
    """The language of the text, for a model that translates."""
    target_language: str | None = None
    """The language to translate into, for a model that translates."""

    def model_post_init(self, context: Any) -> None:
        fields = {name: value for name, value in self._chat_fields() if value is not None}
        self._chat = validate(ChatBody, fields)

    @property
    def chat(self) -> ChatBody:
        """Return the same request as a chat."""
        return self._chat

    @property
    def num_characters(self) -> int:
        return self.chat.num_characters

    def check(self, max_characters: int) -> None:
        self.chat.check(max_characters)
        if self.chat.logprobs and self.tools:
            raise RequestError("include", _LOGPROBS, "cannot be combined with tools")

    def with_defaults(self, generation: Mapping[str, Any]) -> Self:
        body = self.model_copy()
        body._chat = self.chat.with_defaults(generation)
        return body

    def job(self, request_id: str) -> CompletionJob:
        return self.chat.job(request_id)

    def _chat_fields(self) -> Iterator[tuple[str, Any]]:
        for name in self.model_fields_set:
            if name in _CHAT_FIELDS:
                yield name, getattr(self, name)
        yield "messages", self._messages()
        yield "max_completion_tokens", self.max_output_tokens
        yield "logprobs", _LOGPROBS in self.include
        yield "response_format", _nest_fields(self.text_options.format, "json_schema")
        yield "tools", [_nest_fields(tool, "function") for tool in self.tools]
        choice = self.tool_choice
        yield "tool_choice", choice if isinstance(choice, str) else _nest_fields(choice, "function")

    def _messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if self.instructions is not None:
            messages.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*messages, {"role": "user", "content": self.input}]
        thoughts = ""
        for item in map(drop_ignored_members, self.input):
            if item.get("type") == "reasoning":
                thoughts += _thoughts(item)
                continue
            num_before = len(messages)
            _add_item(item, messages)
            if thoughts and len(messages) > num_before and messages[-1]["role"] == "assistant":
                messages[-1]["reasoning_content"] = thoughts
            thoughts = ""
        return messages


def _thoughts(item: Mapping[str, Any]) -> str:
    """Return what a model has thought before the next item, as far as it is told in words."""
    parts = item.get("content")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if parts else []
    return "".join(text for text in texts if isinstance(text, str))


def _add_item(item: Mapping[str, Any], messages: list[dict[str, Any]]) -> None:
    """Add an item to the messages of a chat. Raise RequestError for one that chats have not.

    What answers have besides, such as an id and a status, is left out: clients send it back.
    """
    kind = item.get("type", "message")
    if kind == "message" and "role" in item:
        messages.append({"role": item["role"], "content": _content(item.get("content"))})
    elif kind == "function_call":
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        function = {name: item[name] for name in ("name", "arguments") if name in item}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        answer = {"content": _content(item.get("output")), "tool_call_id": item.get("call_id")}
        messages.append({"role": "tool", **answer})
    else:
        message = "items must be a message of a role and a content, a function_call or its output"
        raise RequestError("input", dict(item), message)


def _content(content: Any) -> Any:
    """Return the text, or the parts, of an item as chats have them. Raises RequestError."""
    return [*map(_part, content)] if isinstance(content, list) else content


def _part(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text")}
    if kind != "input_image":
        message = "parts must be an input_text, an output_text or an input_image"
        raise RequestError("input", part, message)
    if part.get("file_id") is not None:
        message = f"file_id is not supported here: send the picture as {PICTURE}, a data URL"
        raise RequestError("input", part["file_id"], message)
    if not isinstance(part.get(PICTURE), str):
        message = f"a part of type input_image must have an {PICTURE}, a data URL"
        raise RequestError("input", sorted(part), message)
    return {"type": PICTURE, PICTURE: {"url": part[PICTURE]}}


def _nest_fields(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields as chats have them: those besides the type below a name."""
    inner = {key: value for key, value in fields.items() if key != "type" and value is not None}
    return {"type": fields.get("type")} | ({name: inner} if inner else {})
