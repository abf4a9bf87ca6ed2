"""A model that transcribes by a script, and recordings for it."""

import io
import math
import wave
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import numpy as np

from serving.bundle.manifest import AudioSpec, Limits, Task
from serving.pipelines.cards import ModelCard
from serving.pipelines.transcription.job import Segment, Transcription, TranscriptionJob, Word
from tests.serving.pipelines.fakes import manifest

RATE = 16_000
AUDIO = AudioSpec(
    sampling_rate=RATE,
    num_mels=80,
    num_frames=3000,
    hop=160,
    fft_size=400,
    start=1,
    previous=2,
    no_speech=3,
    no_timestamps=4,
    first_timestamp=5,
    timestamp_step=0.02,
    max_initial_timestamp=1.0,
    languages={"en": 10, "fr": 11, "ht": 12},
    transcribe=20,
    translate=21,
)


class FakeTranscriber:
    """Hears a word each second, "zero", "one", "two" ...; a segment has ten of them."""

    WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

    def __init__(self, name: str = "scribe", audio: AudioSpec = AUDIO) -> None:
        languages = tuple(audio.languages) or ("en",)
        self.card = ModelCard.from_manifest(
            replace(
                manifest(Task.TRANSCRIBE, name),
                audio=audio,
                source_languages=languages,
                target_languages=languages,
                limits=Limits(1500, 448),
            )
        )
        self.jobs: list[TranscriptionJob] = []
        self.failure: Exception | None = None

    async def run(self, job: Any) -> Any:
        *_, whole = [part async for part in self.stream(job)]
        return whole

    async def stream(self, job: Any) -> AsyncGenerator[Any, None]:
        self.jobs.append(job)
        if self.failure is not None:
            raise self.failure
        seconds = len(job.samples) / RATE
        segments = []
        for index, start in enumerate(range(0, math.ceil(seconds), 10)):
            end = min(start + 10.0, seconds)
            segments.append(self._segment(job, index, start, end))
            yield segments[-1]
        yield Transcription(job.language or "ht", 0.9, seconds, tuple(segments), 7 * len(segments))

    def _segment(self, job: TranscriptionJob, index: int, start: int, end: float) -> Segment:
        texts = [f" {self.WORDS[second % 10]}" for second in range(start, math.ceil(end))]
        window = start // 30 * 30.0
        words = tuple(
            Word(
                text,
                start + number + 0.25,
                start + number + 0.75,
                0.9,
                window,
                np.linspace(0, 0.5, 1500, dtype=np.float32) if job.returns_attention else None,
            )
            for number, text in enumerate(texts)
        )
        return Segment(
            index,
            float(start),
            end,
            "".join(texts),
            tuple(range(100, 100 + len(texts))),
            window,
            0.0,
            -0.25,
            1.5,
            0.01,
            words if job.returns_words else (),
        )


def wave_file(seconds: float = 3.0, rate: int = RATE, channels: int = 1) -> bytes:
    """Return a .wav file of a tone of 440 Hz."""
    times = np.arange(round(seconds * rate)) / rate
    tone = (np.sin(2 * np.pi * 440 * times) * 8000).astype("<i2")
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.repeat(tone, channels).tobytes())
    return data.getvalue()
