"""Loads a bundle: its files, its engine and its pipeline are put together here and nowhere else.

The server's replicas, the commands that need no server and the bench all come through this file, so
that what is measured is what is served.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serving.bundle.manifest import Task
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.graphs.graph import Graphs
from serving.engine.measures import EngineObserver, EngineStats
from serving.errors import BundleError
from serving.pipelines.catalog import Model
from serving.pipelines.completion.pipeline import CompletionPipeline
from serving.pipelines.defaults import problems as default_problems
from serving.pipelines.engine_port import EnginePort
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.text.shortlist import Shortlist


class Meter(EngineObserver, Protocol):
    """Keeps the metrics of one model."""

    def on_stats(self, stats: EngineStats) -> None: ...

    def measured(self, engine: EnginePort) -> EnginePort:
        """Return the engine as one whose requests are timed."""


@dataclass(frozen=True)
class ModelParts:
    """Holds what a bundle's files say; makes engines and pipelines of it."""

    bundle: Bundle
    tokenizers: TokenizerPair
    shortlist: Shortlist | None

    @classmethod
    def open(cls, folder: Path) -> "ModelParts":
        """Read a bundle. Raises BundleError for files or defaults that cannot be used."""
        bundle = open_bundle(folder)
        if problems := list(default_problems(bundle.manifest.generation)):
            raise BundleError(bundle.folder, problems)
        return cls(bundle, TokenizerPair.load(bundle), Shortlist.load(bundle))

    def engine(self, config: EngineConfig, graphs: Graphs | None = None) -> Engine:
        """Make an engine which never chooses, unasked, ids that the tokenizer has no text for.

        graphs: instead of the bundle's own.

        Raises BundleError or DeviceError.
        """
        return Engine(self.bundle, config, graphs, self.tokenizers.target.textless_ids)

    def pipeline(self, engine: EnginePort, max_segments: int | None = None) -> Model:
        """Make what turns jobs into the engine's requests, and its events into answers.

        max_segments: sentences of one request; None is no limit.
        """
        manifest = self.bundle.manifest
        if manifest.task is Task.GENERATE:
            return CompletionPipeline(manifest, self.tokenizers.target, engine)
        return TranslationPipeline(manifest, self.tokenizers, engine, self.shortlist, max_segments)


@dataclass(frozen=True)
class LoadedModel:
    """Holds a model that answers, and the engine it asks, which runs until it is shut down."""

    pipeline: Model
    engine: AsyncEngine


def load_model(
    folder: Path,
    config: EngineConfig,
    max_segments: int | None = None,
    meter_of: Callable[[str], Meter] | None = None,
    turns: AbstractContextManager[None] | None = None,
) -> LoadedModel:
    """Load a bundle and start its engine. Raises BundleError or DeviceError.

    max_segments: sentences of one request; None is no limit.
    meter_of: makes the meter of a model from its name.
    turns: entered around every step, where engines share a processor.
    """
    parts = ModelParts.open(folder)
    engine = parts.engine(config)
    meter = meter_of(parts.bundle.manifest.name) if meter_of else None
    bridge = AsyncEngine(engine, meter, turns)
    port: EnginePort = bridge
    if meter is not None:
        meter.on_stats(engine.stats())
        port = meter.measured(bridge)
    pipeline = parts.pipeline(port, max_segments)
    bridge.start()
    return LoadedModel(pipeline, bridge)
