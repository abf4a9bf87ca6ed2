"""A scripted engine and small manifests: pipelines and protocols without ONNX Runtime."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from serving.bundle.manifest import (
    FORMAT_VERSION,
    GraphSpec,
    Limits,
    Manifest,
    Precision,
    Task,
    TensorSpec,
    Tokens,
)
from serving.config import TextLimits
from serving.errors import Overloaded
from serving.pipelines.generation import GenerationPipeline
from serving.pipelines.translation import TranslationPipeline
from serving.request import (
    Event,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    TokenEvent,
    TokenLogprob,
)
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

VOCAB_SIZE = 259
BOS, EOS = 1, 2
Script = Callable[[GenerationRequest], Sequence[int]]


class FakeEngine:
    """Answers with `script(request)`, one token per turn of the event loop.

    cancelled: ids of requests whose stream was closed before its end.
    gate: requests wait here before each token, when there is one.
    fails_after: after so many tokens every request fails.
    """

    def __init__(self, script: Script, max_waiting: int = 10_000) -> None:
        self.script = script
        self.max_waiting = max_waiting
        self.requests: list[GenerationRequest] = []
        self.num_runs = 0
        self.cancelled: list[str] = []
        self.gate: asyncio.Event | None = None
        self.fails_after: int | None = None

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        ids = list(self.script(request))[: request.max_new_tokens]
        has_ended = False
        try:
            for number, token_id in enumerate(ids):
                if number == self.fails_after:
                    has_ended = True
                    yield FailedEvent(request.request_id, ValueError("scripted"))
                    return
                if self.gate is not None:
                    await self.gate.wait()
                await asyncio.sleep(0)
                top = tuple(TokenLogprob(token_id, -0.5) for _ in range(request.logprobs or 0))
                yield TokenEvent(request.request_id, token_id, -0.5, top)
            is_cut = len(ids) == request.max_new_tokens
            has_ended = True
            yield FinishedEvent(
                request.request_id,
                FinishReason.LENGTH if is_cut else FinishReason.STOP,
                len(request.source_ids or ()),
                1 + len(request.prompt_ids),
                len(ids),
            )
        finally:
            if not has_ended:
                self.cancelled.append(request.request_id)

    async def run(self, requests: Sequence[GenerationRequest]) -> list[list[Event]]:
        self.num_runs += 1
        if len(requests) > self.max_waiting:
            raise Overloaded(self.max_waiting)
        return [[event async for event in self.generate(request)] for request in requests]


def manifest(task: Task, name: str = "model", max_target_tokens: int = 128) -> Manifest:
    logp = TensorSpec("logp", "float32", ("batch", VOCAB_SIZE))
    translates = task is Task.TRANSLATE
    return Manifest(
        format_version=FORMAT_VERSION,
        name=name,
        task=task,
        architecture="fake",
        precision=Precision.FP32,
        source_languages=("en",) if translates else (),
        target_languages=("fr",) if translates else (),
        tokens=Tokens(0, BOS, EOS, (), (EOS,), (BOS,), (EOS,)),
        limits=Limits(64 if translates else None, max_target_tokens),
        graphs={"step": GraphSpec("step.onnx", (), (logp,))},
        states=(),
        window=32,
        files={},
    )


def byte_tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer(write_byte_tokenizer(folder / "tokenizer.json"))


def shouting_translator(
    tokenizer: Tokenizer, name: str = "shout", limits: TextLimits | None = None
) -> tuple[TranslationPipeline, FakeEngine]:
    """Its French is the English in capitals."""

    def script(request: GenerationRequest) -> list[int]:
        assert request.source_ids is not None
        return tokenizer.encode(tokenizer.decode(request.source_ids).upper())

    engine = FakeEngine(script)
    card = manifest(Task.TRANSLATE, name)
    return TranslationPipeline(card, tokenizer, engine, limits or TextLimits()), engine


def scripted_generator(
    tokenizer: Tokenizer, text: str = " once upon a time", name: str = "story"
) -> tuple[GenerationPipeline, FakeEngine]:
    """Completes every prompt with `text`."""
    engine = FakeEngine(lambda request: tokenizer.encode(text))
    return GenerationPipeline(manifest(Task.GENERATE, name), tokenizer, engine), engine
