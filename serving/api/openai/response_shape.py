"""The answers of OpenAI's Responses: each is written as events, and the whole is what they make."""

import json
import time
from collections.abc import Awaitable, Iterator
from functools import partial
from secrets import token_hex
from typing import Any

from fastapi.responses import JSONResponse, Response

from serving.api.http.endpoint import Call
from serving.api.openai.responses import ResponseBody
from serving.api.openai.shapes import Chunks, chat_tokens, may_call, stream_answer
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Generator
from serving.pipelines.jobs import CompletionDelta, CompletionJob, Deltas
from serving.requests.request import FinishReason
from serving.text.tool_calls import (
    AnswerDelta,
    ToolCallParser,
)

ResponseEvent = dict[str, Any]


class ResponseShape:
    """Writes one answer, item by item. Events refer to what is written so far, so each must be used
    before the next is made.
    """

    def __init__(self, body: ResponseBody, job: CompletionJob, card: ModelCard) -> None:
        self.response = _head(body, job, card)
        self._items: list[dict[str, Any]] = self.response["output"]
        self._reader = ToolCallParser() if may_call(job) else None
        self._num_events = 0

    def begin(self) -> Iterator[ResponseEvent]:
        yield self._event("response.created", response=self.response)
        yield self._event("response.in_progress", response=self.response)

    def push(self, delta: CompletionDelta) -> Iterator[ResponseEvent]:
        """Yield the events of the next delta; the last one ends the answer."""
        for piece in self._pieces(delta):
            if piece.call is None:
                yield from self._text(piece.text, chat_tokens(delta))
            else:
                yield from self._call(piece)
        if delta.finish_reason is not None:
            yield from self._end(delta)

    def _pieces(self, delta: CompletionDelta) -> Iterator[AnswerDelta]:
        if self._reader is None:
            if delta.text or delta.tokens:
                yield AnswerDelta(delta.text)
            return
        yield from self._reader.push(delta.text)
        if delta.finish_reason is not None:
            yield from self._reader.finish()

    def _text(self, text: str, logprobs: list[dict[str, Any]]) -> Iterator[ResponseEvent]:
        if self._reader and not self._items and not text.strip():
            return  # line breaks before a call are no message
        if not self._items or self._items[-1]["type"] != "message":
            yield from self._begin_message()
        part = self._items[-1]["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        yield self._of_part("response.output_text.delta", delta=text, logprobs=logprobs)

    def _begin_message(self) -> Iterator[ResponseEvent]:
        yield from self._begin_item("msg", type="message", role="assistant", content=[])
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._items[-1]["content"].append(part)
        yield self._of_part("response.content_part.added", part=part)

    def _call(self, piece: AnswerDelta) -> Iterator[ResponseEvent]:
        if piece.name is not None:
            call = {"call_id": f"call_{token_hex(12)}", "name": piece.name, "arguments": ""}
            yield from self._begin_item("fc", type="function_call", **call)
        if piece.text:
            self._items[-1]["arguments"] += piece.text
            yield self._of_item("response.function_call_arguments.delta", delta=piece.text)

    def _begin_item(self, prefix: str, **fields: Any) -> Iterator[ResponseEvent]:
        if self._items:
            yield from self._end_item("completed")
        item = {"id": f"{prefix}_{token_hex(12)}", "status": "in_progress", **fields}
        self._items.append(item)
        yield self._event("response.output_item.added", **self._place, item=item)

    def _end_item(self, status: str) -> Iterator[ResponseEvent]:
        item = self._items[-1]
        item["status"] = status
        if item["type"] == "message":
            [part] = item["content"]
            fields = {"text": part["text"], "logprobs": part["logprobs"]}
            yield self._of_part("response.output_text.done", **fields)
            yield self._of_part("response.content_part.done", part=part)
        else:
            fields = {"name": item["name"], "arguments": item["arguments"]}
            yield self._of_item("response.function_call_arguments.done", **fields)
        yield self._event("response.output_item.done", **self._place, item=item)

    def _end(self, last: CompletionDelta) -> Iterator[ResponseEvent]:
        is_whole = last.finish_reason is FinishReason.STOP
        status = "completed" if is_whole else "incomplete"
        if not self._items:
            yield from self._begin_message()
        yield from self._end_item(status)
        self.response |= {
            "status": status,
            "incomplete_details": None if is_whole else {"reason": "max_output_tokens"},
            "usage": _usage(last),
        }
        yield self._event(f"response.{status}", response=self.response)

    @property
    def _place(self) -> dict[str, Any]:
        return {"output_index": len(self._items) - 1}

    def _of_item(self, kind: str, **fields: Any) -> ResponseEvent:
        return self._event(kind, **self._place, item_id=self._items[-1]["id"], **fields)

    def _of_part(self, kind: str, **fields: Any) -> ResponseEvent:
        return self._of_item(kind, content_index=0, **fields)

    def _event(self, kind: str, /, **fields: Any) -> ResponseEvent:
        event = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return event


def _head(body: ResponseBody, job: CompletionJob, card: ModelCard) -> dict[str, Any]:
    """Return an answer that has not begun. Options have the values that are used."""
    sampling, metadata_field = job.decoding.sampling, body.metadata
    metadata = metadata_field.items() if isinstance(metadata_field, dict) else ()
    head = {
        "id": job.request_id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": job.decoding.max_new_tokens,
        "metadata": {name: text for name, text in metadata if isinstance(text, str)},
        "model": card.name,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": None,
        "store": False,
        "temperature": sampling.temperature,
        "text": body.text_options.model_dump(exclude_none=True),
        "tool_choice": body.tool_choice,
        "tools": body.tools,
        "top_p": sampling.top_p,
        "usage": None,
    }
    # What the client sent may have halves of surrogate pairs and NaN, which no answer can have.
    text = json.dumps(head, ensure_ascii=False).encode(errors="replace")
    return dict(json.loads(text, parse_constant=str))


def _usage(last: CompletionDelta) -> dict[str, Any]:
    """Count the tokens. The details are zeros: answers do not tell what was found in the cache."""
    return {
        "input_tokens": last.num_prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": last.num_generated_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": last.num_prompt_tokens + last.num_generated_tokens,
    }


async def answer_response(call: Call[ResponseBody, Generator]) -> Response:
    shape = ResponseShape(call.body, call.job, call.model.card)
    if not call.body.stream:
        [whole] = await call.model.run(call.job)
        for _ in shape.push(whole):
            pass
        return JSONResponse(shape.response)
    return await stream_answer(call, partial(_events, shape))


async def _events(shape: ResponseShape, first: Awaitable[CompletionDelta], rest: Deltas) -> Chunks:
    for event in shape.begin():
        yield event
    for event in shape.push(await first):
        yield event
    async for delta in rest:
        for event in shape.push(delta):
            yield event
