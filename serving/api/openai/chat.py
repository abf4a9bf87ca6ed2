"""The body of OpenAI's chat completions: messages, tools, and variables of the chat template."""

import base64
import json
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from serving.api.http.attention import parse_queries
from serving.api.http.bodies import NoOpValues
from serving.api.openai.completion_body import FIELD_NAMES as COMPLETION_FIELD_NAMES
from serving.api.openai.completion_body import GenerationBody, only_one
from serving.api.openai.fields_without_effect import NO_OP_VALUES
from serving.errors import RequestError
from serving.pipelines.decoding import Structure
from serving.pipelines.jobs import CompletionJob
from serving.requests.request import MAX_LOGPROBS
from serving.text.chat_template import Chat
from serving.text.checks import check_texts
from serving.text.tool_calls import (
    ToolFunction,
    tool_call_grammar,
)

_TEMPLATE_FIELDS = {"add_generation_prompt", "documents", "messages", "tools"}
# Members of messages and parts that would change the answer. Of all others clients send what
# servers have answered, and notes of their own, which say nothing to a model.
_MEANINGFUL = frozenset(
    {
        *("attachments", "audio", "audios", "documents", "files", "function_call", "functions"),
        *("images", "partial", "prefix", "refusal", "tool_responses", "tools", "videos"),
    }
)


def drop_ignored_members(value: Any) -> Any:
    """Return a message, or a part of one, without members that say nothing. Raise RequestError for
    one that says what is not supported here.
    """
    if not isinstance(value, dict):
        return value
    members = {name: member for name, member in value.items() if member not in (None, [])}
    for name, member in members.items():
        if member and name in _MEANINGFUL:
            raise RequestError("messages", member, f"{name} is not supported here")
    return members


class _TolerantModel(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class CalledFunction(_TolerantModel):
    name: str
    arguments: str


class ToolCall(_TolerantModel):
    """A tool call in an earlier answer."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction

    def for_template(self) -> dict[str, Any]:
        """Return the call with its arguments as an object, which templates write as JSON."""
        try:
            arguments = json.loads(self.function.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            message = "arguments of a tool call must be a JSON object"
            raise RequestError("messages", self.function.arguments, message)
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


class ChatMessage(BaseModel):
    """A message. content: text, or a list of parts: texts, which are joined by line feeds, and
    pictures. The template decides what it uses of the other fields.
    """

    model_config = ConfigDict(extra="ignore", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    name: str | None = None
    reasoning_content: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _with_its_meaning(cls, value: Any) -> Any:
        """Return what the message says. An answer may have no text, only calls or thoughts, which
        servers call by two names, and a tool may answer nothing.
        """
        members = drop_ignored_members(value)
        if not isinstance(members, dict):
            return members
        if isinstance(reasoning := members.get("reasoning"), str):
            members = {"reasoning_content": reasoning, **members}
        may_be_empty = members.get("role") in ("assistant", "tool")
        return {"content": "", **members} if may_be_empty else members

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        texts = (_text_of_part(part) for part in self.content if part.get("type") != PICTURE)
        return "\n".join(texts)

    @property
    def picture_urls(self) -> list[str]:
        parts = [] if isinstance(self.content, str) else self.content
        return [_picture_url(part) for part in parts if part.get("type") == PICTURE]

    def for_template(self) -> dict[str, Any]:
        """Return the message with its text as content; templates do not show pictures."""
        members = self.model_dump(exclude_none=True, exclude={"content", "tool_calls"})
        members["content"] = self.text
        calls = [call.for_template() for call in self.tool_calls]
        return members | ({"tool_calls": calls} if calls else {})


class _ToolModel(BaseModel):
    """A part of a tool. Templates show it, so only marks for caches are ignored of its members."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_notes(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            name: member
            for name, member in value.items()
            if member is not None and name != "cache_control"
        }


class FunctionDefinition(_ToolModel):
    """A function. strict: without effect, as arguments always follow their schema."""

    name: Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None

    @field_validator("parameters")
    @classmethod
    def _are_of_an_object(cls, value: dict[str, Any]) -> dict[str, Any]:
        kinds = value.get("type", "object")
        if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
            raise ValueError(f"must be the schema of an object, not of {kinds}")
        return value


class Tool(_ToolModel):
    type: Literal["function"]
    function: FunctionDefinition

    def for_template(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class ChatFields(BaseModel):
    """The fields that the prompt is made from."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    messages: list[ChatMessage]
    """The chat so far; the last message is answered."""
    add_generation_prompt: bool | None = None
    """Whether the template begins the answer, which it does unless the last message goes on."""
    continue_final_message: bool = False
    """The answer continues the last message."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further variables of the model's template, such as {"enable_thinking": false}."""
    tools: list[Tool] = Field(default_factory=list)
    """Functions that the model may ask to call."""

    @property
    def shown_tools(self) -> tuple[dict[str, Any], ...]:
        """Return the tools that the template shows."""
        return tuple(tool.for_template() for tool in self.tools)

    def check_messages(self, max_characters: int) -> None:
        """Raise RequestError for unreadable texts, and TooLarge for too many characters."""
        read = (message.for_template() for message in self.messages)
        texts = [
            member if isinstance(member, str) else json.dumps(member)
            for message in read
            for member in message.values()
        ]
        check_texts("messages", texts, max_characters)
        check_texts("tools", [json.dumps(tool) for tool in self.shown_tools], max_characters)

    def chat(self) -> Chat:
        self._check_template_fields()
        return Chat(
            tuple(message.for_template() for message in self.messages),
            opens_answer=not self.continue_final_message
            and self.add_generation_prompt is not False,
            continues_last=self.continue_final_message,
            variables=self.chat_template_kwargs,
            tools=self.shown_tools,
            pictures=tuple(map(_file_of, self._picture_urls)),
        )

    @property
    def _picture_urls(self) -> list[str]:
        return [url for message in self.messages for url in message.picture_urls]

    def _check_template_fields(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            message = "cannot be combined with add_generation_prompt"
            raise RequestError("continue_final_message", True, message)
        for name in self.chat_template_kwargs:
            if name in _TEMPLATE_FIELDS:
                raise RequestError("chat_template_kwargs", name, "is a field of its own")


PICTURE = "image_url"  # type of a part
_DATA_URL = re.compile(r"data:image/(png|jpeg|jpg|webp|gif);base64", re.IGNORECASE)


def _picture_url(part: dict[str, Any]) -> str:
    """Return the URL of a part of type image_url; its `detail` changes nothing."""
    described = drop_ignored_members(part).get(PICTURE)
    url = described.get("url") if isinstance(described, dict) else None
    if not isinstance(url, str):
        message = 'a part of type image_url must have an image_url, {"url": ...}'
        raise RequestError("messages", sorted(part), message)
    return url


def _file_of(url: str) -> bytes:
    """Return the file that a data URL holds. Nothing is fetched from elsewhere."""
    head, _, content = url.partition(",")
    if not _DATA_URL.fullmatch(head):
        message = "image_url must be data:image/png;base64,... (or jpeg, webp, gif)"
        raise RequestError("messages", url[:60], f"{message}; other URLs are not read")
    try:
        return base64.b64decode(content, validate=True)
    except ValueError as error:
        raise RequestError("messages", url[:60], f"image_url is no base64: {error}") from None


def _text_of_part(part: dict[str, Any]) -> str:
    kind = part.get("type")
    if kind != "text":
        message = "parts of this type are not supported here, only those of type text"
        raise RequestError("messages", kind, message)
    if not isinstance(text := drop_ignored_members(part).get("text"), str):
        raise RequestError("messages", part, "a part of type text must have a text")
    return text


MAX_TOOLS = 128  # as in OpenAI


class NamedFunction(_ToolModel):
    name: str


class NamedChoice(_ToolModel):
    type: Literal["function"]
    function: NamedFunction


def calls_structure(
    tools: list[Tool], choice: str | NamedChoice | None, several: bool
) -> Structure | None:
    """Return the structure of an answer that may call tools; None if it may not.

    Raises RequestError for a wrong choice.
    """
    if choice == "none" or (not tools and choice in (None, "auto")):
        return None
    functions = [ToolFunction(tool.function.name, tool.function.parameters) for tool in tools]
    names = [function.name for function in functions]
    if len(tools) > MAX_TOOLS or len({*names}) < len(names):
        raise RequestError(
            "tools", len(tools), f"must be at most {MAX_TOOLS}, each of its own name"
        )
    if isinstance(choice, NamedChoice):
        functions = [function for function in functions if function.name == choice.function.name]
        several = False
    if not functions:
        raise RequestError("tool_choice", choice, "needs tools that it can choose from")
    must_call = choice not in (None, "auto")
    return Structure("grammar", tool_call_grammar(functions, must_call, several), "tools")


# Fields that have an effect only on other servers, with the values that change nothing.
_NO_OP_VALUES: NoOpValues = NO_OP_VALUES | {
    "add_special_tokens": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_reasoning": (True,),
    "modalities": (["text"],),
    "tools": ([],),
    "verbosity": ("medium",),
}
FIELD_NAMES = COMPLETION_FIELD_NAMES | dict.fromkeys(
    ("forced_ids", "prompt_ids", "text"), "messages"
)


class ChatBody(ChatFields, GenerationBody):
    """The body of `POST /v1/chat/completions`."""

    no_op_values: ClassVar[NoOpValues] = _NO_OP_VALUES

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    """The chat so far; the last message is answered."""
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    """OpenAI's newer name of `max_tokens`."""
    logprobs: bool = False
    """Returns the log-probability of each token."""
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    """Returns those of this many of the likeliest tokens, too. Needs logprobs."""
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    """Whether the model may call functions (auto), must (required), or must not (none); or the
    function that it must call."""
    parallel_tool_calls: bool = True
    """Whether the model may call several functions in one answer."""

    @property
    def shown_tools(self) -> tuple[dict[str, Any], ...]:
        return () if self.tool_choice == "none" else super().shown_tools

    def _structure(self) -> Structure | None:
        structure = super()._structure()
        calls = calls_structure(self.tools, self.tool_choice, self.parallel_tool_calls)
        return only_one([part for part in (calls, structure) if part])

    @property
    def source_texts(self) -> tuple[str, ...]:
        """Return the last message of the user, which is what a translator translates."""
        if self._picture_urls:
            raise RequestError("messages", PICTURE, "a model that translates reads no pictures")
        texts = [message.text for message in self.messages if message.role == "user"]
        if not texts:
            roles = [message.role for message in self.messages]
            raise RequestError("messages", roles, "one must be the user's, to be translated")
        return (texts[-1],)

    @property
    def num_characters(self) -> int:
        return sum(len(message.text) for message in self.messages)

    def check(self, max_characters: int) -> None:
        self.check_stream()
        self.check_messages(max_characters)

    def job(self, request_id: str) -> CompletionJob:
        return CompletionJob(
            request_id=request_id,
            prompts=(self.chat(),),
            decoding=self.decoding(self._max_new_tokens(), self._logprobs()),
            num_samples=self.n,
            stop=self.stops,
            includes_stop=self.include_stop_str_in_output,
            returns_token_ids=self.return_token_ids,
            streams=self.stream,
            attention_queries=parse_queries(self.return_attention),
        )

    def _max_new_tokens(self) -> int | None:
        if self.max_tokens == 0:
            raise RequestError("max_tokens", 0, "must be at least 1")
        if None in (self.max_tokens, self.max_completion_tokens):
            return self.max_completion_tokens or self.max_tokens
        if self.max_tokens != self.max_completion_tokens:
            message = f"must be max_tokens, {self.max_tokens}, or not be given"
            raise RequestError("max_completion_tokens", self.max_completion_tokens, message)
        return self.max_tokens

    def _logprobs(self) -> int | None:
        if self.logprobs:
            return self.top_logprobs or 0
        if self.top_logprobs is not None:
            raise RequestError("top_logprobs", self.top_logprobs, "needs logprobs to be true")
        return None
