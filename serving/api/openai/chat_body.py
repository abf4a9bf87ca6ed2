"""Holds the body of OpenAI's chats. As with completions, every field acts or is refused by name."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.api.http.bodies import NoOpValues
from serving.api.openai.completion_body import FIELD_NAMES as COMPLETION_FIELD_NAMES
from serving.api.openai.completion_body import GenerationBody
from serving.errors import RequestError
from serving.pipelines.completion.job import CompletionJob
from serving.request import MAX_LOGPROBS
from serving.text.chat.template import Chat
from serving.text.plain_text import check_texts

# Fields that other servers act on and this one does not, each with the values that do nothing.
_NO_OP_VALUES: NoOpValues = {
    "add_special_tokens": (False,),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_reasoning": (True,),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
}
FIELD_NAMES = COMPLETION_FIELD_NAMES | dict.fromkeys(
    ("forced_ids", "prompt_ids", "text"), "messages"
)
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

    @model_validator(mode="before")
    @classmethod
    def _without_no_op_fields(cls, value: Any) -> Any:
        """Drop what says nothing: answers come back as messages with fields that they had not."""
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None and each != []}

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(map(_text_of_part, self.content))

    def as_template_reads_it(self) -> dict[str, Any]:
        return {**self.model_dump(exclude_none=True), "content": self.text}


class ChatBody(GenerationBody):
    """Holds the body of `POST /v1/chat/completions`.

    max_completion_tokens: OpenAI's newer name of max_tokens; without either, as many as the model's
    makers recommend, or as fit. add_generation_prompt: the template opens the answer.
    continue_final_message: the answer goes on with the last message instead. chat_template_kwargs:
    further variables of the template, as `enable_thinking`. prompt_cache_key, safety_identifier:
    accepted and not used.
    """

    no_op_values: ClassVar[NoOpValues] = _NO_OP_VALUES

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    @property
    def source_texts(self) -> tuple[str, ...]:
        """Return the last text of the user: what was said before it is no part of it."""
        texts = [message.text for message in self.messages if message.role == "user"]
        if not texts:
            roles = [message.role for message in self.messages]
            raise RequestError("messages", roles, "one must be the user's, to be translated")
        return (texts[-1],)

    @property
    def num_characters(self) -> int:
        return sum(len(message.text) for message in self.messages)

    def check(self, max_characters: int) -> None:
        read = (message.as_template_reads_it() for message in self.messages)
        texts = [text for message in read for text in message.values()]
        check_texts("messages", texts, max_characters)

    def job(self, request_id: str) -> CompletionJob:
        return CompletionJob(
            request_id=request_id,
            prompts=(self._chat(),),
            decoding=self.decoding(self._max_new_tokens(), self._logprobs()),
            num_samples=self.n,
            stop=self.stops,
            streams=self.stream,
        )

    def _chat(self) -> Chat:
        self._check_template_fields()
        return Chat(
            tuple(message.as_template_reads_it() for message in self.messages),
            opens_answer=not self.continue_final_message
            and self.add_generation_prompt is not False,
            continues_last=self.continue_final_message,
            variables=self.chat_template_kwargs,
        )

    def _check_template_fields(self) -> None:
        if self.continue_final_message and self.add_generation_prompt:
            message = "cannot be combined with add_generation_prompt"
            raise RequestError("continue_final_message", True, message)
        for name in _OF_THE_TEMPLATE & {*self.chat_template_kwargs}:
            raise RequestError("chat_template_kwargs", name, "is not for it to say")

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


def _text_of_part(part: dict[str, Any]) -> str:
    kind = part.get("type")
    if kind != "text":
        message = "parts of this type are not supported here, only those of type text"
        raise RequestError("messages", kind, message)
    if {*part} != {"type", "text"} or not isinstance(part["text"], str):
        raise RequestError("messages", part, "a part of type text must have a text, and no more")
    return str(part["text"])
