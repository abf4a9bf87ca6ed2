"""Transcribe recordings: window after window, or in parallel where somebody speaks."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from serving.audio.features import log_mel
from serving.audio.voice_activity import speech_spans
from serving.bundle.manifest import Manifest
from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.decoding import EnginePort
from serving.pipelines.jobs import (
    DetokenizeJob,
    Job,
    StreamedJob,
    TokenizeJob,
    describe_tokens,
    detokenize,
    unsupported_job,
)
from serving.pipelines.streams import in_order
from serving.pipelines.transcription.decoding import JobProgress, Window, WindowDecoder
from serving.pipelines.transcription.job import Samples, Segment, Transcription, TranscriptionJob
from serving.pipelines.transcription.prompts import TranscriptPrompts
from serving.pipelines.transcription.segments import SegmentWriter, WindowPlace
from serving.pipelines.transcription.windows import AudioChunk, cut_at_timestamps, pack_spans
from serving.requests.request import Audio
from serving.text.tokenizer import Tokenizer

MIN_SECONDS = 0.1  # as in OpenAI's API
_RESET_TEMPERATURE = 0.5  # a text that was decoded above it is not read by the next window


@dataclass(frozen=True, slots=True)
class _Run:
    """A job in progress. language: as the model spells it."""

    job: TranscriptionJob
    language: str
    progress: JobProgress


@dataclass(frozen=True, slots=True)
class _WindowResult:
    segments: tuple[Segment, ...]
    num_generated_tokens: int


class TranscriptionPipeline:
    """Runs the jobs of one model that transcribes."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, engine: EnginePort) -> None:
        assert manifest.audio is not None, "a model that transcribes reads sound"
        assert manifest.limits.max_source_tokens is not None, "windows have one length"
        self.card = ModelCard.from_manifest(manifest)
        self._audio, self._num_positions = manifest.audio, manifest.limits.max_source_tokens
        self._tokenizer, self._engine = tokenizer, engine
        self._prompts = TranscriptPrompts(manifest, tokenizer)
        self._decoder = WindowDecoder(manifest, tokenizer, engine)
        self._writer = SegmentWriter(manifest, tokenizer)

    async def run(self, job: Job[Any]) -> Any:
        """Return the whole transcription, or the tokens of a text, or the text of tokens.

        Raises RequestError for what cannot be served, and Overloaded.
        """
        match job:
            case TranscriptionJob():
                async with aclosing(self.stream(job)) as items:
                    return [item async for item in items][-1]
            case TokenizeJob(prompt=str(text)):
                return describe_tokens(self._tokenizer, self._tokenizer.encode(text))
            case DetokenizeJob():
                return detokenize(self._tokenizer, job.token_ids)
        raise unsupported_job(self.card.name, job)

    async def stream(self, job: StreamedJob[Any, Any]) -> AsyncGenerator[Any, None]:
        """Yield each segment when its window is decoded, then the whole transcription; closing the
        stream cancels what still runs.

        Raises, as it begins, RequestError for what cannot be served, and Overloaded.
        """
        if not isinstance(job, TranscriptionJob):
            raise unsupported_job(self.card.name, job)
        self._engine.check_room(1, job.decoding.share, job.decoding.priority)
        seconds = len(job.samples) / self._audio.sampling_rate
        if seconds < MIN_SECONDS:
            message = f"is too short: recordings have at least {MIN_SECONDS} seconds"
            raise RequestError("file", f"{seconds:.2f} seconds", message)
        language = self._prompts.resolve_language(job)
        chunks = await self._divide(job)
        progress, probability = JobProgress(), 1.0
        if language is None:
            first = chunks[0].select(job.samples) if chunks else job.samples
            audio = await self._read_window(first)
            language, probability = await self._decoder.identify_language(job, audio, progress)
        run = _Run(job, language, progress)
        segments: list[Segment] = []
        num_generated = 0
        windows = self._transcribe_in_parallel if job.is_parallel else self._transcribe_in_turn
        async with aclosing(windows(run, chunks)) as results:
            async for result in results:
                num_generated += result.num_generated_tokens
                for segment in result.segments:
                    segments.append(replace(segment, index=len(segments)))
                    yield segments[-1]
        yield Transcription(
            language,
            probability,
            seconds,
            tuple(segments),
            num_generated,
            progress.num_input_tokens,
        )

    async def _divide(self, job: TranscriptionJob) -> list[AudioChunk]:
        """Return the parts of a recording that are decoded by themselves."""
        if not job.is_parallel:
            return [AudioChunk(((0, len(job.samples)),), self._audio.sampling_rate)]
        spans = await asyncio.to_thread(speech_spans, job.samples)
        return list(pack_spans(spans, self._audio))

    async def _transcribe_in_turn(
        self, run: _Run, chunks: Sequence[AudioChunk]
    ) -> AsyncGenerator[_WindowResult, None]:
        for chunk in chunks:
            async with aclosing(self._transcribe_chunk(run, chunk)) as results:
                async for result in results:
                    yield result

    async def _transcribe_in_parallel(
        self, run: _Run, chunks: Sequence[AudioChunk]
    ) -> AsyncGenerator[_WindowResult, None]:
        """Yield the results of the chunks in their order; as many are decoded at once as the engine
        has rows.
        """

        async def transcribe(chunk: AudioChunk) -> list[_WindowResult]:
            async with aclosing(self._transcribe_chunk(run, chunk)) as results:
                return [result async for result in results]

        async with aclosing(in_order(transcribe, chunks, self._engine.max_rows)) as all_results:
            async for results in all_results:
                for result in results:
                    yield result

    async def _transcribe_chunk(
        self, run: _Run, chunk: AudioChunk
    ) -> AsyncGenerator[_WindowResult, None]:
        """Yield the result of each window. A window begins where the segments of the one before
        end, and reads the text before; as in openai/whisper, `transcribe`.
        """
        job, audio = run.job, self._audio
        samples = chunk.select(job.samples)
        forced_ids = self._prompts.forced_ids(run.language, job)
        previous_ids = list(self._prompts.encode_text(job.prompt))
        num_frames = len(samples) // audio.hop
        seek = 0
        while seek < num_frames:
            size = min(audio.num_frames, num_frames - seek)
            place = WindowPlace(chunk, seek * audio.hop / audio.sampling_rate, size)
            prompt_ids = self._prompts.continue_from(previous_ids)
            features = await self._read_window(samples[seek * audio.hop :])
            window = Window(features, place.recording_sample, prompt_ids, forced_ids)
            decoded = await self._decoder.decode(job, window, run.progress)
            if decoded.is_silence(job):
                seek += size
                yield _WindowResult((), decoded.num_generated_tokens)
                continue
            cuts, num_passed = cut_at_timestamps(decoded.token_ids, audio, size)
            segments = await asyncio.to_thread(
                self._writer.write, job, run.language, decoded, cuts, place
            )
            yield _WindowResult(tuple(segments), decoded.num_generated_tokens)
            seek += num_passed
            is_read = job.reads_previous_text and decoded.temperature <= _RESET_TEMPERATURE
            if job.is_parallel or not is_read:
                previous_ids = []
            else:
                previous_ids += [i for segment in segments for i in segment.token_ids]

    async def _read_window(self, samples: Samples) -> Audio:
        """Return the features of the window with which these samples begin."""
        window = samples[: self._audio.window_samples]
        features = await asyncio.to_thread(log_mel, window, self._audio)
        return Audio(features.tobytes(), self._num_positions)
