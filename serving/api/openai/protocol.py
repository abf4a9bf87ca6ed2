"""OpenAI's protocol: the form of errors, and the types of answers."""

from dataclasses import replace
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.attention import AttentionMapBody
from serving.api.http.protocol import Protocol, message_of, reason_of
from serving.bundle.manifest import (
    Activation,
    AttentionShape,
    AudioSpec,
    PictureSpec,
    Precision,
    Task,
)
from serving.errors import KeyRefused, ModelNotFound, QuotaExceeded, RequestError, TooManyTokens
from serving.requests.request import FinishReason

_TYPES = {
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
_CODES_OF = (
    (ModelNotFound, "model_not_found"),
    (KeyRefused, "invalid_api_key"),
    (QuotaExceeded, "insufficient_quota"),
    (TooManyTokens, "context_length_exceeded"),
)
_CODES = {429: "rate_limit_exceeded", 503: "service_unavailable"}


def _error_shape(status: int, error: BaseException) -> dict[str, Any]:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = next((code for cls, code in _CODES_OF if isinstance(error, cls)), _CODES.get(status))
    body = {"message": message_of(error), "type": kind, "param": None, "code": code}
    if isinstance(error, RequestError):
        body |= {"param": error.field, "reason": reason_of(error)}
    return {"error": body}


class OpenAIErrorBody(TypedDict):
    """An error. param: the wrong field. reason: an extension, what is wrong with it."""

    message: str
    type: str
    param: str | None
    code: str | None
    reason: NotRequired[str]


class OpenAIError(TypedDict):
    error: OpenAIErrorBody


PROTOCOL = Protocol("openai", "/v1", _error_shape, OpenAIError)
AT_THE_ROOT = replace(PROTOCOL, prefix="")


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
    """One choice. score: of a hypothesis of a beam search. attention, prompt_token_ids, token_ids:
    if asked for.
    """

    index: int
    text: str
    logprobs: Logprobs | None
    prompt_token_ids: NotRequired[list[int]]
    finish_reason: FinishReason | None
    token_ids: NotRequired[list[int]]
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
    """One choice. score: of a hypothesis of a beam search. attention, token_ids: if asked for."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | Literal["tool_calls"] | None
    token_ids: NotRequired[list[int]]
    score: NotRequired[float]
    attention: NotRequired[list[AttentionMapBody]]


class ChatCompletion(TypedDict):
    """An answer. prompt_token_ids: if asked for."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: NotRequired[list[int]]


class OutputItem(TypedDict):
    """A message, with its content, or a call of a function, with its call_id, name, arguments."""

    id: str
    type: Literal["message", "function_call"]
    status: str
    content: NotRequired[list[dict[str, Any]]]
    call_id: NotRequired[str]
    name: NotRequired[str]
    arguments: NotRequired[str]


class ResponseObject(TypedDict):
    """An answer, with the options of the request. store: none is kept."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    usage: dict[str, Any]


class Plan(TypedDict):
    """How many engines, with how many threads each, run in a replica, and how that was chosen."""

    engines: int
    threads: int
    chosen: str


class EncoderBody(TypedDict):
    """The output of a model that only encodes: an embedding of this dimension, or scores of these
    labels. activation: computes the scores from logits. separator: ids between two texts; null
    if the model reads only one. prompts: texts before inputs, by name.
    """

    dimension: int | None
    is_normalised: bool
    labels: list[str]
    activation: Activation
    separator: list[int] | None
    prompts: dict[str, str]
    default_prompt: str | None


class ModelBody(TypedDict):
    """A model. root: its id, for vLLM's tools. generation: recommended values of decoding options.
    plan: how it runs. max_model_len: tokens of prompt and output together. max_source_tokens: of
    one sentence. attention: kinds of attention maps that requests may ask for, with their layers
    and heads. domain: what texts it was trained on, in a few words, such as "captions"; null for a
    model of general text. licence, origin: what the model card says of them. size_bytes: of the
    bundle. quality: figures of its tests, by name. encoder: null for models that decode. picture:
    null for models that read text. audio: likewise of those that
    read sound. card: the model card in Markdown; not in lists.
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
    domain: str | None
    licence: str | None
    origin: str | None
    size_bytes: int | None
    quality: dict[str, Any]
    system_fingerprint: str | None
    has_chat_template: bool
    generation: dict[str, Any]
    attention: dict[str, AttentionShape]
    plan: Plan | None
    encoder: EncoderBody | None
    picture: PictureSpec | None
    audio: AudioSpec | None
    card: NotRequired[str]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelBody]


class Tokenized(TypedDict):
    """The tokens of a text, as in vLLM. token_strs: null unless they were asked for."""

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


class TranscriptUsage(TypedDict):
    """seconds: of the recording, rounded up."""

    type: Literal["duration"]
    seconds: int


class TranscriptSegment(TypedDict):
    """A part of a transcript. start, end: in seconds. seek: the frame at which its window begins.
    avg_logprob, compression_ratio, no_speech_prob: of its window.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class TranscriptWord(TypedDict):
    """A word and when it is spoken, in seconds. probability: the mean of its tokens'. attention: if
    asked for, a byte for each position of the window that begins at window_start, in base64; 255 is
    the word's largest weight.
    """

    word: str
    start: float
    end: float
    probability: float
    window_start: NotRequired[float]
    attention: NotRequired[str]


class SoundWindow(TypedDict):
    """What the encoder reads at once. spectrogram: a byte for each mel band and frame, band after
    band from the lowest, in base64.
    """

    start: float
    seconds: float
    mels: int
    frames: int
    spectrogram: str


class TranscriptionAnswer(TypedDict):
    """A transcript. verbose_json has more than text and usage; words, windows: if asked for.
    language: the name of the transcript's, in English. spoken_language: a code.
    """

    text: str
    usage: TranscriptUsage
    task: NotRequired[Literal["transcribe", "translate"]]
    language: NotRequired[str]
    spoken_language: NotRequired[str]
    language_probability: NotRequired[float]
    duration: NotRequired[float]
    segments: NotRequired[list[TranscriptSegment]]
    words: NotRequired[list[TranscriptWord]]
    windows: NotRequired[list[SoundWindow]]


class EncodingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """An embedding: numbers, or their bytes in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(TypedDict):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EncodingUsage


class RankedText(TypedDict):
    text: str


class Ranked(TypedDict):
    """One document. index: its place in the request."""

    index: int
    relevance_score: float
    document: NotRequired[RankedText]


class RankingMeta(TypedDict):
    """Of a model that embeds texts: what the scores are."""

    warnings: list[str]


class Ranking(TypedDict):
    id: str
    object: Literal["list"]
    model: str
    results: list[Ranked]
    usage: EncodingUsage
    meta: NotRequired[RankingMeta]


class PairScoreBody(TypedDict):
    index: int
    object: Literal["score"]
    score: float


class PairScores(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[PairScoreBody]
    usage: Usage
