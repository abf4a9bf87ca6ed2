"""A scripted engine and small manifests: pipelines and protocols without ONNX Runtime."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from serving.bundle import manifest as manifests
from serving.bundle.manifest import (
    FORMAT_VERSION,
    GraphSpec,
    Limits,
    Manifest,
    Precision,
    Task,
    TensorSpec,
)
from serving.errors import Overloaded, RequestError
from serving.pipelines.completion.pipeline import CompletionPipeline
from serving.pipelines.translation.memory import Memories
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.parameters import MAX_BEAMS
from serving.requests.request import (
    Event,
    FailedEvent,
    FinalEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    OutputTokens,
    TokenEvent,
    TokenLogprob,
    is_final,
)
from serving.text.markup.known_words import KnownWords
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

VOCAB_SIZE = 259
BOS, EOS = 1, 2
EXCLAMATION_MARK = 3  # the first of the byte alphabet
Script = Callable[[GenerationRequest], Sequence[int]]


class FakeEngine:
    """Answers with `script(request)`, one token per turn of the event loop; it tells tokens as they
    come to requests that stream.

    Every token has log-probability -0.5, the tokens after it in the vocabulary come next, and it
    attends to the source token of its own number. Of a beam search the hypotheses are the script's
    answer with 0, 1, 2 ... times the token `ending`, by default an exclamation mark.

    cancelled: ids of requests whose stream was closed before its end.
    refusal: what every job is told before it is looked at.
    gate: requests wait here before each token, when there is one.
    fails_after: after so many tokens every request fails, with `failure`.
    end: the reason why requests end that are not cut.
    most_hypotheses: of a beam search, however many were asked for.
    max_rows: a beam search with more beams is refused.
    """

    def __init__(self, script: Script, max_waiting: int = 10_000) -> None:
        self.script = script
        self.max_waiting = max_waiting
        self.refusal: Exception | None = None
        self.requests: list[GenerationRequest] = []
        self.num_runs = 0
        self.cancelled: list[str] = []
        self.gate: asyncio.Event | None = None
        self.fails_after: int | None = None
        self.failure: Exception = ValueError("scripted")
        self.end = FinishReason.STOP
        self.most_hypotheses = MAX_BEAMS
        self.ending = EXCLAMATION_MARK
        self.max_rows = MAX_BEAMS

    def check_room(self, work: int, share: str, priority: int) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        if request.num_rows > self.max_rows:
            raise RequestError("num_beams", request.num_rows, "too many")
        hypotheses = self._hypotheses(request)
        best = hypotheses[0]
        has_ended = False
        try:
            for number in range(len(best.tokens.ids)):
                if number == self.fails_after:
                    has_ended = True
                    yield FailedEvent(request.request_id, self.failure)
                    return
                if self.gate is not None:
                    await self.gate.wait()
                await asyncio.sleep(0)
                if request.streams:
                    yield self._token(request, number, best.tokens.ids)
            has_ended = True
            yield FinishedEvent(
                request.request_id,
                hypotheses,
                len(request.source_ids or ()),
                1 + len(request.prompt_ids) + len(request.forced_ids),
                len(best.tokens.ids) - len(request.forced_ids),
            )
        finally:
            if not has_ended:
                self.cancelled.append(request.request_id)

    def _hypotheses(self, request: GenerationRequest) -> tuple[Hypothesis, ...]:
        count = min(request.beam.num_hypotheses, self.most_hypotheses) if request.beam else 1
        answer = list(self.script(request))
        endings = [[self.ending] * number for number in range(count)]
        return tuple(
            self._hypothesis(request, [*answer, *ending], number)
            for number, ending in enumerate(endings)
        )

    def _hypothesis(self, request: GenerationRequest, answer: list[int], number: int) -> Hypothesis:
        forced = list(request.forced_ids)
        is_all = request.max_new_tokens == 0 and not request.ignore_eos
        if is_all and forced[-1:] == [EOS]:
            ids, reason = forced[:-1], FinishReason.STOP
        else:
            ids = [*forced, *answer[: request.max_new_tokens]]
            is_cut = len(ids) - len(forced) == request.max_new_tokens
            reason = FinishReason.LENGTH if is_cut else self.end
        tokens = OutputTokens.from_events(
            self._token(request, place, ids) for place in range(len(ids))
        )
        logprob = -0.5 if reason is FinishReason.STOP else None
        stop_id = EOS if reason is FinishReason.STOP else None
        return Hypothesis(tokens, -0.5 * (number + 1), reason, logprob, stop_id)

    def _token(self, request: GenerationRequest, place: int, ids: list[int]) -> TokenEvent:
        likeliest = range(ids[place], ids[place] + (request.logprobs or 0))
        top = tuple(
            TokenLogprob(token_id % VOCAB_SIZE, -0.5 - rank)
            for rank, token_id in enumerate(likeliest)
        )
        attention = None
        if request.alignment_heads is not None:
            assert request.source_ids is not None
            attention = np.eye(len(request.source_ids), dtype=np.float32)[
                min(place, len(request.source_ids) - 1)
            ]
        return TokenEvent(request.request_id, ids[place], -0.5, top, attention)

    async def stream(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[list[Event], None]:
        """Yield one event of each request at a time, the last request's first."""
        self._check_number(requests)
        async with AsyncExitStack() as stack:
            open_ones = [
                await stack.enter_async_context(aclosing(self.generate(request)))
                for request in reversed(requests)
            ]
            while batch := [event for stream in open_ones if (event := await anext(stream, None))]:
                yield batch

    def _check_number(self, requests: Sequence[GenerationRequest]) -> None:
        if requests[0].job_accepted_at is None and len(requests) > self.max_waiting:
            raise Overloaded(self.max_waiting)

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        self.num_runs += 1
        self._check_number(requests)
        return [await self._end(request) for request in requests]

    async def _end(self, request: GenerationRequest) -> FinalEvent:
        [end] = [event async for event in self.generate(request) if is_final(event)]
        return end


def manifest(
    task: Task,
    name: str = "model",
    max_target_tokens: int = 128,
    prompt_prefix: tuple[int, ...] = (BOS,),
    num_heads: int = 4,
    **changes: Any,
) -> Manifest:
    """num_heads: of a translator's attention over its source. changes: of other fields."""
    logp = TensorSpec("logp", "float32", ("batch", VOCAB_SIZE))
    graphs = {"step": GraphSpec("step.onnx", (), (logp,))}
    translates = task is Task.TRANSLATE
    if translates and num_heads:
        attention = TensorSpec("attention", "float32", ("batch", num_heads, "source"))
        graphs["step_attention"] = GraphSpec("step_attention.onnx", (), (logp, attention))
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        name=name,
        task=task,
        architecture="fake",
        precision=Precision.FP32,
        source_languages=("en",) if translates else (),
        target_languages=("fr",) if translates else (),
        tokens=manifests.Tokens(0, BOS, EOS, (), (EOS,), prompt_prefix, (EOS,)),
        limits=Limits(64 if translates else None, max_target_tokens),
        graphs=graphs,
        states=(),
        vocab_size=VOCAB_SIZE,
        window=32,
        files={},
    )
    return replace(manifest, **changes)


def byte_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(write_byte_tokenizer(folder / "tokenizer.json"))


def shouting_translator(
    tokenizer: Tokenizer,
    name: str = "shout",
    max_segments: int | None = None,
    known_words: KnownWords | None = None,
    memories: Memories | None = None,
    end: str = "",
    **options: Any,
) -> tuple[TranslationPipeline, FakeEngine]:
    """Its French is the English in capitals, with an end of its own."""

    def script(request: GenerationRequest) -> list[int]:
        assert request.source_ids is not None
        return tokenizer.encode(tokenizer.decode(request.source_ids).upper() + end)

    engine = FakeEngine(script)
    card = manifest(Task.TRANSLATE, name, **options)
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    pipeline = TranslationPipeline(
        *(card, tokenizers, engine, None, max_segments, known_words, memories)
    )
    return pipeline, engine


def scripted_generator(
    tokenizer: Tokenizer, text: str = " once upon a time", name: str = "story", **options: Any
) -> tuple[CompletionPipeline, FakeEngine]:
    """Completes every prompt with `text`."""
    engine = FakeEngine(lambda request: tokenizer.encode(text))
    card = manifest(Task.GENERATE, name, **options)
    return CompletionPipeline(card, tokenizer, engine), engine
