"""Language models against what memory allows: a step cannot be shorter than reading the weights
and every row's keys and values once takes at the bandwidth that a copy reaches.
"""

from collections.abc import Iterator

import torch

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle
from serving.engine.states.store import row_bytes
from tests.gpu.bundles import bundle_of
from tests.gpu.figures.clock import seconds_of
from tests.gpu.figures.engine_speed import new_engine, speed
from tests.gpu.figures.shapes import Shape, shape_at
from tests.gpu.findings import Aim, Finding
from tests.gpu.parts import Place

BATCHES = [1, 32]
COPY_BYTES = 2**31


def find(place: Place) -> Iterator[Finding]:
    bandwidth = copy_bandwidth(place)
    yield Finding("Bandwidth of a copy, read and written", bandwidth / 1e9, "GB/s")
    shape = shape_at(place)
    bundle = bundle_of(shape.architecture, shape.sizes, Precision.FP16, place.folder)
    engine = new_engine(place, bundle, max(BATCHES), shape.source)
    for batch in BATCHES:
        result = speed(engine, bundle, shape, batch)
        name = f"{shape.name}, batch {batch}"
        yield Finding(f"{name}: engine", result.tokens_per_second, "tokens/s", None, result.line)
        least = bytes_of_step(bundle, shape, batch) / bandwidth
        reached = least / (result.step_ms["p50"] / 1e3)
        note = f"{least * 1e3:.3f} ms of a step of {result.step_ms['p50']:.3f}"
        aim = Aim("at least", 0.45)
        yield Finding(f"{name}: part of the bandwidth reached", reached, "", aim, note)


def bytes_of_step(bundle: Bundle, shape: Shape, batch: int) -> float:
    """Weights, each once (embeddings are tied here: to project reads all of the table), and keys
    and values at half of the output.
    """
    weights = 2 * num_weights(shape)
    length = shape.source + shape.target / 2
    return weights + batch * length * row_bytes(bundle.manifest.states).per_target_token


def num_weights(shape: Shape) -> int:
    """Count those of the embeddings and of the layers' matrices; vectors are left out."""
    sizes = shape.sizes
    width, heads = sizes["d_model"], sizes["num_heads"]
    head = sizes.get("head_dim", width // heads)
    attention = 2 * width * head * (heads + sizes["num_kv_heads"])
    feed_forward = 3 * width * sizes["ffn_dim"]
    layers: int = sizes["num_layers"] * (attention + feed_forward)
    return layers + int(sizes["vocab_size"]) * int(width)


def copy_bandwidth(place: Place) -> float:
    """Bytes a second that a copy inside the device reads and writes."""
    num_bytes = COPY_BYTES // 64 if place.is_tiny else COPY_BYTES
    source = torch.zeros(num_bytes, dtype=torch.uint8, device=place.device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds_of(lambda: target.copy_(source), repeats=5)
