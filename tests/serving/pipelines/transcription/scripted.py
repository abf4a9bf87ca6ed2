"""A model of recordings whose answers are written by the tests: no sound is understood."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from serving.bundle.manifest import (
    AttentionKind,
    AttentionShape,
    AudioSpec,
    Limits,
    Manifest,
    Task,
)
from serving.pipelines.transcription.pipeline import TranscriptionPipeline
from serving.requests.request import (
    Event,
    FinalEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    OutputTokens,
    TokenEvent,
)
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import VOCAB_SIZE, manifest

RATE = 16_000
# Tokens of text are bytes; these are beyond them.
EOS = VOCAB_SIZE
START, ENGLISH, FRENCH, TRANSLATE, TRANSCRIBE, PREVIOUS, NO_SPEECH, NO_TIMES = range(
    EOS + 1, EOS + 9
)
FIRST_TIME = NO_TIMES + 1
NUM_POSITIONS = 1500

AUDIO = AudioSpec(
    *(RATE, 8, 3000, 160, 400),
    start=START,
    previous=PREVIOUS,
    no_speech=NO_SPEECH,
    no_timestamps=NO_TIMES,
    first_timestamp=FIRST_TIME,
    timestamp_step=0.02,
    max_initial_timestamp=1.0,
    languages={"en": ENGLISH, "fr": FRENCH},
    transcribe=TRANSCRIBE,
    translate=TRANSLATE,
)
ENGLISH_AUDIO = replace(AUDIO, languages={}, transcribe=None, translate=None)


def at(seconds: float) -> int:
    """Return a timestamp."""
    return FIRST_TIME + round(seconds / 0.02)


@dataclass(frozen=True)
class Reply:
    """What the model writes about a window: ids without the end.

    no_speech: its probability, or that of each language if they are asked for.
    """

    ids: Sequence[int] = ()
    logprob: float = -0.2
    no_speech: float = 0.01
    languages: tuple[float, ...] = (0.6, 0.2)
    ends: bool = True


class ScriptedEngine:
    """Answers each request with `script(request)`.

    cancelled: requests whose run was cancelled. gate: runs wait here, if there is one.
    """

    max_rows = 4

    def __init__(self, script: Callable[[GenerationRequest], Reply]) -> None:
        self.script = script
        self.requests: list[GenerationRequest] = []
        self.runs: list[list[GenerationRequest]] = []
        self.cancelled: list[str] = []
        self.gate: asyncio.Event | None = None
        self.refusal: Exception | None = None

    def check_room(self, work: int, share: str, priority: int) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        [event] = await self.run([request])
        yield event

    async def stream(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncGenerator[list[Event], None]:
        yield list(await self.run(requests))

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        self.requests += requests
        self.runs.append(list(requests))
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += [request.request_id for request in requests]
            raise
        return [self._finish(request) for request in requests]

    def _finish(self, request: GenerationRequest) -> FinishedEvent:
        reply = self.script(request)
        assert request.max_new_tokens is not None
        written = reply.ids[: request.max_new_tokens]
        ids = [*request.forced_ids, *written]
        tokens = OutputTokens.from_events(
            TokenEvent(
                request.request_id,
                token_id,
                reply.logprob,
                attention_pieces=attend(request, place, len(written)),
            )
            for place, token_id in enumerate(ids, -len(request.forced_ids))
        )
        ends = reply.ends and len(written) == len(reply.ids)
        best = Hypothesis(
            tokens,
            0.0,
            FinishReason.STOP if ends else FinishReason.LENGTH,
            reply.logprob if ends else None,
            EOS if ends else None,
        )
        asks_languages = len(request.scored_ids) > 1
        scored = reply.languages if asks_languages else (reply.no_speech,)
        return FinishedEvent(
            request.request_id,
            (best,),
            NUM_POSITIONS,
            len(request.prompt_ids) + len(request.forced_ids),
            len(written) + ends,
            attention_pieces=attend(request, len(written), len(written)),
            scored_logprobs=tuple(np.log(scored).tolist()) if request.scored_ids else (),
        )


def attend(
    request: GenerationRequest, place: int, num_tokens: int
) -> tuple[tuple[np.ndarray, ...], ...]:
    """Return attention of a token: to its part of the first 10 seconds."""
    weights = np.full(NUM_POSITIONS, 1e-4, np.float32)
    share = 500 / (num_tokens + 1)
    weights[round(max(place, 0) * share) : round((max(place, 0) + 1) * share)] = 1
    weights /= weights.sum()
    return tuple(
        (np.tile(weights, (1, len(query.heads), 1, 1)),) for query in request.attention_queries
    )


def audio_manifest(audio: AudioSpec = AUDIO, max_target_tokens: int = 448) -> Manifest:
    base = manifest(Task.TRANSCRIBE, "whisper", max_target_tokens)
    return replace(
        base,
        tokens=replace(base.tokens, eos=EOS, stop=(EOS,)),
        limits=Limits(NUM_POSITIONS, max_target_tokens),
        source_languages=tuple(audio.languages) or ("en",),
        vocab_size=FIRST_TIME + 1501,
        audio=audio,
        attention={AttentionKind.CROSS: AttentionShape(2, 4)},
        alignment_heads=(1, 6, 7),
    )


def scripted_transcriber(
    tokenizer: Tokenizer,
    script: Callable[[GenerationRequest], Reply],
    audio: AudioSpec = AUDIO,
) -> tuple[TranscriptionPipeline, ScriptedEngine]:
    engine = ScriptedEngine(script)
    return TranscriptionPipeline(audio_manifest(audio), tokenizer, engine), engine


def recording(seconds: float) -> np.ndarray:
    """Return noise."""
    samples = np.random.default_rng(0).integers(-3000, 3000, round(seconds * RATE))
    return samples.astype(np.int16)
