"""The interface of the engine, and decoding options: those of a job, those that a model recommends,
and the arguments of engine requests that follow from both.

Option names are the fields' names in `serving.requests.parameters`, as clients write them. The
recommended defaults are the `generation` of the manifest. Only descriptions are sent to other
processes: a grammar is compiled by the process that decodes with it.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, Protocol

from serving.errors import DeadlineExceeded, EngineError, EngineStopped, OutOfMemory, RequestError
from serving.requests.parameters import (
    FILTER_OPTIONS,
    GREEDY,
    MAX_BEAMS,
    MAX_SEED,
    NO_PROCESSORS,
    NUM_BEAMS,
    OPTIONS,
    BeamParams,
    Numbers,
    Option,
    ProcessorParams,
    SamplingParams,
    TokenIds,
    list_options,
    require_integer,
    select_options,
)
from serving.requests.request import (
    AbortedEvent,
    Event,
    FailedEvent,
    FinalEvent,
    FinishedEvent,
    GenerationRequest,
)
from serving.text.checks import tokenizing
from serving.text.tokenizer import Tokenizer

StructureKind = Literal["json", "json_object", "regex", "choice", "grammar"]
MAX_NEW_TOKENS = "max_new_tokens"
MAX_LENGTH_FACTOR = "max_length_factor"  # times the source tokens, as in Marian
DEFAULT_BEAMS = 4  # of a beam search without a width
_MAX_FACTOR = 1000.0
_LIMITS = (MAX_NEW_TOKENS, "max_tokens", "max_completion_tokens")


def _recommendable_names(options: Iterable[Option]) -> tuple[str, ...]:
    return tuple(option.name for option in options if option.is_recommendable)


_FILTERS = _recommendable_names(FILTER_OPTIONS)
_SAMPLING = _recommendable_names(list_options(SamplingParams))
_BEAM = _recommendable_names(list_options(BeamParams))


class EnginePort(Protocol):
    """The interface of the engine that pipelines use; `serving/engine/bridge.py` implements it."""

    @property
    def max_rows(self) -> int:
        """Return the number of rows of a batch: no beam search may have more beams."""

    def check_room(self, work: int, share: str, priority: int) -> None:
        """Raise Overloaded if a job of about `work` tokens would be refused now."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Yield the events of a request. Closing the generator cancels the request."""

    def stream(self, requests: Sequence[GenerationRequest]) -> AsyncGenerator[list[Event], None]:
        """Yield the events of several requests, those of one step together. Either all requests are
        accepted or none. Closing the generator cancels them all.
        """

    async def run(self, requests: Sequence[GenerationRequest]) -> list[FinalEvent]:
        """Return the final event of each request when every one has ended.

        Either all requests are accepted or none. Cancelling the call cancels them all.
        """


def raise_failure(event: FailedEvent | AbortedEvent) -> NoReturn:
    """Raise the error with which a request has ended."""
    if isinstance(event, AbortedEvent):
        raise EngineStopped("the request was aborted: the engine is shutting down")
    if isinstance(event.error, EngineStopped | OutOfMemory | DeadlineExceeded):
        raise event.error
    raise EngineError(f"the engine failed: {event.error}") from event.error


def require_finished(event: FinalEvent) -> FinishedEvent:
    """Return the final event of a request; raise the error if the request failed."""
    if not isinstance(event, FinishedEvent):
        raise_failure(event)
    return event


@dataclass(frozen=True, slots=True)
class Structure:
    """The structure that an output must have.

    value: a JSON schema, a regular expression, or a grammar in Lark's notation, as text; for a
        choice, the texts to choose from.
    field: the client's name for it.
    """

    kind: StructureKind
    value: str | tuple[str, ...]
    field: str


@dataclass(frozen=True, slots=True)
class Decoding:
    """The decoding options of a job; see `GenerationRequest` for each field.

    processors: without the bad words, which are texts here.
    share: the account that the job counts for in fair scheduling.
    traceparent: the tracing span of the job's request; empty without tracing.
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


DEFAULT_DECODING = Decoding()


def resolve_decoding(
    options: Mapping[str, Any],
    recommended: Mapping[str, Any],
    num_hypotheses: int = 1,
    default_temperature: float = 0.0,
    **fields: Any,
) -> Decoding:
    """Return the decoding that follows from a client's options and a model's recommended defaults.

    options, recommended: values by the names of options; others are ignored. A client that gives
        `num_beams` asks for a beam search.
    num_hypotheses: hypotheses wanted of a beam search; a recommended width is raised to it.
    fields: other fields of the decoding.
    """
    searches = NUM_BEAMS in options
    defaults = applicable_defaults(
        recommended, options, searches, num_hypotheses, default_temperature
    )
    values = {**defaults, **options}
    beam = None
    if NUM_BEAMS in values:
        beam = BeamParams(**select_options(BeamParams, values), num_hypotheses=num_hypotheses)
    else:
        values.setdefault("temperature", default_temperature)
    sampling = SamplingParams(**select_options(SamplingParams, values))
    processors = ProcessorParams(**select_options(ProcessorParams, values))
    return Decoding(sampling, beam, processors, **fields)


def applicable_defaults(
    recommended: Mapping[str, Any],
    options: Mapping[str, Any],
    searches: bool = False,
    min_beams: int = 1,
    default_temperature: float = 0.0,
) -> dict[str, Any]:
    """Return the recommended defaults that apply beside a client's options, by name.

    The client's options win. Defaults that have no effect beside them are left out: a beam search
    does not sample, and greedy decoding has nothing to filter.

    searches: the client asks for a beam search, or for what needs one, of at least `min_beams`.
    default_temperature: used where neither client nor model gives one.
    """
    defaults = {name: value for name, value in recommended.items() if name not in options}
    defaults.pop(MAX_LENGTH_FACTOR, None)
    num_beams, limit = defaults.pop(NUM_BEAMS, 1), defaults.pop(MAX_NEW_TOKENS, None)
    samples = (options.get("temperature") or 0) > 0 or any(name in options for name in _FILTERS)
    if num_beams > 1 and not samples and min_beams <= MAX_BEAMS:
        defaults[NUM_BEAMS] = max(num_beams, min_beams)
    if "min_tokens" in defaults:
        min_tokens = defaults["min_tokens"]
        limits = (options[name] for name in _LIMITS if name in options)
        defaults["min_tokens"] = min(min_tokens, *limits, limit or min_tokens)
    if searches or NUM_BEAMS in defaults:
        return _drop_names(defaults, _SAMPLING)
    defaults = _drop_names(defaults, _BEAM)
    temperature = {**defaults, **options}.get("temperature", default_temperature)
    return _drop_names(defaults, _FILTERS) if temperature == 0 else defaults


def _drop_names(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def default_problems(generation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the recommended defaults in a manifest."""
    names = {*_recommendable_names(OPTIONS.values()), MAX_NEW_TOKENS, MAX_LENGTH_FACTOR}
    yield from (f"generation.{name}: unknown" for name in generation if name not in names)
    for name, value in generation.items():
        try:
            _check_default(name, value)
        except RequestError as error:
            yield f"generation.{error}"


def _check_default(name: str, value: Any) -> None:
    if name == MAX_NEW_TOKENS:
        require_integer(name, value, 1)
    elif name == MAX_LENGTH_FACTOR:
        Numbers(0.0, _MAX_FACTOR, is_low_open=True).check(name, value)
    elif name in OPTIONS:
        OPTIONS[name].check(value)


def request_arguments(decoding: Decoding, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the arguments for `GenerationRequest` that all requests of a job share.

    Sampling is not among them, as each request has its own seed, nor `max_new_tokens`, whose
    default depends on the pipeline. Raises RequestError for fields that contradict each other.
    """
    _check_consistency(decoding)
    processors = decoding.processors
    if decoding.bad_words:
        with tokenizing("bad_words"):
            words = [ids for word in decoding.bad_words for ids in word_spellings(tokenizer, word)]
        processors = replace(processors, bad_words=tuple(words))
    return {
        "beam": decoding.beam,
        "processors": processors,
        "stop_token_ids": decoding.stop_token_ids,
        "ignore_eos": decoding.ignore_eos,
        "logprobs": decoding.logprobs,
        "priority": decoding.priority,
        "timeout_seconds": decoding.timeout_seconds,
        "share": decoding.share,
    }


def _check_consistency(decoding: Decoding) -> None:
    if decoding.structure is not None and decoding.ignore_eos:
        raise RequestError("ignore_eos", True, f"has no end with {decoding.structure.field}")
    limit = decoding.max_new_tokens
    min_tokens = decoding.processors.min_tokens
    if limit is not None and min_tokens > limit:
        message = f"must be at most the {limit} tokens that may be generated"
        raise RequestError("min_tokens", min_tokens, message)


def word_spellings(tokenizer: Tokenizer, word: str) -> tuple[TokenIds, ...]:
    """Return the tokens of a word at the beginning of a text, and after a space."""
    spellings = (word.lstrip(), " " + word.lstrip())
    return tuple(dict.fromkeys(tuple(tokenizer.encode_inside(text)) for text in spellings))


def sampling_with_seed_offset(sampling: SamplingParams, number: int) -> SamplingParams:
    """Return the sampling of one of several requests that share a job's seed.

    Its seed is the job's plus its number, modulo 2**64: requests differ, but can be repeated.
    """
    if sampling.seed is None or number == 0:
        return sampling
    return replace(sampling, seed=(sampling.seed + number) % (MAX_SEED + 1))
