"""A request in progress: the engine's own, changing view of it."""

import secrets
from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.engine.states import max_source_tokens
from serving.errors import RequestError
from serving.request import (
    AbortedEvent,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
)


@dataclass(slots=True, eq=False)
class Generation:
    """prompt_ids: the bundle's prefix and the request's prompt. max_new_tokens: within the bundle's
    limits.
    """

    request: GenerationRequest
    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    seed: int
    submitted_at: float

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def num_source_tokens(self) -> int:
        return len(self.request.source_ids or ())

    def finished(self, reason: FinishReason, num_generated: int) -> FinishedEvent:
        num_prompt_tokens = len(self.prompt_ids)
        return FinishedEvent(
            self.request_id, reason, self.num_source_tokens, num_prompt_tokens, num_generated
        )

    def failed(self, error: Exception) -> FailedEvent:
        return FailedEvent(self.request_id, error)

    def aborted(self) -> AbortedEvent:
        return AbortedEvent(self.request_id)


class RequestRules:
    """What a bundle lets a request ask for. Turns a request into a generation or raises
    RequestError.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._has_encoder = "encode" in manifest.graphs
        self._max_source_tokens = max_source_tokens(manifest)
        self._max_target_tokens = manifest.limits.max_target_tokens
        self._prompt_prefix = tuple(manifest.tokens.prompt_prefix)
        self._vocab_size = manifest.vocab_size

    def accept(self, request: GenerationRequest, now: float) -> Generation:
        """More `max_new_tokens` than the limits leave are cut to that: it ends by length."""
        self._check_source(request.source_ids)
        self._check_ids("prompt_ids", request.prompt_ids)
        prompt_ids = self._prompt_prefix + request.prompt_ids
        room = self._max_target_tokens - len(prompt_ids)
        if not prompt_ids:
            raise RequestError("prompt_ids", request.prompt_ids, "must not be empty")
        if room < 1:
            raise RequestError(
                "prompt_ids",
                len(prompt_ids),
                f"too many tokens: at most {self._max_target_tokens - 1} fit",
            )
        wanted = request.max_new_tokens
        seed = request.sampling.seed
        return Generation(
            request,
            prompt_ids,
            room if wanted is None else min(wanted, room),
            secrets.randbits(64) if seed is None else seed % 2**64,
            now,
        )

    def _check_source(self, source_ids: tuple[int, ...] | None) -> None:
        if not self._has_encoder:
            if source_ids is not None:
                raise RequestError("source_ids", len(source_ids), "this model takes no source")
            return
        if not source_ids:
            raise RequestError("source_ids", source_ids, "this model needs a source")
        if len(source_ids) > self._max_source_tokens:
            message = f"too many tokens: at most {self._max_source_tokens} fit"
            raise RequestError("source_ids", len(source_ids), message)
        self._check_ids("source_ids", source_ids)

    def _check_ids(self, name: str, ids: tuple[int, ...]) -> None:
        if ids and not 0 <= min(ids) <= max(ids) < self._vocab_size:
            wrong = next(i for i in ids if not 0 <= i < self._vocab_size)
            raise RequestError(
                name, wrong, f"no such token: ids go from 0 to {self._vocab_size - 1}"
            )
