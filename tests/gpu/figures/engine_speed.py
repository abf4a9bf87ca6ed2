"""How fast the bare engine is: so many requests of one length, always in flight."""

from collections.abc import Iterator

import numpy as np

from loadtest.bench.closed_loop import Result, run_closed_loop
from serving.bundle.manifest import Task
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import GenerationRequest
from tests.gpu.figures.shapes import Shape
from tests.gpu.parts import Place

SMALLEST_ENCODE = 1024


def new_engine(place: Place, bundle: Bundle, slots: int, source: int) -> Engine:
    """Caches are off: requests repeat themselves here, those of users do not. It is warm for the
    thread that calls this.
    """
    config = EngineConfig(
        slots,
        device=place.device,
        max_encode_tokens=max(SMALLEST_ENCODE, slots * source),
        prefix_cache_bytes=0,
        encoder_cache_bytes=0,
    )
    engine = Engine(bundle, config)
    engine.warm_up()
    return engine


def speed(engine: Engine, bundle: Bundle, shape: Shape, batch: int, waves: int = 3) -> Result:
    """Greedy, `waves` times the batch after one for warmth, every output as long as the shape's."""
    run_closed_loop(engine, list(requests(bundle, shape, batch)), batch)
    return run_closed_loop(engine, list(requests(bundle, shape, waves * batch)), batch)


def requests(bundle: Bundle, shape: Shape, count: int) -> Iterator[GenerationRequest]:
    random = np.random.default_rng(count)
    name = "source_ids" if bundle.manifest.task is Task.TRANSLATE else "prompt_ids"
    for number in range(count):
        ids = tuple(random.integers(3, 250, shape.source).tolist())
        given = {name: ids}
        yield GenerationRequest(
            str(number),
            **given,  # type: ignore[arg-type]
            max_new_tokens=shape.target,
            ignore_eos=True,
        )
