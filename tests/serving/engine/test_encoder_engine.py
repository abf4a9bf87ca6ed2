"""An engine that only encodes gives each request one final event, and each row its own bits."""

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.cuda.device_graph import Mirror, MirroredGraph
from serving.engine.encoder_engine import EncodingEngine
from serving.engine.runtime.graph import NO_STEP, Graphs
from serving.engine.runtime.session import open_graphs
from serving.engine.states.memory import HostMemory
from serving.errors import DeadlineExceeded, DeviceError, EngineError, Overloaded, RequestError
from serving.requests.parameters import BeamParams
from serving.requests.request import (
    AbortedEvent,
    AttentionQuery,
    Event,
    FailedEvent,
    FinishedEvent,
    GenerationRequest,
)
from tests.devices.fake_cuda import FakeDeviceGraph, fake_memory
from tests.encoders import CLS, MASK, encoder_bundle
from tests.serving.engine.toy import ToyGraph
from tests.tiny import tiny_bundle

CONFIG = EngineConfig(slots=16, threads=1, max_encode_tokens=128)
LENGTHS = (3, 40, 3, 17, 64, 5, 4, 29, 61, 1, 16, 12)


@pytest.fixture(scope="module", params=[Precision.FP32, Precision.INT8])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return open_bundle(encoder_bundle("embedder", tmp_path_factory.mktemp("b"), request.param))


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return open_bundle(encoder_bundle("embedder", tmp_path_factory.mktemp("e")))


def source(length: int, shift: int = 0) -> tuple[int, ...]:
    return tuple(3 + (7 * length + 5 * place + shift) % 250 for place in range(length))


def request_for(number: int, length: int, **options: object) -> GenerationRequest:
    return GenerationRequest(f"r{number}", source(length), **options)  # type: ignore[arg-type]


def run(engine: EncodingEngine, requests: Iterable[GenerationRequest]) -> dict[str, Event]:
    """Return the one event of each request."""
    engine.submit(*requests)
    events: dict[str, Event] = {}
    while engine.has_work:
        for event in engine.step():
            assert event.request_id not in events
            events[event.request_id] = event
    return events


def vector_of(event: Event) -> bytes:
    assert isinstance(event, FinishedEvent) and event.encoding is not None
    return b"".join(array.tobytes() for array in event.encoding.values())


def test_company_changes_no_bit_of_a_row(bundle: Bundle) -> None:
    engine = EncodingEngine(bundle, CONFIG)
    requests = [
        request_for(number, length, pair_start=length // 2 if length % 2 and length > 1 else None)
        for number, length in enumerate(LENGTHS)
    ]
    together = run(engine, requests)
    backwards = run(EncodingEngine(bundle, replace(CONFIG, max_encode_tokens=40)), requests[::-1])
    for request in requests:
        alone = vector_of(run(engine, [request])[request.request_id])
        assert vector_of(together[request.request_id]) == alone
        assert vector_of(backwards[request.request_id]) == alone
    assert len({vector_of(event) for event in together.values()}) == len({*LENGTHS})


@pytest.mark.parametrize("kind", ["tagger", "masked"])
def test_outputs_of_tokens_are_the_same_in_company(kind: str, tmp_path: Path) -> None:
    engine = EncodingEngine(open_bundle(encoder_bundle(kind, tmp_path)), CONFIG)
    first = MASK if kind == "masked" else CLS
    sources = [(first, *source(length - 1)) for length in LENGTHS]
    requests = [
        GenerationRequest(f"r{number}", source_ids) for number, source_ids in enumerate(sources)
    ]
    together = run(engine, requests)
    for request in requests:
        event = together[request.request_id]
        assert vector_of(event) == vector_of(run(engine, [request])[request.request_id])
        assert isinstance(event, FinishedEvent) and event.encoding is not None
        assert {len(array) for array in event.encoding.values()} == {len(request.source_ids or ())}


def test_attention_queries_change_no_vector(bundle: Bundle) -> None:
    plain = [request_for(number, length, pair_start=1) for number, length in enumerate((9, 17, 12))]
    every, one = AttentionQuery("encoder"), AttentionQuery("encoder", layers=(1,), heads=(2,))
    querying = [plain[0], replace(plain[1], attention_queries=(every, one)), plain[2]]
    expected, actual = (
        run(EncodingEngine(bundle, CONFIG), requests) for requests in (plain, querying)
    )
    for name, event in actual.items():
        assert vector_of(event) == vector_of(expected[name])
        assert isinstance(event, FinishedEvent) and bool(event.attention_pieces) == (name == "r1")
    last = actual["r1"]
    assert isinstance(last, FinishedEvent)
    [whole], [part] = last.attention_pieces
    assert whole.shape == (2, 4, 17, 17) and np.allclose(whole.sum(-1), 1, atol=1e-5)
    assert np.array_equal(part, whole[1:, 2:3])
    other = replace(querying[1], pair_start=5)
    again = run(EncodingEngine(bundle, CONFIG), [other])["r1"]
    assert isinstance(again, FinishedEvent) and again.attention_pieces
    assert np.abs(again.attention_pieces[0][0] - whole).max() > 1e-4, "segments count"


def test_attention_of_hops_is_reported(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("self-attentive", tmp_path, Precision.FP32))
    request = request_for(0, 7, attention_queries=(AttentionQuery("hops"),))
    event = run(EncodingEngine(bundle, CONFIG), [request, request_for(1, 12)])["r0"]
    assert isinstance(event, FinishedEvent) and event.attention_pieces
    [[hops]] = event.attention_pieces
    assert hops.shape == (1, 1, 3, 7) and np.allclose(hops.sum(-1), 1, atol=1e-5)


def test_queries_that_a_model_cannot_answer_are_refused(embedder: Bundle) -> None:
    engine = EncodingEngine(embedder, CONFIG)
    for query in (
        AttentionQuery("hops"),
        AttentionQuery("cross"),
        AttentionQuery("encoder", layers=(2,)),
    ):
        with pytest.raises(RequestError, match=r"it has encoder|from 0 to 1"):
            engine.submit(request_for(0, 5, attention_queries=(query,)))


def test_the_second_text_of_a_pair_is_told_apart(embedder: Bundle) -> None:
    engine = EncodingEngine(embedder, CONFIG)
    events = run(
        engine,
        [request_for(0, 9), request_for(1, 9, pair_start=3), request_for(2, 9, pair_start=5)],
    )
    assert len({vector_of(event) for event in events.values()}) == 3


def test_what_is_told_of_a_request(embedder: Bundle) -> None:
    engine = EncodingEngine(embedder, CONFIG)
    event = run(engine, [request_for(0, 9)])["r0"]
    assert isinstance(event, FinishedEvent) and event.encoding is not None
    vector = event.encoding["embedding"]
    assert vector.shape == (32,) and vector.dtype == np.float32
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
    assert (event.num_source_tokens, event.num_prompt_tokens) == (9, 0)
    assert event.num_generated_tokens == 0
    assert event.prefill_seconds > 0 and event.queue_seconds >= 0


def test_a_step_encodes_what_its_budget_allows(embedder: Bundle) -> None:
    engine = EncodingEngine(embedder, CONFIG)
    engine.submit(*(request_for(number, 30) for number in range(9)))
    assert len(engine.step()) == 4  # of 32 padded tokens each
    assert engine.step_stats.num_source_tokens == 120
    assert engine.step_stats.num_padded_tokens == 128
    assert engine.stats().num_waiting == 5
    engine.submit(*(request_for(number, 1) for number in range(20, 60)))
    assert max(len(engine.step()) for _ in range(5)) <= CONFIG.slots
    assert engine.stats().kv_bytes == engine.stats().num_rows == 0


def test_the_urgent_come_first(embedder: Bundle) -> None:
    engine = EncodingEngine(embedder, replace(CONFIG, slots=1))
    engine.submit(request_for(0, 5), request_for(1, 5, priority=1), request_for(2, 5, priority=-1))
    order = [event.request_id for _ in range(3) for event in engine.step()]
    assert order == ["r2", "r0", "r1"]


def test_who_waits_can_be_cancelled_and_can_expire(embedder: Bundle) -> None:
    engine = EncodingEngine(embedder, replace(CONFIG, slots=1))
    engine.submit(request_for(0, 5), request_for(1, 5), request_for(2, 5, timeout_seconds=0.001))
    engine.cancel("r1")
    engine.cancel("nobody")
    time.sleep(0.002)
    events = {event.request_id: event for event in engine.step()}
    assert isinstance(events["r0"], FinishedEvent) and isinstance(events["r1"], AbortedEvent)
    expired = events["r2"]
    assert isinstance(expired, FailedEvent) and isinstance(expired.error, DeadlineExceeded)
    assert engine.step_stats.num_expired == 1 and not engine.has_work
    engine.submit(request_for(1, 5))  # names can be used again
    engine.cancel_all()
    assert [type(event) for event in engine.step()] == [AbortedEvent]


def test_too_many_who_wait_are_refused(embedder: Bundle) -> None:
    engine = EncodingEngine(embedder, replace(CONFIG, slots=1, max_waiting=2))
    engine.submit(request_for(0, 5), request_for(1, 5), request_for(2, 5))
    with pytest.raises(Overloaded):
        engine.submit(request_for(3, 5))
    assert len({event.request_id for _ in range(3) for event in engine.step()}) == 3


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"source_ids": None}, "source_ids"),
        ({"source_ids": ()}, "source_ids"),
        ({"source_ids": source(65)}, "source_ids"),
        ({"source_ids": (259,)}, "source_ids"),
        ({"prompt_ids": (3,)}, "prompt_ids"),
        ({"beam": BeamParams(num_beams=2)}, "prompt_ids"),
        ({"pair_start": 5}, "pair_start"),
        ({"pair_start": 0}, "pair_start"),
    ],
)
def test_what_it_does_not_do_is_refused(
    embedder: Bundle, changes: dict[str, object], field: str
) -> None:
    engine = EncodingEngine(embedder, CONFIG)
    with pytest.raises(RequestError) as caught:
        engine.submit(replace(request_for(0, 5), **changes))  # type: ignore[arg-type]
    assert caught.value.field == field and not engine.has_work


def test_a_device_gives_what_the_host_gives(embedder: Bundle) -> None:
    library, memory = fake_memory()
    on_host = open_graphs(embedder, CONFIG)
    assert on_host.encode is not None
    fake = FakeDeviceGraph(library, on_host.encode, host_inputs=frozenset({"source_lengths"}))
    graphs = Graphs(NO_STEP, MirroredGraph(fake, Mirror(memory)), memory)
    engine = EncodingEngine(embedder, replace(CONFIG, device="cuda"), graphs)
    engine.warm_up()
    requests = [request_for(number, length) for number, length in enumerate(LENGTHS)]
    expected = run(EncodingEngine(embedder, CONFIG, on_host), requests)
    for name, event in run(engine, requests).items():
        assert vector_of(event) == vector_of(expected[name])


def test_a_failure_ends_its_group_and_no_other(embedder: Bundle) -> None:
    error: Exception = ValueError("poison")

    def encode(inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
        if (inputs["source_lengths"] == 40).any():
            raise error
        outputs["embedding"][...] = inputs["source_lengths"][:, None]

    graphs = Graphs(NO_STEP, ToyGraph(encode), HostMemory())
    engine = EncodingEngine(embedder, CONFIG, graphs)
    events = run(engine, [request_for(0, 5), request_for(1, 40), request_for(2, 6)])
    failed = events["r1"]
    assert isinstance(failed, FailedEvent) and isinstance(failed.error, EngineError)
    for number, length in ((0, 5), (2, 6)):
        assert np.frombuffer(vector_of(events[f"r{number}"]), np.float32).tolist() == [length] * 32
    error = DeviceError("the GPU is gone")
    engine.submit(request_for(3, 40))
    with pytest.raises(DeviceError):
        engine.step()
