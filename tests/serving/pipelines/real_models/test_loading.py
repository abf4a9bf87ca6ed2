"""A bundle becomes a model that answers, the same for the server, the commands and the bench."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Precision, Task
from serving.bundle.opening import open_bundle, write_manifest
from serving.engine.config import EngineConfig
from serving.engine.runtime.machine import instruction_sets
from serving.engine.stats import EngineStats, StepStats
from serving.errors import BundleError, TooLarge
from serving.pipelines import loading
from serving.pipelines.decoding import EnginePort
from serving.pipelines.loading import LoadedModel, code_checksum, fingerprint_of, load_model
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from tests.serving.pipelines.fakes import manifest
from tests.tiny import tiny_bundle

CONFIG = EngineConfig(slots=3, threads=1)
JOB = TranslationJob("job", ("A dog runs. A cat sleeps.",), "en", "fr")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("transformer", tmp_path_factory.mktemp("bundle"), Precision.FP32)


@asynccontextmanager
async def load(path: Path, **options: Any) -> AsyncIterator[LoadedModel]:
    model = load_model(path, CONFIG, **options)
    try:
        yield model
    finally:
        await model.engine.shutdown()


async def translate(model: LoadedModel) -> tuple[str, ...]:
    assert isinstance(model.pipeline, TranslationPipeline)
    return (await model.pipeline.run(JOB)).texts


class Notes:
    """Keeps what a recorder hears."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.stats: list[EngineStats] = []
        self.num_steps = self.num_measured = 0

    def recorder_for(self, model: str) -> "Notes":
        self.names.append(model)
        return self

    def on_stats(self, stats: EngineStats) -> None:
        self.stats.append(stats)

    def on_step(self, step_stats: StepStats, stats: EngineStats, step_seconds: float) -> None:
        self.num_steps += 1

    def record_requests(self, engine: EnginePort) -> EnginePort:
        self.num_measured += 1
        return engine


class CountedTurns(AbstractContextManager[None]):
    """Counts how often it is entered."""

    number = 0

    def __enter__(self) -> None:
        self.number += 1

    def __exit__(self, *error: object) -> None: ...

    def may_continue(self) -> bool:
        return False


async def test_a_recorder_hears_of_the_engine_before_its_first_step_and_of_every_step(
    bundle: Path,
) -> None:
    notes, turns = Notes(), CountedTurns()
    async with load(bundle, recorder_for=notes.recorder_for, turns_of=lambda *_: [turns]) as model:
        [stats] = notes.stats
        assert (stats.num_rows, stats.num_slots) == (0, 3)
        assert (notes.names, notes.num_measured, notes.num_steps) == (["transformer"], 1, 0)
        await translate(model)
    assert 0 < notes.num_steps <= turns.number


async def test_it_answers_the_same_without_recorder_turns_and_limit(bundle: Path) -> None:
    async with load(bundle) as plain, load(bundle, max_segments=2) as limited:
        assert await translate(plain) == await translate(limited)


async def test_a_limit_of_segments_holds(bundle: Path) -> None:
    async with load(bundle, max_segments=1) as model:
        with pytest.raises(TooLarge, match="at most 1 sentences"):
            await translate(model)


async def test_its_engine_runs_until_it_is_shut_down(bundle: Path) -> None:
    async with load(bundle) as model:
        assert model.engine.is_alive
    assert not model.engine.is_alive


def test_defaults_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    path = tiny_bundle("transformer", tmp_path, Precision.FP32)
    write_manifest(path, replace(open_bundle(path).manifest, generation={"num_beams": 1000}))
    with pytest.raises(BundleError, match="num_beams"):
        load_model(path, CONFIG)


def test_the_bundle_and_the_device_decide() -> None:
    first = manifest(Task.GENERATE)
    other = replace(first, files={"step.onnx": "0" * 64})
    fingerprints = [
        fingerprint_of(bundle_manifest, "cpu") for bundle_manifest in (first, first, other)
    ]

    assert fingerprints[0] == fingerprints[1] and fingerprints[0].startswith("fp_")
    assert len({*fingerprints, fingerprint_of(first, "cuda")}) == 3


@pytest.mark.parametrize("part", ["onnxruntime_version", "code_checksum"])
def test_versions_decide(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    before = fingerprint_of(manifest(Task.GENERATE), "cpu")
    monkeypatch.setattr(loading, part, lambda *_: "another")

    assert fingerprint_of(manifest(Task.GENERATE), "cpu") != before


def test_any_change_of_the_sources_gives_another_checksum(tmp_path: Path) -> None:
    sources = tmp_path / "engine"
    sources.mkdir()
    checksums = set()
    for text in ("a = 1", "a = 2"):
        (sources / "step.py").write_text(text)
        code_checksum.cache_clear()
        checksums.add(code_checksum(tmp_path))
    assert len(checksums) == 2
    (sources / "notes.txt").touch()
    code_checksum.cache_clear()
    assert code_checksum(tmp_path) in checksums


def test_instructions_of_a_processor(tmp_path: Path) -> None:
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text(
        "model name : X\nflags\t\t: fpu vme avx2 sse4_1 avx512_vnni\n\nflags: none\n"
    )

    assert instruction_sets(cpu_info) == ("avx2", "avx512_vnni", "sse4_1")
    assert instruction_sets(tmp_path / "missing") == ()
