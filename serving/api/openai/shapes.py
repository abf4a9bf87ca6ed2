"""The answers of completions and chats: one JSON value, or the chunks of a stream."""

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from secrets import token_hex
from typing import Any

from fastapi.responses import JSONResponse, Response

from serving.api.http.attention import check_size, describe_maps
from serving.api.http.endpoint import Call
from serving.api.http.streams import EventStream, encode_events, wait_for_first
from serving.api.openai.completion_body import GenerationBody, StreamOptions
from serving.observability.metrics import Outcome
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Generator
from serving.pipelines.jobs import CompletionDelta, CompletionJob, Deltas, TokenText
from serving.requests.request import FinishReason
from serving.text.token_text import (
    BytesOrId,
    token_text,
)
from serving.text.tool_calls import (
    AnswerDelta,
    ToolCallParser,
)


class AnswerShape(ABC):
    """The JSON of one answer: id and time, which all its chunks share, and token counts."""

    KIND: str
    CHUNK_KIND: str

    def __init__(self, job: CompletionJob, card: ModelCard) -> None:
        self._head = {
            "id": job.request_id,
            "created": int(time.time()),
            "model": card.name,
            "system_fingerprint": card.fingerprint,
        }
        self._num_choices = job.num_choices
        self._latest: dict[int, CompletionDelta] = {}

    @abstractmethod
    def _choice(self, whole: CompletionDelta) -> dict[str, Any]: ...

    @abstractmethod
    def _piece(self, delta: CompletionDelta, is_first: bool) -> dict[str, Any]: ...

    def whole(self, choices: Sequence[CompletionDelta]) -> dict[str, Any]:
        for choice in choices:
            self._latest[choice.index] = choice
        choice_bodies = list(map(self._choice, choices))
        body = {**self._head, "object": self.KIND, "choices": choice_bodies, "usage": self._usage()}
        return body | self._of_prompt(choices[0])

    def chunk(self, delta: CompletionDelta, options: StreamOptions) -> dict[str, Any]:
        piece = self._piece(delta, is_first=delta.index not in self._latest)
        self._latest[delta.index] = delta
        body = {**self._head, "object": self.CHUNK_KIND, "choices": [piece]}
        body |= self._of_prompt(delta)
        if options.include_usage or options.continuous_usage_stats:
            body["usage"] = self._usage() if options.continuous_usage_stats else None
        return body

    def _of_prompt(self, first: CompletionDelta) -> dict[str, Any]:
        """Return what an answer says of its only prompt. first: the first of a choice's pieces."""
        return {}

    def usage_chunk(self) -> dict[str, Any]:
        return {**self._head, "object": self.CHUNK_KIND, "choices": [], "usage": self._usage()}

    def _usage(self) -> dict[str, int]:
        """Count the tokens; a prompt counts once for all its choices."""
        latest = self._latest.values()
        prompts = {delta.index // self._num_choices: delta.num_prompt_tokens for delta in latest}
        num_prompt_tokens = sum(prompts.values())
        num_completion_tokens = sum(delta.num_generated_tokens for delta in latest)
        return {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_completion_tokens,
            "total_tokens": num_prompt_tokens + num_completion_tokens,
        }


class CompletionShape(AnswerShape):
    KIND = CHUNK_KIND = "text_completion"

    def _choice(self, whole: CompletionDelta) -> dict[str, Any]:
        return {
            "index": whole.index,
            "text": whole.text,
            "logprobs": _logprobs(whole.tokens) if whole.tokens else None,
            **_prompt_token_ids(whole),
            **_end(whole),
        }

    def _piece(self, delta: CompletionDelta, is_first: bool) -> dict[str, Any]:
        return self._choice(delta)


def may_call(job: CompletionJob) -> bool:
    """Return whether the answer may call tools."""
    structure = job.decoding.structure
    return structure is not None and structure.field == "tools"


class ChatShape(AnswerShape):
    """The JSON of a chat. If tools may be called, calls are parsed from the text."""

    KIND = "chat.completion"
    CHUNK_KIND = "chat.completion.chunk"

    def __init__(self, job: CompletionJob, card: ModelCard) -> None:
        super().__init__(job, card)
        self._may_call = may_call(job)
        self._readers: dict[int, ToolCallParser] = defaultdict(ToolCallParser)

    def _of_prompt(self, first: CompletionDelta) -> dict[str, Any]:
        return _prompt_token_ids(first)

    def _choice(self, whole: CompletionDelta) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": whole.text, "refusal": None}
        if self._may_call:
            message |= _message_of(self._read_delta(whole))
        message |= _reasoning(whole)
        end = self._end(whole)
        return {"index": whole.index, "message": message, **_chat_logprobs(whole), **end}

    def _piece(self, delta: CompletionDelta, is_first: bool) -> dict[str, Any]:
        role = {"role": "assistant"} if is_first else {}
        if self._may_call:
            written = _delta_of(self._read_delta(delta))
        else:
            written = {"content": delta.text} if delta.text or is_first else {}
        written |= _reasoning(delta)
        end = self._end(delta)
        return {"index": delta.index, "delta": role | written, **_chat_logprobs(delta), **end}

    def _read_delta(self, delta: CompletionDelta) -> list[AnswerDelta]:
        reader = self._readers[delta.index]
        pieces = list(reader.push(delta.text))
        return [*pieces, *reader.finish()] if delta.finish_reason else pieces

    def _end(self, delta: CompletionDelta) -> dict[str, Any]:
        end = _end(delta)
        if delta.finish_reason is FinishReason.STOP and self._readers[delta.index].num_calls:
            end["finish_reason"] = "tool_calls"
        return end


def _message_of(pieces: Sequence[AnswerDelta]) -> dict[str, Any]:
    """Return a whole message with its calls."""
    text = "".join(piece.text for piece in pieces if piece.call is None)
    calls = [_call(piece) for piece in pieces if piece.name is not None]
    for piece in pieces:
        if piece.call is not None:
            calls[piece.call]["function"]["arguments"] += piece.text
    return {"content": text.strip() or None, "tool_calls": calls} if calls else {"content": text}


def _delta_of(pieces: Sequence[AnswerDelta]) -> dict[str, Any]:
    """Return the new part of a message and its calls."""
    text = "".join(piece.text for piece in pieces if piece.call is None)
    calls = [
        {"index": piece.call}
        | (_call(piece) if piece.name else {"function": {"arguments": piece.text}})
        for piece in pieces
        if piece.call is not None
    ]
    return ({"content": text} if text else {}) | ({"tool_calls": calls} if calls else {})


def _reasoning(delta: CompletionDelta) -> dict[str, Any]:
    return {"reasoning_content": delta.reasoning} if delta.reasoning else {}


def _call(piece: AnswerDelta) -> dict[str, Any]:
    function = {"name": piece.name, "arguments": piece.text}
    return {"id": f"call_{token_hex(12)}", "type": "function", "function": function}


def _end(delta: CompletionDelta) -> dict[str, Any]:
    """Return the last fields of a choice.

    Extensions: the score of a hypothesis of a beam search, and token ids and attention maps if
    asked for.
    """
    check_size(delta.attention_maps)
    score = {} if delta.score is None else {"score": delta.score}
    attention = {"attention": describe_maps(delta.attention_maps)} if delta.attention_maps else {}
    reason = delta.finish_reason
    if reason is FinishReason.CONSTRAINT:  # OpenAI's clients know no such reason: the text is cut
        reason = FinishReason.LENGTH
    ids = {} if delta.token_ids is None else {"token_ids": delta.token_ids}
    return {"finish_reason": reason, **ids, **score, **attention}


def _prompt_token_ids(delta: CompletionDelta) -> dict[str, Any]:
    """Return the ids of a prompt, if they are asked for; only the first piece has them."""
    ids = delta.prompt_token_ids
    return {} if ids is None else {"prompt_token_ids": ids}


def _logprobs(tokens: Sequence[TokenText]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_top(token) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _top(token: TokenText) -> dict[str, float] | None:
    """Return the likeliest tokens and the token itself; None if there are no probabilities."""
    if token.logprob is None:
        return None
    top = ((token_text(other), logprob) for other, logprob in token.top)
    return dict((*top, (token.text, token.logprob)))


def _chat_logprobs(delta: CompletionDelta) -> dict[str, Any]:
    if not delta.tokens:
        return {"logprobs": None}
    return {"logprobs": {"content": chat_tokens(delta), "refusal": None}}


def chat_tokens(delta: CompletionDelta) -> list[dict[str, Any]]:
    """Return the JSON of the tokens of a delta, if they were asked for."""
    return [
        _chat_token(token.token, token.logprob)
        | {"top_logprobs": [_chat_token(*other) for other in token.top]}
        for token in delta.tokens
    ]


def _chat_token(token: BytesOrId, logprob: float | None) -> dict[str, Any]:
    """Return the JSON of a token; one without text has no bytes."""
    text = b"" if isinstance(token, int) else token
    return {"token": token_text(token), "logprob": logprob, "bytes": list(text)}


_DONE = "data: [DONE]\n\n"
Chunks = AsyncGenerator[dict[str, Any], None]


async def answer(shape_class: type[AnswerShape], call: Call[GenerationBody, Generator]) -> Response:
    shape = shape_class(call.job, call.model.card)
    if not call.body.stream:
        return JSONResponse(shape.whole(await call.model.run(call.job)))
    options = call.body.stream_options or StreamOptions()
    return await stream_answer(call, partial(_chunks, shape, options), end=_DONE)


async def stream_answer(
    call: Call[Any, Generator],
    chunks: Callable[[Awaitable[CompletionDelta], Deltas], Chunks],
    end: str = "",
) -> EventStream:
    """Return the stream of a job's answer. chunks: makes them of the first delta and the rest."""
    deltas = await call.resources.enter_async_context(aclosing(call.model.stream(call.job)))
    first = await wait_for_first(deltas, call.resources)
    call.tracked.outcome = Outcome.CANCELLED  # until the last event
    events = encode_events(chunks(first, deltas), call.tracked, call.protocol, end)
    return EventStream(events, call.resources.pop_all())


async def _chunks(
    shape: AnswerShape, options: StreamOptions, first: Awaitable[CompletionDelta], rest: Deltas
) -> Chunks:
    yield shape.chunk(await first, options)
    async for delta in rest:
        yield shape.chunk(delta, options)
    if options.include_usage:
        yield shape.usage_chunk()
