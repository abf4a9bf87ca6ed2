"""Describes OpenAI's answers for the OpenAPI document; tests hold the answers to it."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.attention_fields import AttentionMapBody
from serving.bundle.manifest import Activation, AttentionShape, Precision, Task
from serving.request import FinishReason


class OpenAIErrorBody(TypedDict):
    """Reports an error. param: the field that is wrong."""

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
    """Holds one choice. score: of a hypothesis of a beam search. attention: if asked for."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: FinishReason | None
    score: NotRequired[float]
    attention: NotRequired[list[AttentionMapBody]]


class Completion(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
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


class CalledFunction(TypedDict):
    name: str
    arguments: str


class CallOfTool(TypedDict):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: NotRequired[list[CallOfTool]]


class ChatChoice(TypedDict):
    """Holds one choice. score: of a hypothesis of a beam search. attention: if asked for."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | Literal["tool_calls"] | None
    score: NotRequired[float]
    attention: NotRequired[list[AttentionMapBody]]


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[ChatChoice]
    usage: Usage


class Plan(TypedDict):
    """Says how many engines of how many threads run in each replica, and how that was chosen."""

    engines: int
    threads: int
    chosen: str


class EncoderBody(TypedDict):
    """Says what a model makes of a text that only encodes: an embedding of so many dimensions, or
    scores of these labels. activation: how they came from logits. separator: ids between two texts,
    null if it reads but one. prompts: what is put before a text, by name.
    """

    dimension: int | None
    is_normalised: bool
    labels: list[str]
    activation: Activation
    separator: list[int] | None
    prompts: dict[str, str]
    default_prompt: str | None


class ModelBody(TypedDict):
    """Describes a model. root: its id, which vLLM's tools read there. generation: what holds where
    a request says nothing. plan: how it runs. max_model_len: tokens of prompt and output together.
    max_source_tokens: of one sentence. attention: kinds of it that requests may ask for, each with
    its layers and heads. encoder: null of models that decode. card: what its makers say of it, in
    Markdown; not in lists.
    """

    id: str
    root: str
    object: Literal["model"]
    created: int
    owned_by: str
    task: Task
    source_languages: list[str]
    target_languages: list[str]
    max_model_len: int
    max_source_tokens: int | None
    precision: Precision
    architecture: str
    system_fingerprint: str | None
    has_chat_template: bool
    generation: dict[str, Any]
    attention: dict[str, AttentionShape]
    plan: Plan | None
    encoder: EncoderBody | None
    card: NotRequired[str]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelBody]


class Tokenized(TypedDict):
    """Holds the tokens of a text, as vLLM has them. token_strs: null unless they were asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Detokenized(TypedDict):
    prompt: str


class FileObject(TypedDict):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    status: Literal["processed"]


class FileList(TypedDict):
    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(TypedDict):
    id: str
    object: Literal["file"]
    deleted: Literal[True]


class BatchProblem(TypedDict):
    code: str
    message: str
    param: str | None
    line: int | None


class BatchProblems(TypedDict):
    object: Literal["list"]
    data: list[BatchProblem]


class BatchCounts(TypedDict):
    total: int
    completed: int
    failed: int


class Batch(TypedDict):
    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchProblems | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchCounts
    metadata: dict[str, str] | None


class BatchList(TypedDict):
    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool
