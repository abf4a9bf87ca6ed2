"""Applies what a model's makers recommend for requests that do not say: the `generation` of its
manifest.

Names are those of our fields, as clients write them. What a client says wins, and with it go only
those defaults that mean something beside it: beam search draws nothing, and greedy decoding has
nothing to filter. The pipelines add what limits the length: `max_new_tokens`, cut to what fits,
and for a translation `max_length_factor` times the tokens of its source (Marian's option of that
name).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from serving.errors import RequestError
from serving.options import Option, only_of, options_of, require_integer, require_positive
from serving.parameters import (
    FILTER_OPTIONS,
    MAX_BEAMS,
    OPTIONS,
    BeamParams,
    ProcessorParams,
    SamplingParams,
)
from serving.pipelines.decoding import Decoding


def _recommendable(options: Iterable[Option]) -> tuple[str, ...]:
    return tuple(option.name for option in options if option.is_recommendable)


FILTERS = _recommendable(FILTER_OPTIONS)
SAMPLING = _recommendable(options_of(SamplingParams))
BEAM = _recommendable(options_of(BeamParams))
MAX_NEW_TOKENS = "max_new_tokens"
MAX_LENGTH_FACTOR = "max_length_factor"
_MOST_TOKENS_A_TOKEN = 1000.0
_LIMITS = (MAX_NEW_TOKENS, "max_tokens", "max_completion_tokens")


def problems(generation: Mapping[str, Any]) -> Iterator[str]:
    """List what is wrong with a manifest's defaults."""
    known = {*_recommendable(OPTIONS.values()), MAX_NEW_TOKENS, MAX_LENGTH_FACTOR}
    yield from (f"generation.{name}: unknown" for name in generation if name not in known)
    for name, value in generation.items():
        try:
            _check(name, value)
        except RequestError as error:
            yield f"generation.{error}"


def applicable(
    generation: Mapping[str, Any],
    given: Mapping[str, Any],
    searches: bool = False,
    fewest_beams: int = 1,
    temperature: float = 0.0,
) -> dict[str, Any]:
    """Take the defaults that hold beside what a client has given, by name.

    searches: the client asks for beam search, or for what needs it, with at least `fewest_beams`.
    temperature: where neither client nor model says.
    """
    left = {name: value for name, value in generation.items() if name not in given}
    left.pop(MAX_LENGTH_FACTOR, None)
    num_beams, most = left.pop("num_beams", 1), left.pop(MAX_NEW_TOKENS, None)
    samples = (given.get("temperature") or 0) > 0 or any(name in given for name in FILTERS)
    if num_beams > 1 and not samples and fewest_beams <= MAX_BEAMS:
        left["num_beams"] = max(num_beams, fewest_beams)
    if "min_tokens" in left:
        limits = (given[name] for name in _LIMITS if name in given)
        left["min_tokens"] = min(left["min_tokens"], *limits, most or left["min_tokens"])
    if searches or "num_beams" in left:
        return _without(left, SAMPLING)
    left = _without(left, BEAM)
    effective = {**left, **given}.get("temperature", temperature)
    return _without(left, FILTERS) if effective == 0 else left


def decoding_of(values: Mapping[str, Any], num_hypotheses: int = 1, **others: Any) -> Decoding:
    """Make a decoding of values by their names, in which any may be missing; others: its fields."""
    beam = only_of(BeamParams, values)
    return Decoding(
        SamplingParams(**only_of(SamplingParams, values)),
        BeamParams(**beam, num_hypotheses=num_hypotheses) if "num_beams" in beam else None,
        ProcessorParams(**only_of(ProcessorParams, values)),
        **others,
    )


def _without(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _check(name: str, value: Any) -> None:
    if name == MAX_NEW_TOKENS:
        require_integer(name, value, 1)
    elif name == MAX_LENGTH_FACTOR:
        require_positive(name, value, _MOST_TOKENS_A_TOKEN)
    elif name in OPTIONS:
        OPTIONS[name].check(value)
