"""Says for how many rows a device has memory.

What states take is known from the manifest; weights lie on the device already. The rest of an
engine's share stays free for what graphs compute between their inputs and outputs.
"""

from dataclasses import dataclass

from serving.bundle.manifest import Manifest
from serving.engine.config import EngineConfig
from serving.engine.device.runtime import mebibytes
from serving.engine.states.append import SLACK
from serving.engine.states.store import max_span, row_bytes
from serving.errors import DeviceError

NUM_SIDES = 2  # buffers of states with a source axis
LEAST_RESERVE, RESERVED_PART = 512 * 2**20, 0.1  # for what graphs compute, and their recordings


@dataclass(frozen=True)
class DeviceBytes:
    """Counts bytes of a device: those that are free, and those of what an engine may have of it,
    less its weights.
    """

    free: int
    own: int


def rows_that_fit(manifest: Manifest, config: EngineConfig, memory: DeviceBytes) -> int:
    """Count the rows there is memory for. Raises DeviceError where there is not even one."""
    room = min(memory.free, memory.own)
    room -= max(LEAST_RESERVE, int(room * RESERVED_PART))
    room -= _bytes_of_all(manifest, config)
    size = bytes_of_row(manifest)
    if room < size:
        wanted = size + min(memory.free, memory.own) - room
        raise DeviceError(
            f"too little memory on the GPU: {manifest.name} wants {mebibytes(wanted)} beside its "
            f"weights for one row, {mebibytes(min(memory.free, memory.own))} are there; give it a "
            "larger share (gpus_per_replica), smaller caches, or a GPU with more memory"
        )
    return room // size


def bytes_of_row(manifest: Manifest) -> int:
    """Count what a row takes: its states in all their buffers, and its scores."""
    size = row_bytes(manifest.states)
    target_tokens = manifest.limits.max_target_tokens + SLACK
    source_tokens = NUM_SIDES * max_span(manifest) if size.per_source_token else 0
    scores = 4 * manifest.vocab_size + 12 * manifest.window
    states = 2 * size.fixed + target_tokens * size.per_target_token
    return states + source_tokens * size.per_source_token + scores


def _bytes_of_all(manifest: Manifest, config: EngineConfig) -> int:
    """Count what is there once: staging rows, what is encoded at once, a cache."""
    size = row_bytes(manifest.states)
    if "encode" in manifest.graphs:
        tokens = max(max_span(manifest), config.max_encode_tokens)
        return tokens * size.per_source_token + config.encoder_cache_bytes
    return 2 * bytes_of_row(manifest) + config.prefix_cache_bytes
