"""Encode texts with models that have no decoder: each input gets one vector, or what its tokens
say.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from serving.bundle.manifest import EMBEDDING, LOGITS, Manifest, Task
from serving.errors import EngineError, RequestError
from serving.pipelines.attention_maps import AttentionMap, TokenTexts, attention_maps
from serving.pipelines.cards import ModelCard
from serving.pipelines.decoding import EnginePort, require_finished
from serving.pipelines.encoding.outputs import (
    apply_activation,
    group_entities,
    likeliest_masked_words,
    shorten_embeddings,
)
from serving.pipelines.encoding.requests import EncodingRequests
from serving.pipelines.jobs import (
    DetokenizeJob,
    EncodeInput,
    EncodeJob,
    Encodings,
    Entities,
    Job,
    MaskedWords,
    Matrix,
    StreamedJob,
    TokenizeJob,
    TokenizeResult,
    describe_tokens,
    detokenize,
    unsupported_job,
)
from serving.requests.request import Encoding, FinalEvent, FinishedEvent, GenerationRequest
from serving.text.chat_template import Chat
from serving.text.token_text import token_text
from serving.text.tokenizer import Tokenizer

_CHARACTERS_A_TOKEN = 4  # about
# More are cut into tokens, and put together, on another thread, so that other requests go on: it
# takes a few milliseconds, in which the event loop would answer nobody.
_MANY_CHARACTERS = 5_000
MOST_MASKS = 32  # of one text: each has an answer with the whole text for each of its words
MOST_ANSWERED_TOKENS = 2**22  # of these texts, in one job: some seconds of work, some megabytes
_NO_VALUES: Matrix = np.zeros((0, 0), np.float32)


class EncodingPipeline:
    """Runs the jobs of one model that only encodes.

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
        self._task, self._window = manifest.task, manifest.window
        self._encoder = manifest.encoder
        self._tokenizer = tokenizer
        self._requests = EncodingRequests(manifest, tokenizer)
        self._shapes = manifest.attention_shapes
        self._engine = engine
        self._max_inputs = max_inputs

    async def run(self, job: Job[Any]) -> Any:
        """Return the vectors of a job's inputs, or the tokens of a text, or the text of tokens.

        Raises RequestError for jobs that the model cannot do, and Overloaded before any work is
        done.
        """
        match job:
            case EncodeJob():
                return await self._encode(job)
            case TokenizeJob():
                return await asyncio.to_thread(self._tokenize, job)
            case DetokenizeJob():
                return await asyncio.to_thread(detokenize, self._tokenizer, job.token_ids)
        raise unsupported_job(self.card.name, job)

    def stream(self, job: StreamedJob[Any, Any]) -> NoReturn:
        raise unsupported_job(self.card.name, job)

    async def _encode(self, job: EncodeJob) -> Encodings:
        size = sum(map(len, job.inputs))
        self._check(job, size)
        if size > _MANY_CHARACTERS or job.top_k is not None:
            requests = await asyncio.to_thread(self._requests.encodings, job)
            self._check_masks(job, requests)
            outcomes = await self._engine.run(requests)
            return await asyncio.to_thread(self._encodings, job, requests, outcomes)
        requests = self._requests.encodings(job)
        return self._encodings(job, requests, await self._engine.run(requests))

    def _tokenize(self, job: TokenizeJob) -> TokenizeResult:
        if isinstance(job.prompt, Chat):
            raise RequestError("messages", "a chat", f"model {self.card.name} reads no chats")
        ids = tuple(self._tokenizer.encode(job.prompt))
        return describe_tokens(
            self._tokenizer, self._requests.with_special_tokens(ids) if job.adds_special else ids
        )

    def _check(self, job: EncodeJob, size: int) -> None:
        num_inputs, max_inputs = len(job.inputs), self._max_inputs
        if max_inputs is not None and num_inputs > max_inputs:
            message = f"must be at most {max_inputs}, there are {num_inputs}"
            raise RequestError("inputs", f"{num_inputs} inputs", message)
        if self._task is Task.CLASSIFY_TOKENS and not all(isinstance(i, str) for i in job.inputs):
            message = "must be texts: this model labels their characters"
            raise RequestError("inputs", "tokens", message)
        if job.dimensions is not None and self._encoder.dimension is None:
            raise RequestError("dimensions", job.dimensions, "is of embeddings, not of labels")
        if job.top_k is not None and not 1 <= job.top_k <= self._window:
            raise RequestError("top_k", job.top_k, f"must be from 1 to {self._window}")
        decoding, work = job.decoding, size // _CHARACTERS_A_TOKEN
        self._engine.check_room(work, decoding.share, decoding.priority)

    def _check_masks(self, job: EncodeJob, requests: Sequence[GenerationRequest]) -> None:
        """Raise RequestError if masks are asked for and a text has none, or too many, or if the
        answers would be too long.
        """
        mask_id = self._encoder.mask_id
        if job.top_k is None or mask_id is None:
            return
        name, num_answered = self._tokenizer.decode([mask_id]).strip(), 0
        for number, request in enumerate(requests):
            ids = request.source_ids or ()
            count = ids.count(mask_id)
            num_answered += count * job.top_k * len(ids)
            if not 1 <= count <= MOST_MASKS:
                message = f"number {number} must hold {name}, at most {MOST_MASKS} times"
                raise RequestError("inputs", f"{count} of them", message)
        if num_answered > MOST_ANSWERED_TOKENS:
            message = f"texts with words for masks may have {MOST_ANSWERED_TOKENS} tokens together"
            raise RequestError("inputs", f"{num_answered} tokens", message)

    def _encodings(
        self,
        job: EncodeJob,
        requests: Sequence[GenerationRequest],
        outcomes: Sequence[FinalEvent],
    ) -> Encodings:
        ends = [require_finished(end) for end in outcomes]
        encodings = [_encoding(end) for end in ends]
        num_tokens = tuple(len(request.source_ids or ()) for request in requests)
        maps = tuple(map(self._attention_maps, requests, ends))
        result = Encodings(_NO_VALUES, num_tokens, maps)
        if self._task is Task.CLASSIFY_TOKENS:
            entities = map(self._entities, job.inputs, num_tokens, encodings)
            return replace(result, entities=tuple(entities))
        if self._task is Task.FILL_MASK:
            return replace(result, masked_words=tuple(self._masked_words(job, requests, encodings)))
        return replace(result, values=self._values(job, encodings))

    def _values(self, job: EncodeJob, encodings: Sequence[Encoding]) -> Matrix:
        name = LOGITS if self._encoder.dimension is None else EMBEDDING
        width = self._encoder.dimension or len(self._encoder.labels)
        values: Matrix = np.zeros((len(encodings), width), np.float32)
        for row, encoding in enumerate(encodings):
            values[row] = encoding[name]
        if self._encoder.dimension is None:
            return apply_activation(values, self._encoder.activation)
        if job.dimensions is not None:
            return shorten_embeddings(values, job.dimensions, self._encoder.is_normalised)
        return values

    def _entities(self, text: EncodeInput, num_tokens: int, encoding: Encoding) -> Entities:
        assert isinstance(text, str)
        _, spans = self._tokenizer.encode_with_spans(text)
        logits = encoding[LOGITS][self._requests.without_special_tokens(num_tokens)]
        return group_entities(text, logits, spans[: len(logits)], self._encoder.labels)

    def _masked_words(
        self, job: EncodeJob, requests: Sequence[GenerationRequest], encodings: Sequence[Encoding]
    ) -> Iterator[MaskedWords]:
        mask_id = self._encoder.mask_id
        assert mask_id is not None
        for request, encoding in zip(requests, encodings, strict=True):
            ids, top_k = request.source_ids or (), job.top_k or 0
            yield likeliest_masked_words(ids, encoding, mask_id, top_k, self._tokenizer)

    def _attention_maps(
        self, request: GenerationRequest, end: FinishedEvent
    ) -> tuple[AttentionMap, ...]:
        """Return a map for each attention query of one text, or pair of texts."""
        if not request.attention_queries:
            return ()
        pieces = self._tokenizer.pieces(request.source_ids or ())
        texts = TokenTexts(tuple(map(token_text, pieces)), (), ())
        return attention_maps(request.attention_queries, self._shapes, (), end, texts)


def _encoding(event: FinishedEvent) -> Encoding:
    assert event.encoding is not None
    if not all(np.isfinite(array).all() for array in event.encoding.values()):
        raise EngineError("the model gave what is no number")
    return event.encoding
