"""Loads a bundle: its files, its engine and its pipeline are put together here and nowhere else.

The server's replicas, the commands that need no server and the bench all come through this file, so
that what is measured is what is served.
"""

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Protocol

from serving.bundle.manifest import Manifest, Task
from serving.bundle.model_card import find_licence, find_origin
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.encoder_engine import EncodingEngine
from serving.engine.engine import Engine
from serving.engine.fair_share import ProcessorTurns
from serving.engine.runtime.graph import (
    Graphs,
    LentThreads,
    lend_threads,
    share_attention_graphs,
)
from serving.engine.runtime.machine import instruction_sets, shorten_switch_interval
from serving.engine.runtime.planning import CpuBudget, PlannedModel, plan_model
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.engine.stats import EngineObserver, EngineStats
from serving.engine.worker import SteppedEngine
from serving.errors import BundleError
from serving.kernels.library import native_kernels, onnxruntime_version
from serving.pipelines.cards import PlanCard
from serving.pipelines.catalog import Catalog, Model
from serving.pipelines.completion.pipeline import CompletionPipeline
from serving.pipelines.decoding import EnginePort, default_problems
from serving.pipelines.encoding.pipeline import EncodingPipeline
from serving.pipelines.transcription.pipeline import TranscriptionPipeline
from serving.pipelines.translation.memory import Memories
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.text.markup.known_words import KnownWords
from serving.text.shortlist import Shortlist

logger = logging.getLogger(__name__)
TurnsOf = Callable[[int, int, Callable[[], float]], Sequence[ProcessorTurns]]
# Rows of an engine that translates files: a product of 128 rows costs less a row than one of 64.
FILE_SLOTS = 128


class MetricsRecorder(EngineObserver, Protocol):
    """Keeps the metrics of one model."""

    def on_stats(self, stats: EngineStats) -> None: ...

    def record_requests(self, engine: EnginePort) -> EnginePort:
        """Return the engine as one whose requests are timed."""


@dataclass(frozen=True)
class ModelParts:
    """What a bundle's files say; makes engines and pipelines of it."""

    bundle: Bundle
    tokenizers: TokenizerPair
    shortlist: Shortlist | None
    known_words: KnownWords | None

    @classmethod
    def open(cls, folder: Path) -> "ModelParts":
        """Read a bundle. Raises BundleError for files or defaults that cannot be used."""
        bundle = open_bundle(folder)
        if problems := list(default_problems(bundle.manifest.generation)):
            raise BundleError(bundle.folder, problems)
        tokenizers = TokenizerPair.load(bundle)
        return cls(bundle, tokenizers, Shortlist.load(bundle), KnownWords.load(bundle))

    def engine(
        self,
        config: EngineConfig,
        graphs: Graphs | None = None,
        shared: SharedParts | None = None,
        job_size: JobSize = JobSize.COMMON,
    ) -> Engine:
        """Make an engine which never chooses, unasked, ids that the tokenizer has no text for.

        graphs: instead of the bundle's own.
        shared: what it has in common with others beside it.
        job_size: which jobs the engine serves.

        Raises BundleError or DeviceError.
        """
        textless_ids = self.tokenizers.target.textless_ids
        return Engine(self.bundle, config, graphs, textless_ids, shared, job_size)

    def any_engine(
        self,
        config: EngineConfig,
        graphs: Graphs | None = None,
        shared: SharedParts | None = None,
        job_size: JobSize = JobSize.COMMON,
    ) -> SteppedEngine:
        """Make the kind of engine that the bundle's task needs; arguments are those of `engine`."""
        if self.bundle.manifest.task.only_encodes:
            return EncodingEngine(self.bundle, config, graphs, shared, job_size)
        return self.engine(config, graphs, shared, job_size)

    def plan(self, config: EngineConfig, budget: CpuBudget) -> PlannedModel:
        """Choose the number of engines and of their threads. Raises as `engine`."""
        return plan_model(self.bundle, config, budget, self.any_engine)

    def engines(
        self, planned: PlannedModel, has_engine_for_small_jobs: bool = False
    ) -> list[SteppedEngine]:
        """Make the engines of a plan: they share graphs, one queue, and kept states.

        has_engine_for_small_jobs: add an engine that serves small jobs while there are large ones;
            not on a GPU, which has no memory for a second batch.
        """
        config = planned.config
        shared = SharedParts.create(self.bundle.manifest, config, planned.graphs)
        graphs = share_attention_graphs(planned.graphs)
        plan, lone_graphs = planned.plan, planned.lone_graphs
        sizes = [JobSize.COMMON] * plan.engines
        if has_engine_for_small_jobs and config.device == "cpu":
            sizes.append(JobSize.SMALL)

        def graphs_for(job_size: JobSize) -> Graphs:
            if lone_graphs is None or job_size is not JobSize.COMMON:
                return graphs
            most_engines = max(1, plan.num_threads // planned.lone_threads)
            lent_threads = LentThreads(plan.threads, planned.lone_threads, most_engines)
            return lend_threads(graphs, lone_graphs, lent_threads)

        return [self.any_engine(config, graphs_for(size), shared, size) for size in sizes]

    def pipeline(
        self,
        engine: EnginePort,
        max_segments: int | None = None,
        memories: Memories | None = None,
    ) -> Model:
        """Make the pipeline, which turns jobs into requests, and events into results.

        max_segments: sentences of one request; None is no limit.
        memories: the translation memories that jobs may use.
        """
        manifest = self.bundle.manifest
        if manifest.task.only_encodes:
            return EncodingPipeline(manifest, self.tokenizers.source, engine, max_segments)
        if manifest.serves is Task.GENERATE:
            return CompletionPipeline(manifest, self.tokenizers.target, engine)
        if manifest.task is Task.TRANSCRIBE:
            return TranscriptionPipeline(manifest, self.tokenizers.target, engine)
        return TranslationPipeline(
            manifest,
            self.tokenizers,
            engine,
            self.shortlist,
            max_segments,
            self.known_words,
            memories,
        )


@dataclass(frozen=True)
class LoadedModel:
    """A model's pipeline and its engine, which runs until it is shut down."""

    pipeline: Model
    engine: AsyncEngine


def load_model(
    folder: Path,
    config: EngineConfig,
    budget: CpuBudget | None = None,
    max_segments: int | None = None,
    recorder_for: Callable[[str], MetricsRecorder] | None = None,
    turns_of: TurnsOf | None = None,
    memories: Memories | None = None,
) -> LoadedModel:
    """Load a bundle and start its engines. Raises BundleError or DeviceError.

    budget: the CPUs they may use; by default one engine has the threads that `config` says.
    max_segments: sentences of one request; None is no limit.
    recorder_for: makes the recorder of a model from its name.
    turns_of: makes the turns of so many engines of so many threads, where they share a processor
        with others; small jobs then have an engine of their own.
    memories: the translation memories that jobs may use.
    """
    shorten_switch_interval()
    parts = ModelParts.open(folder)
    name = parts.bundle.manifest.name
    planned = parts.plan(config, budget or CpuBudget(config.threads, 1, config.threads))
    kernels = f"; native kernels: {native_kernels().description}"
    logger.info("%s: %s%s", name, planned, kernels if planned.config.device == "cpu" else "")
    recorder = recorder_for(name) if recorder_for else None
    engines = parts.engines(planned, has_engine_for_small_jobs=turns_of is not None)
    turns = _turns(engines, planned.plan.threads, turns_of) if turns_of else ()
    bridge = AsyncEngine(engines, recorder, turns)
    port: EnginePort = bridge
    if recorder is not None:
        recorder.on_stats(bridge.stats())
        port = recorder.record_requests(bridge)
    pipeline = parts.pipeline(port, max_segments, memories)
    fingerprint = fingerprint_of(parts.bundle.manifest, planned.config.device)
    plan = PlanCard.from_planned(planned)
    text = parts.bundle.card_text
    pipeline.card = replace(
        pipeline.card,
        plan=plan,
        fingerprint=fingerprint,
        text=text,
        licence=find_licence(text),
        origin=find_origin(text),
        size_bytes=parts.bundle.size_bytes,
    )
    bridge.start()
    return LoadedModel(pipeline, bridge)


def _turns(
    engines: Sequence[SteppedEngine], threads: int, turns_of: TurnsOf
) -> list[ProcessorTurns]:
    """Return the engines for each size of jobs turns on the processors."""
    turns: list[ProcessorTurns] = []
    for job_size in JobSize:
        num_engines = sum(engine.job_size is job_size for engine in engines)
        turns += turns_of(num_engines, threads, partial(engines[0].scheduler.weight, job_size))
    return turns


def fingerprint_of(manifest: Manifest, device: str) -> str:
    """Return the fingerprint of a bundle that runs here on a device.

    Other versions of ours and of ONNX Runtime, and processors with other instructions, round
    differently.
    """
    decisive = {
        "bundle": asdict(manifest),  # with the checksums of its files
        "code": code_checksum(Path(__file__).parents[1]),
        "onnxruntime": onnxruntime_version(),
        "device": device,
        "instructions": instruction_sets(),
        "kernels": native_kernels().description,
    }
    text = json.dumps(decisive, sort_keys=True, default=str)
    return f"fp_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@cache
def code_checksum(package: Path) -> str:
    """Return a checksum of a package's sources: any change of them may round differently."""
    checksum = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".cpp", ".h"):
            checksum.update(path.read_bytes())
    return checksum.hexdigest()


@asynccontextmanager
async def open_model(path: Path, config: EngineConfig) -> AsyncIterator[Catalog]:
    """Load one bundle as a catalog, and shut its engines down at the end. Raises BundleError
    or DeviceError.

    Its plan is the one measured when it was served on this machine, or the default: measuring would
    take longer than a few lines do.
    """
    loaded = load_model(path, config, CpuBudget(config.threads))
    try:
        yield Catalog([loaded.pipeline])
    finally:
        await loaded.engine.shutdown()
