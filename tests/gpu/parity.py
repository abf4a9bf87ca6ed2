"""Half precision on the device against fp32 on the CPU, the same random weights in both.

Where greedy outputs part, both tokens must have been about equally likely in fp32: then rounding
decided, and nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.bundle.manifest import Precision, Task
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.request import MAX_LOGPROBS, FinishedEvent, GenerationRequest, TokenLogprob
from tests.gpu.bundles import HALVES, tiny
from tests.gpu.findings import Aim, Finding
from tests.gpu.parts import Place
from tests.serving.engine.driving import Story, run_all
from tests.tiny import DECODERS

LARGEST_ERROR = {"fp16": 0.02, "bf16": 0.15}  # in nats
NEW_TOKENS = 16


def find(place: Place) -> Iterator[Finding]:
    num_outputs, families = (8, ["llama", "bahdanau"]) if place.is_tiny else (200, [*DECODERS])
    for family in families:
        reference = tiny(family, {}, Precision.FP32, place.folder / family)
        scored, outputs = forced(reference, num_outputs // 4), greedy(reference, num_outputs)
        engine = Engine(reference, EngineConfig(slots=64))
        theirs = run_all(engine, [*scored, *outputs])
        for precision in HALVES[place.device]:
            bundle = tiny(family, {}, precision, place.folder / family)
            engine = Engine(bundle, EngineConfig(slots=64, device=place.device))
            engine.warm_up()
            ours = run_all(engine, [*scored, *outputs])
            aim = LARGEST_ERROR[precision]
            yield from compare(f"{family} {precision}", scored, outputs, ours, theirs, aim)


def compare(
    name: str,
    scored: Sequence[GenerationRequest],
    outputs: Sequence[GenerationRequest],
    ours: dict[str, Story],
    theirs: dict[str, Story],
    largest_error: float,
) -> Iterator[Finding]:
    error = max(_error(ours[r.request_id], theirs[r.request_id]) for r in scored)
    yield Finding(
        f"{name}: log-probabilities of given tokens",
        error,
        "nats apart at most",
        Aim("at most", largest_error),
        f"{sum(len(theirs[r.request_id].tokens) for r in scored)} tokens",
    )
    partings = [p for r in outputs if (p := parting(ours[r.request_id], theirs[r.request_id]))]
    wrong = [each for each in partings if each.margin > 2 * largest_error]
    yield Finding(
        f"{name}: greedy outputs that part where tokens were not about equally likely",
        len(wrong),
        f"of {len(outputs)}",
        Aim("at most", 0),
        f"{len(partings)} part at all",
    )


@dataclass(frozen=True)
class Parting:
    """Where two outputs differ for the first time. margin: by how much fp32 preferred its own."""

    position: int
    margin: float


def parting(ours: Story, theirs: Story) -> Parting | None:
    pairs = zip(ours.token_ids, theirs.tokens.iter_tokens(), strict=False)
    for position, (our, (their, logprob, top)) in enumerate(pairs):
        if our != their:
            return Parting(position, logprob - _logprob_of(our, top))
    return None if len(ours.token_ids) == len(theirs.token_ids) else _early_end(ours, theirs)


def _early_end(ours: Story, theirs: Story) -> Parting | None:
    """One of them ended where the other went on."""
    position = min(len(ours.token_ids), len(theirs.token_ids))
    longer, shorter = (ours, theirs) if len(ours.token_ids) > position else (theirs, ours)
    final = shorter.final
    stop = final.best.stop_logprob if isinstance(final, FinishedEvent) else None
    if stop is None:
        return Parting(position, float("inf"))
    return Parting(position, abs(stop - longer.tokens.logprobs[position]))


def _logprob_of(token_id: int, top: Iterable[TokenLogprob]) -> float:
    """Look up what fp32 gave a token; one that is not among its likeliest is no near tie."""
    return next((t.logprob for t in top if t.token_id == token_id), -float("inf"))


def _error(ours: Story, theirs: Story) -> float:
    assert ours.token_ids == theirs.token_ids, (ours.final, theirs.final)
    return float(np.abs(np.subtract(ours.tokens.logprobs, theirs.tokens.logprobs)).max())


def forced(bundle: Bundle, count: int) -> list[GenerationRequest]:
    """Targets that are given, and scored."""
    requests = []
    for number in range(count):
        target = tuple(_ids(number + 10_000, 12, bundle))
        options: dict[str, Any] = {"forced_ids": target, "max_new_tokens": 0}
        requests.append(GenerationRequest(f"forced {number}", **_given(number, bundle), **options))
    return requests


def greedy(bundle: Bundle, count: int) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            f"greedy {number}",
            **_given(number, bundle),
            max_new_tokens=NEW_TOKENS,
            logprobs=MAX_LOGPROBS,
        )
        for number in range(count)
    ]


def _given(number: int, bundle: Bundle) -> dict[str, Any]:
    """A source, or a prompt, of any length that fits."""
    name = "source_ids" if bundle.manifest.task is Task.TRANSLATE else "prompt_ids"
    return {name: tuple(_ids(number, 1 + (7 * number) % 30, bundle))}


def _ids(seed: int, length: int, bundle: Bundle) -> list[int]:
    random = np.random.default_rng(seed)
    found: list[int] = random.integers(3, bundle.manifest.vocab_size, length).tolist()
    return found
