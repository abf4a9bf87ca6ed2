"""Completions in OpenAI's shapes: whole, and as chunks of a stream."""

import time
from collections.abc import Sequence
from typing import Any

from serving.api.openai_bodies import StreamOptions
from serving.pipelines.jobs import CompletionDelta, CompletionJob, TokenText


class CompletionShape:
    """One answer: the same id and time in all its chunks, and its token counts."""

    def __init__(self, job: CompletionJob, model: str) -> None:
        self._head = {
            "id": job.request_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._num_choices = job.num_choices
        self._latest: dict[int, CompletionDelta] = {}

    def whole(self, choices: Sequence[CompletionDelta]) -> dict[str, Any]:
        for choice in choices:
            self._latest[choice.index] = choice
        return {**self._head, "choices": list(map(_choice, choices)), "usage": self._usage()}

    def chunk(self, delta: CompletionDelta, options: StreamOptions) -> dict[str, Any]:
        self._latest[delta.index] = delta
        body = {**self._head, "choices": [_choice(delta)]}
        if options.include_usage or options.continuous_usage_stats:
            body["usage"] = self._usage() if options.continuous_usage_stats else None
        return body

    def usage_chunk(self) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": self._usage()}

    def _usage(self) -> dict[str, int]:
        """A prompt counts once, however many choices it has."""
        latest = self._latest.values()
        prompts = {delta.index // self._num_choices: delta.num_prompt_tokens for delta in latest}
        num_prompt_tokens = sum(prompts.values())
        num_completion_tokens = sum(delta.num_generated_tokens for delta in latest)
        return {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_completion_tokens,
            "total_tokens": num_prompt_tokens + num_completion_tokens,
        }


def _choice(delta: CompletionDelta) -> dict[str, Any]:
    """Beyond OpenAI's fields, a hypothesis of a beam search has its score."""
    score = {} if delta.score is None else {"score": delta.score}
    return {
        "index": delta.index,
        "text": delta.text,
        "logprobs": _logprobs(delta.tokens) if delta.tokens else None,
        "finish_reason": delta.finish_reason,
        **score,
    }


def _logprobs(tokens: Sequence[TokenText]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_top(token) for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _top(token: TokenText) -> dict[str, float] | None:
    """The token itself is among them, even if others are likelier. None where nothing is known."""
    if token.logprob is None:
        return None
    return dict((*token.top, (token.text, token.logprob)))
