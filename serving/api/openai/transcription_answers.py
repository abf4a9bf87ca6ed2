"""The answers of transcriptions: JSON, text, subtitles, or the events of a stream."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from math import ceil
from typing import Any

import numpy as np
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from serving.api.http.endpoint import Call
from serving.api.http.streams import EventStream, encode_events, wait_for_first
from serving.api.openai.transcription_body import TranscriptionBody
from serving.audio.features import log_mel
from serving.bundle.manifest import AudioSpec
from serving.observability.metrics import Outcome
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Model
from serving.pipelines.transcription.job import (
    Samples,
    Segment,
    Transcription,
    TranscriptionJob,
    Word,
)
from serving.pipelines.transcription.subtitles import write_srt, write_vtt
from serving.text.languages import language_name

_MOST = 255  # of a byte
_MILLISECONDS = 3  # digits behind the point of seconds
_PROBABILITY_DIGITS = 4
Part = Segment | Transcription


async def answer_transcription(call: Call[TranscriptionBody, Model]) -> Response:
    if call.body.stream:
        return await _answer_in_pieces(call)
    transcription: Transcription = await call.model.run(call.job)
    call.tracked.transcribed(transcription.seconds)
    match call.body.response_format:
        case "text":
            return PlainTextResponse(transcription.text + "\n")
        case "srt":
            return PlainTextResponse(write_srt(transcription.segments))
        case "vtt":
            return PlainTextResponse(write_vtt(transcription.segments))
        case "verbose_json":
            # On a thread, because spectrograms take long to compute.
            returns_attention = call.body.return_attention
            whole = await asyncio.to_thread(_verbose, call, transcription, returns_attention)
            return JSONResponse(whole)
    return JSONResponse({"text": transcription.text, "usage": _duration(transcription)})


async def _answer_in_pieces(call: Call[TranscriptionBody, Model]) -> EventStream:
    stream = call.model.stream(call.job)
    parts = await call.resources.enter_async_context(aclosing(stream))
    first = await wait_for_first(parts, call.resources)
    call.tracked.outcome = Outcome.CANCELLED  # until the last event
    events = encode_events(_events(call, first, parts), call.tracked, call.protocol)
    return EventStream(events, call.resources.pop_all())


async def _events(
    call: Call[TranscriptionBody, Model],
    first: Awaitable[Part],
    rest: AsyncGenerator[Part, None],
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the segments, then the whole. A window's spectrogram comes with its first segment, so
    that what a long recording attends to is in no single event.
    """
    is_verbose = call.body.response_format == "verbose_json"
    segments = _SegmentShape(call)
    text = _StrippedText()
    window_start = None
    part = await first
    while isinstance(part, Segment):
        event: dict[str, Any] = {
            "type": "transcript.text.delta",
            "delta": text.push(part.text),
        }
        if is_verbose:
            event["segment"] = segments.describe(part)
        if call.job.returns_attention and part.window_start != window_start:
            window_start = part.window_start
            event["window"] = await asyncio.to_thread(
                _window, call.job.samples, window_start, segments.audio
            )
        yield event
        part = await anext(rest)
    call.tracked.transcribed(part.seconds)
    whole: dict[str, Any] = {"text": part.text}
    if is_verbose:
        whole = await asyncio.to_thread(_verbose, call, part, False)
    yield {"type": "transcript.text.done", **whole, "usage": _tokens(part, call.model.card)}


class _StrippedText:
    """Makes pieces of a text without the spaces at its beginning and its end."""

    def __init__(self) -> None:
        self._has_begun = False
        self._spaces = ""

    def push(self, piece: str) -> str:
        """Return the next piece. The spaces at its end come with the one after."""
        text = self._spaces + piece if self._has_begun else piece.lstrip()
        stripped = text.rstrip()
        self._has_begun = self._has_begun or bool(stripped)
        self._spaces = text[len(stripped) :]
        return stripped


def _verbose(
    call: Call[TranscriptionBody, Model], transcription: Transcription, returns_attention: bool
) -> dict[str, Any]:
    """Return the JSON with segments, words or both, as they are asked for."""
    body, job = call.body, call.job
    language = "en" if job.translates else transcription.language
    answer: dict[str, Any] = {
        "task": "translate" if job.translates else "transcribe",
        "language": language_name(language).lower(),
        "spoken_language": transcription.language,
        "language_probability": transcription.language_probability,
        "duration": _rounded(transcription.seconds),
        "text": transcription.text,
    }
    shape = _SegmentShape(call)
    if "segment" in body.timestamp_granularities:
        answer["segments"] = [shape.describe_times(segment) for segment in transcription.segments]
    if body.returns_words:
        answer["words"] = [
            _word(word, returns_attention)
            for segment in transcription.segments
            for word in segment.words
        ]
    if returns_attention:
        starts = dict.fromkeys(segment.window_start for segment in transcription.segments)
        answer["windows"] = [_window(job.samples, start, shape.audio) for start in starts]
    return answer | {"usage": _duration(transcription)}


class _SegmentShape:
    """The JSON of segments and words."""

    def __init__(self, call: Call[TranscriptionBody, Model]) -> None:
        audio = call.model.card.audio
        assert audio is not None
        self.audio = audio
        self._job: TranscriptionJob = call.job

    def describe(self, segment: Segment) -> dict[str, Any]:
        """Return a segment of a stream, with its words if they are asked for."""
        if not self._job.returns_words:
            return self.describe_times(segment)
        words = [_word(word, self._job.returns_attention) for word in segment.words]
        return self.describe_times(segment) | {"words": words}

    def describe_times(self, segment: Segment) -> dict[str, Any]:
        frames_per_second = self.audio.sampling_rate / self.audio.hop
        return {
            "id": segment.index,
            "seek": round(segment.window_start * frames_per_second),
            "start": _rounded(segment.start),
            "end": _rounded(segment.end),
            "text": segment.text,
            "tokens": list(segment.token_ids),
            "temperature": segment.temperature,
            "avg_logprob": segment.mean_logprob,
            "compression_ratio": segment.compression_ratio,
            "no_speech_prob": segment.no_speech,
        }


def _word(word: Word, returns_attention: bool) -> dict[str, Any]:
    """Return the JSON of a word. Additions: its probability and, if asked for, where its window
    begins, and what it attends to there.
    """
    times = {
        "word": word.text.strip(),
        "start": _rounded(word.start),
        "end": _rounded(word.end),
        "probability": round(word.probability, _PROBABILITY_DIGITS),
    }
    if word.attention is None or not returns_attention:
        return times
    largest = float(word.attention.max()) or 1.0
    levels = np.rint(word.attention * (_MOST / largest)).astype(np.uint8)
    return times | {"window_start": _rounded(word.window_start), "attention": _base64(levels)}


def _window(samples: Samples, start: float, audio: AudioSpec) -> dict[str, Any]:
    """Return the spectrogram of a window: a byte for each mel band and frame, band after band."""
    first = round(start * audio.sampling_rate)
    features = log_mel(samples[first : first + audio.window_samples], audio)
    low, high = float(features.min()), float(features.max())
    levels = np.rint((features - low) * (_MOST / (high - low or 1.0))).astype(np.uint8)
    return {
        "start": _rounded(start),
        "seconds": audio.window_seconds,
        "mels": levels.shape[0],
        "frames": levels.shape[1],
        "spectrogram": _base64(levels),
    }


def _base64(levels: "np.ndarray[Any, np.dtype[np.uint8]]") -> str:
    return base64.b64encode(levels.tobytes()).decode()


def _duration(transcription: Transcription) -> dict[str, Any]:
    return {"type": "duration", "seconds": ceil(transcription.seconds)}


def _tokens(transcription: Transcription, card: ModelCard) -> dict[str, Any]:
    """Return the usage of a stream, which OpenAI's clients read in tokens: positions of the
    encoder, 50 a second of Whisper, and what was written.
    """
    assert card.audio is not None and card.max_source_tokens is not None
    positions_per_second = card.max_source_tokens / card.audio.window_seconds
    num_audio = ceil(transcription.seconds * positions_per_second)
    num_written = transcription.num_generated_tokens
    return {
        "type": "tokens",
        "input_tokens": num_audio,
        "input_token_details": {"text_tokens": 0, "audio_tokens": num_audio},
        "output_tokens": num_written,
        "total_tokens": num_audio + num_written,
    }


def _rounded(seconds: float) -> float:
    return round(seconds, _MILLISECONDS)
