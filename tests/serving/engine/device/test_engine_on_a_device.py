"""An engine over device memory says what it says over the host's. The device is a fake one, which
does nothing before somebody waits for it.
"""


import pytest

from serving.engine.config import EngineConfig
from serving.engine.device.mirror import Mirror, MirroredGraph
from serving.engine.engine import Engine
from serving.engine.graphs.graph import Graph, Graphs
from serving.engine.states.grid import Coarse
from serving.parameters import BeamParams
from serving.request import FinishedEvent, GenerationRequest
from tests.fake_cuda import FakeCuda, FakeDeviceGraph, fake_memory
from tests.serving.engine.driving import run_all
from tests.serving.engine.toy import Script, toy_bundle, toy_graphs


def graphs_on_a_device(
    has_encoder: bool, script: Script | None = None, records: bool = True
) -> tuple[FakeCuda, Graphs]:
    library, memory = fake_memory()
    mirror = Mirror(memory)

    def put(graph: Graph) -> MirroredGraph:
        return MirroredGraph(FakeDeviceGraph(library, graph), mirror)

    graphs = toy_graphs(script, has_encoder)
    step = put(graphs.step)
    encode = put(graphs.encode) if graphs.encode else None
    recording = step if records else None
    return library, Graphs(step, encode, memory, None, Coarse(), recording)


def requests(has_encoder: bool) -> list[GenerationRequest]:
    """With known sources and prefixes among them."""
    sources = [(3 + i % 7, 9) * (1 + i % 7) for i in range(20)]
    return [
        GenerationRequest(
            str(i),
            source if has_encoder else None,
            (5, 6, 7) * (1 + i % 5) + (i,),
            beam=BeamParams(3) if i % 4 == 0 else None,
        )
        for i, source in enumerate(sources)
    ]


CONFIG = EngineConfig(
    slots=7,
    threads=1,
    device="cuda",
    max_step_tokens=16,
    prefill_chunk=4,
    prefix_cache_bytes=2**12,
    encoder_cache_bytes=2**12,
)


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("has_encoder", [True, False])
def test_an_engine_says_the_same_over_device_memory(has_encoder: bool, is_warm: bool) -> None:
    bundle = toy_bundle(has_encoder)
    config = EngineConfig(slots=7, threads=1)
    on_host = run_all(Engine(bundle, config, toy_graphs(None, has_encoder)), requests(has_encoder))
    _, graphs = graphs_on_a_device(has_encoder)
    engine = Engine(bundle, CONFIG, graphs)
    if is_warm:
        engine.warm_up()
    on_device = run_all(engine, requests(has_encoder))
    assert all(isinstance(story.final, FinishedEvent) for story in on_device.values())
    assert on_device == on_host
