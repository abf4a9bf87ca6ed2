"""What answers look like, for the OpenAPI document: tests hold the answers to it."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.bundle.manifest import Task
from serving.pipelines.translation.job import SentenceAttention
from serving.request import FinishReason


class Status(TypedDict):
    status: str


class PlainError(TypedDict):
    error: str


class OpenAIErrorBody(TypedDict):
    """param: the field that is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(TypedDict):
    error: OpenAIErrorBody


class Usage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Logprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    """score: of a hypothesis of a beam search."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: FinishReason | None
    score: NotRequired[float]


class Completion(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class ChatToken(TypedDict):
    token: str
    logprob: float | None
    bytes: list[int]


class ChatTokenAmongOthers(ChatToken):
    top_logprobs: list[ChatToken]


class ChatLogprobs(TypedDict):
    content: list[ChatTokenAmongOthers]
    refusal: None


class AssistantMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(TypedDict):
    """score: of a hypothesis of a beam search."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    score: NotRequired[float]


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ModelBody(TypedDict):
    """generation: what holds where a request says nothing."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: Task
    source_languages: list[str]
    target_languages: list[str]
    max_model_len: int
    has_chat_template: bool
    generation: dict[str, Any]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelBody]


class Alignment(TypedDict):
    """pharaoh: pairs of numbers of words, as 0-0 1-2."""

    source: list[str]
    target: list[str]
    pharaoh: str


class Translated(TypedDict):
    """What was not asked for is not there; for one text nothing is in a list of its own."""

    translatedText: str | list[str]
    alternatives: NotRequired[list[str] | list[list[str]]]
    scores: NotRequired[list[float] | list[list[float]]]
    finish_reasons: NotRequired[FinishReason | list[FinishReason]]
    alignments: NotRequired[Alignment | list[Alignment]]
    attention: NotRequired[list[SentenceAttention] | list[list[SentenceAttention]]]


class Language(TypedDict):
    code: str
    name: str
    targets: list[str]


class ScoredToken(TypedDict):
    text: str
    logprob: float


class Score(TypedDict):
    logprob: float
    mean_logprob: float
    num_tokens: int
    tokens: list[ScoredToken]
    attention: NotRequired[SentenceAttention]


class Scores(TypedDict):
    scores: list[Score]
