"""Recurrent decoders against the same modules in torch, in bf16, all steps of a batch captured as
one CUDA graph: then nothing of Python is left in the peer.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from models.architectures.registry import parse_config
from models.contract import S, TranslationModel
from models.loading import build
from serving.bundle.manifest import Precision
from tests.gpu.bundles import bundle_of
from tests.gpu.figures.clock import seconds_of
from tests.gpu.figures.engine_speed import new_engine, speed
from tests.gpu.figures.shapes import Shape, shape_at
from tests.gpu.findings import Aim, Finding
from tests.gpu.parts import Place

BATCH = 256


def find(place: Place) -> Iterator[Finding]:
    shape, batch = shape_at(place), 4 if place.is_tiny else BATCH
    ours = _engine(place, shape, batch)
    yield Finding(f"{shape.name}, batch {batch}: engine", ours, "tokens/s")
    theirs = batch * shape.target / _torch_seconds(place, shape, batch)
    aim, note = Aim("at least", 3.0), f"{theirs:,.0f} tokens/s"
    yield Finding(f"{shape.name}, batch {batch}: engine over torch", ours / theirs, "", aim, note)


def _engine(place: Place, shape: Shape, batch: int) -> float:
    bundle = bundle_of(shape.architecture, shape.sizes, Precision.FP16, place.folder)
    engine = new_engine(place, bundle, batch, shape.source)
    return speed(engine, bundle, shape, batch).tokens_per_second


@torch.inference_mode()
def _torch_seconds(place: Place, shape: Shape, batch: int) -> float:
    """Time a batch from its sources to its last tokens."""
    config = parse_config({"architecture": shape.architecture, **shape.sizes})
    module = build(config).to(place.device, torch.bfloat16).eval()
    source = torch.randint(3, config.vocab_size, (batch, shape.source), device=place.device)
    lengths = torch.full((batch,), shape.source, device=place.device)
    first = torch.ones_like(lengths)  # <s>
    decode = _decoder(module, module.encode(source, lengths), first, shape.target)
    if place.device == "cuda":
        decode = _captured(decode)

    def translate() -> None:
        module.encode(source, lengths)
        decode()

    return seconds_of(translate)


def _decoder(
    module: TranslationModel[S], state: S, first: Tensor, num_tokens: int
) -> Callable[[], Tensor]:
    """Decodes greedily from one state, which stays as it is."""

    def decode() -> Tensor:
        ids, current, found = first, state, []
        for _ in range(num_tokens):
            hidden, current = module.step(ids, current)
            ids = module.project(hidden).argmax(-1)
            found.append(ids)
        return torch.stack(found, 1)

    return decode


def _captured(work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay
