"""Holds the body of OpenAI's chats. As with completions, every field acts or is refused by name."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from serving.api.http.reading.bodies import NoOpValues
from serving.api.http.reading.looks import looks_of
from serving.api.openai.chat_messages import ChatFields, ChatMessage
from serving.api.openai.chat_tools import NamedChoice, calls_structure
from serving.api.openai.completion_body import FIELD_NAMES as COMPLETION_FIELD_NAMES
from serving.api.openai.completion_body import GenerationBody
from serving.api.openai.structured_outputs import only_one
from serving.errors import RequestError
from serving.pipelines.completion.job import CompletionJob
from serving.pipelines.decoding import Structure
from serving.request import MAX_LOGPROBS

# Fields that other servers act on and this one does not, each with the values that do nothing.
_NO_OP_VALUES: NoOpValues = {
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
    """Holds the body of `POST /v1/chat/completions`.

    max_completion_tokens: OpenAI's newer name of max_tokens; without either, as many as the model's
    makers recommend, or as fit.
    """

    no_op_values: ClassVar[NoOpValues] = _NO_OP_VALUES

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool = True

    @property
    def shown_tools(self) -> tuple[dict[str, Any], ...]:
        return () if self.tool_choice == "none" else super().shown_tools

    def _structure(self) -> Structure | None:
        found = super()._structure()
        calls = calls_structure(self.tools, self.tool_choice, self.parallel_tool_calls)
        return only_one([each for each in (calls, found) if each])

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
        self.check_messages(max_characters)

    def job(self, request_id: str) -> CompletionJob:
        return CompletionJob(
            request_id=request_id,
            prompts=(self.chat(),),
            decoding=self.decoding(self._max_new_tokens(), self._logprobs()),
            num_samples=self.n,
            stop=self.stops,
            streams=self.stream,
            looks=looks_of(self.return_attention),
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
