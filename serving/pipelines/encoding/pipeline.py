"""Encodes texts: every input is one request of the engine, and has one vector.

It knows text and token ids; neither HTTP nor how batches are made.
"""

import asyncio
from collections.abc import Sequence

import numpy as np

from serving.bundle.manifest import Manifest
from serving.errors import EngineError, RequestError
from serving.parameters import TokenIds
from serving.pipelines.cards import ModelCard
from serving.pipelines.encoding.job import EncodeJob, Encodings, Matrix
from serving.pipelines.encoding.looking import TextLooks
from serving.pipelines.encoding.requests import EncodingRequests
from serving.pipelines.encoding.values import activated, shortened
from serving.pipelines.engine_port import EnginePort, raise_failure
from serving.pipelines.tokens import TokenizedText, TokenizeJob, detokenized, tokenized
from serving.request import (
    AbortedEvent,
    Event,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
    Vector,
)
from serving.text.chat.template import Chat
from serving.text.tokenizer import Tokenizer

_CHARACTERS_A_TOKEN = 4  # about
# More are cut into tokens, and put together, on another thread, so that other requests go on.
_MANY_CHARACTERS = 5_000


class EncodingPipeline:
    """Serves the jobs of one model that only encodes.

    max_inputs: of one job; None for any number.
    """

    def __init__(
        self,
        manifest: Manifest,
        tokenizer: Tokenizer,
        engine: EnginePort,
        max_inputs: int | None = None,
    ) -> None:
        assert manifest.encoder is not None
        self.card = ModelCard.from_manifest(manifest)
        self._encoder = manifest.encoder
        self._tokenizer = tokenizer
        self._requests = EncodingRequests(manifest, tokenizer)
        self._looks = TextLooks(manifest, tokenizer)
        self._engine = engine
        self._max_inputs = max_inputs

    async def encode(self, job: EncodeJob) -> Encodings:
        """Return the vectors of a job's inputs: embeddings, or scores of labels.

        Raises RequestError for what cannot be served, and Overloaded before any work is done.
        """
        size = sum(map(len, job.inputs))
        self._check(job, size)
        if size > _MANY_CHARACTERS:
            requests = await asyncio.to_thread(self._requests.of, job)
            outcomes = await self._engine.run(requests)
            return await asyncio.to_thread(self._encodings, job, requests, outcomes)
        requests = self._requests.of(job)
        return self._encodings(job, requests, await self._engine.run(requests))

    async def tokenize(self, job: TokenizeJob) -> TokenizedText:
        """Return the tokens of a text. Raises RequestError."""
        return await asyncio.to_thread(self._tokenized, job)

    async def detokenize(self, token_ids: TokenIds) -> str:
        """Return the text of tokens. Raises RequestError."""
        return await asyncio.to_thread(detokenized, self._tokenizer, token_ids)

    def _tokenized(self, job: TokenizeJob) -> TokenizedText:
        if isinstance(job.prompt, Chat):
            raise RequestError("messages", "a chat", f"model {self.card.name} reads no chats")
        ids = tuple(self._tokenizer.encode(job.prompt))
        return tokenized(self._tokenizer, self._requests.framed(ids) if job.adds_special else ids)

    def _check(self, job: EncodeJob, size: int) -> None:
        num_inputs, most = len(job.inputs), self._max_inputs
        if most is not None and num_inputs > most:
            message = f"must be at most {most}, there are {num_inputs}"
            raise RequestError("inputs", f"{num_inputs} inputs", message)
        if job.dimensions is not None and self._encoder.dimension is None:
            raise RequestError("dimensions", job.dimensions, "is of embeddings, not of labels")
        decoding, work = job.decoding, size // _CHARACTERS_A_TOKEN
        self._engine.check_room(work, decoding.share, decoding.priority)

    def _encodings(
        self,
        job: EncodeJob,
        requests: Sequence[GenerationRequest],
        outcomes: Sequence[Sequence[Event]],
    ) -> Encodings:
        width = self._encoder.dimension or len(self._encoder.labels)
        values: Matrix = np.zeros((len(outcomes), width), np.float32)
        for row, events in enumerate(outcomes):
            values[row] = _vector(events[-1])
        if self._encoder.dimension is None:
            values = activated(values, self._encoder.activation)
        elif job.dimensions is not None:
            values = shortened(values, job.dimensions, self._encoder.is_normalised)
        num_tokens = tuple(len(request.source_ids or ()) for request in requests)
        seen = tuple(map(self._looks.seen, requests, (events[-1] for events in outcomes)))
        return Encodings(values, num_tokens, seen)


def _vector(event: Event) -> Vector:
    if isinstance(event, FailedEvent | AbortedEvent):
        raise_failure(event)
    assert isinstance(event, FinishedEvent) and event.encoding is not None
    if not np.isfinite(event.encoding).all():
        raise EngineError("the model gave what is no number")
    return event.encoding
