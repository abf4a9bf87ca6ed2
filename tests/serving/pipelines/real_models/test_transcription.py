"""Recordings through the real engine: the published loops over transformers write the same."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import AudioSpec, Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.pipelines import loading
from serving.pipelines.loading import LoadedModel, load_model
from serving.pipelines.transcription import pipeline as pipelines
from serving.pipelines.transcription.job import Segment, Transcription, TranscriptionJob
from tests.serving.pipelines.transcription.naive_whisper import (
    NaiveWhisper,
    save_random_whisper,
    transcribe_by_loops,
)

RATE, SECONDS = 16_000, 9.3  # windows have 2 s
OPEN: dict[str, Any] = {
    "logprob_threshold": None,
    "compression_ratio_threshold": None,
    "no_speech_threshold": None,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whisper")
    save_random_whisper(folder / "theirs")
    export_checkpoint(read_model(folder / "theirs"), folder / "bundle", Precision.FP32)
    return folder


@pytest.fixture(scope="module")
def audio(folder: Path) -> AudioSpec:
    audio = open_bundle(folder / "bundle").manifest.audio
    assert audio is not None
    return audio


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    """Tones that change every 0.3 s."""
    random = np.random.default_rng(1)
    time = np.arange(round(0.3 * RATE)) / RATE
    tones = [
        random.uniform(500, 9000) * np.sin(2 * np.pi * random.uniform(80, 6000) * time)
        for _ in range(31)
    ]
    return np.concatenate(tones).astype(np.int16)


@asynccontextmanager
async def load(folder: Path) -> AsyncIterator[LoadedModel]:
    model = load_model(folder / "bundle", EngineConfig(slots=6, threads=1))
    try:
        yield model
    finally:
        await model.engine.shutdown()


async def run_jobs(folder: Path, *jobs: TranscriptionJob) -> list[Transcription]:
    async with load(folder) as model:
        return list(await asyncio.gather(*(model.pipeline.run(job) for job in jobs)))


def describe(transcription: Transcription) -> list[tuple[float, float, tuple[int, ...]]]:
    return [(round(s.start, 6), round(s.end, 6), s.token_ids) for s in transcription.segments]


def test_windows_are_those_of_the_published_loops(
    folder: Path, audio: AudioSpec, samples: np.ndarray
) -> None:
    assert audio.transcribe is not None
    whisper = NaiveWhisper(folder / "theirs", audio)
    expected = transcribe_by_loops(whisper, samples, [audio.languages["en"], audio.transcribe])
    job = TranscriptionJob("job", samples, "en", temperatures=(0.0,), returns_words=True, **OPEN)
    [result] = asyncio.run(run_jobs(folder, job))
    assert describe(result) == [
        (round(s["start"], 6), round(s["end"], 6), tuple(s["tokens"])) for s in expected
    ]
    assert len({segment.window_start for segment in result.segments}) >= 5
    for segment, other in zip(result.segments, expected, strict=True):
        window = other["window"]
        mean = sum(window.logprobs) / (len(window.ids) + 1)
        assert segment.mean_logprob == pytest.approx(mean, abs=1e-3)
        assert segment.no_speech == pytest.approx(window.no_speech, abs=1e-4)
        assert "".join(word.text for word in segment.words) == segment.text
        for word in segment.words:
            probabilities = np.exp(window.logprobs)
            assert probabilities.min() - 1e-4 <= word.probability <= probabilities.max() + 1e-4


def test_attention_of_words_is_that_of_transformers(
    folder: Path, audio: AudioSpec, samples: np.ndarray
) -> None:
    assert audio.transcribe is not None
    samples = samples[: audio.window_samples]
    whisper = NaiveWhisper(folder / "theirs", audio)
    forced = [audio.languages["en"], audio.transcribe]
    [expected, *_] = transcribe_by_loops(whisper, samples, forced)
    job = TranscriptionJob(
        *("job", samples, "en"),
        temperatures=(0.0,),
        returns_words=True,
        returns_attention=True,
        **OPEN,
    )
    [result] = asyncio.run(run_jobs(folder, job))
    ids, first = expected["tokens"], expected["first"]
    places = [first + i for i, token_id in enumerate(ids) if token_id < whisper.eos]
    attention = expected["window"].attention.mean(axis=0)
    begin = 0
    for word in result.segments[0].words:  # the means of runs of tokens, which leave none out
        assert word.attention is not None
        means = (
            attention[places[begin:end]].mean(axis=0) for end in range(begin + 1, len(places) + 1)
        )
        begin += 1 + next(
            number
            for number, mean in enumerate(means)
            if np.abs(word.attention - mean).max() < 1e-5
        )
    assert begin == len(places)


@pytest.mark.parametrize("is_parallel", [False, True])
def test_transcripts_are_the_same_in_company(
    folder: Path, samples: np.ndarray, is_parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every temperature, also where samples are drawn."""
    spans = [(0, 20_000), (30_000, 60_000), (70_000, 100_000), (110_000, 148_000)]
    monkeypatch.setattr(pipelines, "speech_spans", lambda samples: spans)
    jobs = [
        TranscriptionJob(
            *(f"job-{number}", samples[number * 5000 :], language),
            translates=number == 2,
            num_samples=2,
            temperatures=(0.0, 0.6),
            is_parallel=is_parallel,
            returns_words=number == 1,
        )
        for number, language in enumerate(("en", None, "fr"))
    ]
    if is_parallel:
        jobs = [replace(job, samples=samples) for job in jobs]
    together = asyncio.run(run_jobs(folder, *jobs))
    alone = [asyncio.run(run_jobs(folder, job))[0] for job in jobs]
    assert together == alone
    assert all(transcription.segments for transcription in alone)
    assert {segment.temperature for segment in alone[0].segments} == {0.6}


def test_a_job_that_is_cancelled_leaves_no_rows(folder: Path, samples: np.ndarray) -> None:
    async def cancel() -> None:
        async with load(folder) as model:
            job = TranscriptionJob("job", samples, "en")
            stream: Any = model.pipeline.stream(job)
            async with aclosing(stream):
                assert isinstance(await anext(stream), Segment)
            running = asyncio.create_task(collect(model.pipeline.run(job)))
            await asyncio.sleep(0.05)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            while model.engine.stats().num_rows or model.engine.stats().num_waiting:
                await asyncio.sleep(0.01)
            transcription = await model.pipeline.run(job)
            assert transcription.segments

    asyncio.run(asyncio.wait_for(cancel(), 60))


async def collect(running: Coroutine[Any, Any, Transcription]) -> Transcription:
    return await running


def test_a_bundle_that_transcribes_is_loaded_with_its_audio(folder: Path) -> None:
    parts = loading.ModelParts.open(folder / "bundle")
    assert parts.bundle.manifest.alignment_heads == (1, 4, 7)

    async def card() -> Any:
        async with load(folder) as model:
            return model.pipeline.card

    assert asyncio.run(card()).audio == parts.bundle.manifest.audio
