"""Same request, same bytes in any company: with other neighbours, in another place of a batch of
one size. Of other sizes a GPU adds up in another order; how often that shows is told, too.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from serving.bundle.manifest import Task
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import SamplingParams
from serving.requests.request import GenerationRequest, is_final
from tests.gpu.bundles import HALVES, tiny
from tests.gpu.findings import Finding, none_of
from tests.gpu.parts import Place
from tests.serving.engine.driving import Story, record_events
from tests.tiny import DECODERS

NEW_TOKENS = 14
ASKS: dict[str, dict[str, Any]] = {
    "greedy": {"logprobs": 5},
    "drawn": {"sampling": SamplingParams(temperature=1.0, seed=5)},
    "filtered": {"sampling": SamplingParams(temperature=0.8, top_k=30, top_p=0.9, seed=6)},
    "long": {"logprobs": 2},
}


def find(place: Place) -> Iterator[Finding]:
    families = ["transformer", "recurrent-lm"] if place.is_tiny else [*DECODERS]
    for precision in HALVES[place.device]:
        for family in families:
            bundle = tiny(family, {}, precision, place.folder / f"{family}-{precision}")
            yield from _of_bundle(place, bundle, f"{family} {precision}")


def _of_bundle(place: Place, bundle: Bundle, name: str) -> Iterator[Finding]:
    engine = Engine(bundle, EngineConfig(slots=16, device=place.device))
    engine.warm_up()
    others = [list(fillers(bundle, start)) for start in (0, 500)]
    changed, alone_too = [], 0
    for request in asked(bundle):
        first = said(engine, [request, *others[0]], request)
        second = said(engine, [*others[1][:9], request, *others[1][9:]], request)
        if first != second:
            changed.append(request.request_id)
        alone_too += said(engine, [request], request) == first
    yield none_of(f"{name}: requests that others changed", changed, f"of {len(ASKS)}")
    yield Finding(f"{name}: the same alone", alone_too, f"of {len(ASKS)}")


def said(
    engine: Engine, requests: Sequence[GenerationRequest], wanted: GenerationRequest
) -> list[tuple[object, ...]]:
    """Everything that one of them said, bit for bit; the others outlive it."""
    stories: dict[str, Story] = {}
    engine.submit(*requests)
    while wanted.request_id not in stories or stories[wanted.request_id].final is None:
        record_events(stories, engine.step())
    engine.cancel_all()
    while engine.has_work:
        assert all(is_final(event) for event in engine.step())
    return [*stories[wanted.request_id].tokens.iter_tokens()]


def asked(bundle: Bundle) -> Iterator[GenerationRequest]:
    for number, (name, ask) in enumerate(ASKS.items()):
        yield GenerationRequest(
            name,
            **_given(bundle, 40 + number, 3 + 5 * number),
            max_new_tokens=NEW_TOKENS,
            ignore_eos=True,
            **ask,
        )


def fillers(bundle: Bundle, start: int) -> Iterator[GenerationRequest]:
    """Fifteen, of other lengths in every company; the longest source is as long in each."""
    for number in range(15):
        length = 30 if number == 0 else 1 + (start + 11 * number) % 29
        yield GenerationRequest(
            f"other {start + number}",
            **_given(bundle, start + number, length),
            max_new_tokens=NEW_TOKENS + 3,
            ignore_eos=True,
        )


def _given(bundle: Bundle, seed: int, length: int) -> dict[str, Any]:
    name = "source_ids" if bundle.manifest.task is Task.TRANSLATE else "prompt_ids"
    return {name: tuple(3 + (13 * seed + i * i) % 250 for i in range(length))}
