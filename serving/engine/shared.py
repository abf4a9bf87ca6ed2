"""Holds what engines of one bundle have in common beside its graphs: who waits, and kept states."""

from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.engine.admission.desk import Desk
from serving.engine.config import EngineConfig
from serving.engine.graphs.graph import Graphs
from serving.engine.states.cache import StateCache


@dataclass(frozen=True)
class Shared:
    """desk: takes requests in for all of them. cache: of prompts or of sources, as the bundle has
    them; what one engine has computed, none has to compute again.
    """

    desk: Desk
    cache: StateCache

    @classmethod
    def of(cls, manifest: Manifest, config: EngineConfig, graphs: Graphs) -> "Shared":
        has_sources = "encode" in manifest.graphs
        max_bytes = config.encoder_cache_bytes if has_sources else config.prefix_cache_bytes
        slots = min(config.slots, graphs.max_rows or config.slots)
        return cls(Desk(manifest, config, slots), StateCache(max_bytes, graphs.memory))
