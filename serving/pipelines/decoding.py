"""Decoding options of a job: what a client asks, a model's recommended defaults, and the engine's
arguments that follow from both.

Option names are the fields' names in `serving.parameters`, as clients write them. What a client
gives wins over the `generation` of the manifest. Defaults that mean nothing beside it are left out:
beam search does not sample, and greedy decoding has nothing to filter. Only descriptions are sent
to other processes: a grammar is compiled by the process that decodes with it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from serving.errors import RequestError
from serving.options import Option, only_of, options_of, require_integer, require_positive
from serving.parameters import (
    FILTER_OPTIONS,
    GREEDY,
    MAX_BEAMS,
    MAX_SEED,
    NO_PROCESSORS,
    OPTIONS,
    BeamParams,
    ProcessorParams,
    SamplingParams,
    TokenIds,
)
from serving.text.plain_text import tokenizing
from serving.text.tokenizer import Tokenizer

StructureKind = Literal["json", "json_object", "regex", "choice", "grammar"]


@dataclass(frozen=True, slots=True)
class Structure:
    """Describes what an output must look like.

    value: a JSON schema, a regular expression, or a grammar in Lark's notation, as text; of a
        choice the texts to choose from.
    field: what the client calls it.
    """

    kind: StructureKind
    value: str | tuple[str, ...]
    field: str


@dataclass(frozen=True, slots=True)
class Decoding:
    """Describes how the tokens of a job are decided; see `GenerationRequest` for each field.

    processors: all but the bad words, which are texts here.
    share: on whose account the job is.
    traceparent: of the span of the request that the job is of; empty where none is kept.
    """

    sampling: SamplingParams = GREEDY
    beam: BeamParams | None = None
    processors: ProcessorParams = NO_PROCESSORS
    bad_words: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    structure: Structure | None = None
    max_new_tokens: int | None = None
    logprobs: int | None = None
    priority: int = 0
    timeout_seconds: float | None = None
    share: str = ""
    traceparent: str = ""


PLAIN = Decoding()


def request_arguments(decoding: Decoding, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the arguments that each `GenerationRequest` of a job has of its decoding.

    Sampling is not among them, as each request has its own seed, nor the limit of new tokens, of
    which each house has its own default. Raises RequestError for fields that contradict each other.
    """
    _check_consistency(decoding)
    return {
        "beam": decoding.beam,
        "processors": _processors(decoding, tokenizer),
        "stop_token_ids": decoding.stop_token_ids,
        "ignore_eos": decoding.ignore_eos,
        "logprobs": decoding.logprobs,
        "priority": decoding.priority,
        "timeout_seconds": decoding.timeout_seconds,
        "share": decoding.share,
    }


def sampling_with_own_seed(sampling: SamplingParams, number: int) -> SamplingParams:
    """Return the sampling of one request among several that share a job's seed.

    Each draws with a seed of its own, the job's plus its number, modulo 2**64: so they differ, and
    can be had again.
    """
    if sampling.seed is None or number == 0:
        return sampling
    return replace(sampling, seed=(sampling.seed + number) % (MAX_SEED + 1))


def word_spellings(tokenizer: Tokenizer, word: str) -> tuple[TokenIds, ...]:
    """Return the tokens of a word where a text begins, and after a space."""
    written = (word.lstrip(), " " + word.lstrip())
    return tuple(dict.fromkeys(tuple(tokenizer.encode_inside(text)) for text in written))


def _check_consistency(decoding: Decoding) -> None:
    if decoding.structure is not None and decoding.ignore_eos:
        raise RequestError("ignore_eos", True, f"has no end with {decoding.structure.field}")
    limit = decoding.max_new_tokens
    min_tokens = decoding.processors.min_tokens
    if limit is not None and min_tokens > limit:
        message = f"must be at most the {limit} tokens that may be generated"
        raise RequestError("min_tokens", min_tokens, message)


def _processors(decoding: Decoding, tokenizer: Tokenizer) -> ProcessorParams:
    with tokenizing("bad_words"):
        words = [ids for word in decoding.bad_words for ids in word_spellings(tokenizer, word)]
    return replace(decoding.processors, bad_words=tuple(words))


def _recommendable(options: Iterable[Option]) -> tuple[str, ...]:
    return tuple(option.name for option in options if option.is_recommendable)


FILTERS = _recommendable(FILTER_OPTIONS)


SAMPLING = _recommendable(options_of(SamplingParams))


BEAM = _recommendable(options_of(BeamParams))


MAX_NEW_TOKENS = "max_new_tokens"


MAX_LENGTH_FACTOR = "max_length_factor"


_MOST_TOKENS_A_TOKEN = 1000.0


_LIMITS = (MAX_NEW_TOKENS, "max_tokens", "max_completion_tokens")


def default_problems(generation: Mapping[str, Any]) -> Iterator[str]:
    """List what is wrong with a manifest's defaults."""
    known = {*_recommendable(OPTIONS.values()), MAX_NEW_TOKENS, MAX_LENGTH_FACTOR}
    yield from (f"generation.{name}: unknown" for name in generation if name not in known)
    for name, value in generation.items():
        try:
            _check_default(name, value)
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


def _check_default(name: str, value: Any) -> None:
    if name == MAX_NEW_TOKENS:
        require_integer(name, value, 1)
    elif name == MAX_LENGTH_FACTOR:
        require_positive(name, value, _MOST_TOKENS_A_TOKEN)
    elif name in OPTIONS:
        OPTIONS[name].check(value)
