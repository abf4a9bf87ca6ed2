"""The options of decoding, in token ids: plain values, checked when they are made.

Each option is declared once, as a field with `option(...)` of a class of parameters. The fields of
HTTP bodies, the options of commands, the values that a bundle may recommend, the sampler's columns
and the table in docs/decoding.md follow from the declaration.

To add a filter, declare it among the filters, in the order in which they are applied, and implement
it in `serving/engine/decoding/sampling_filters.py` and, for the tests, in
`tests/serving/engine/decoding/naive_sampling.py`.

A value out of range, or an impossible combination, raises a RequestError that names the field.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Literal, get_type_hints

from serving.errors import RequestError

MAX_COUNT = 2**31 - 1  # what arrays of 32 bits hold
MAX_SEED = 2**64 - 1
MAX_BEAMS = 16
MAX_BIAS = 100.0  # as in OpenAI's API
MAX_WORDS = 256  # with their tokens, they are looked up after every token of a row
MAX_WORD_TOKENS = 64

TokenIds = tuple[int, ...]

# What an option may need, see `Option.needs`.
TEMPERATURE = "a temperature above 0"
NUM_BEAMS = "num_beams"


def require_integer(field: str, value: object, low: int, high: int = MAX_COUNT) -> None:
    in_range = f"at least {low}" if high == MAX_COUNT else f"between {low} and {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(field, value, f"must be an integer {in_range}")
    if not low <= value <= high:
        raise RequestError(field, value, f"must be {in_range}")


def require_number(field: str, value: object, low: float, high: float) -> None:
    message = f"must be a number between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(field, value, message)
    if not math.isfinite(value) or not low <= value <= high:
        raise RequestError(field, value, message)


@dataclass(frozen=True, slots=True)
class Integers:
    """Integers from low to high. text: describes them in documents, instead of the numbers."""

    low: int
    high: int = MAX_COUNT
    text: str = ""

    def check(self, field: str, value: object) -> None:
        require_integer(field, value, self.low, self.high)

    def __str__(self) -> str:
        has_limit = self.high != MAX_COUNT
        return self.text or (f"{self.low} to {self.high}" if has_limit else f"{self.low} or more")

    @property
    def schema(self) -> dict[str, Any]:
        """Return keywords of JSON Schema."""
        return {"minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Finite numbers from low to high; without low itself if `is_low_open`."""

    low: float
    high: float
    is_low_open: bool = False

    def check(self, field: str, value: object) -> None:
        require_number(field, value, self.low, self.high)
        if self.is_low_open and value == self.low:
            raise RequestError(field, value, f"must be greater than {self.low:g}")

    def __str__(self) -> str:
        return "above " * self.is_low_open + f"{self.low:g} to {self.high:g}"

    @property
    def schema(self) -> dict[str, Any]:
        low = "exclusiveMinimum" if self.is_low_open else "minimum"
        return {low: self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Choices:
    """A few values, by the words that clients write for them."""

    by_word: Mapping[str, Any]

    def check(self, field: str, value: object) -> None:
        if value not in self.by_word.values():
            raise RequestError(field, value, f"must be {self}")

    def __str__(self) -> str:
        *words, last = (
            f'"{word}"' if value == word else word for word, value in self.by_word.items()
        )
        return f"{', '.join(words)} or {last}"

    @property
    def schema(self) -> dict[str, Any]:
        """Return no keywords: the type of the field lists the values, and generators of clients
        refuse an `enum` of several types.
        """
        return {}


Values = Integers | Numbers | Choices


@dataclass(frozen=True, slots=True)
class Option:
    """One option of decoding.

    type: the annotation of the field.
    default: changes nothing; None if the value is optional, MISSING if it is required.
    help: one or two sentences about its effect, with the paper.
    needs: what a request must also ask for; without it the option has no effect.
    is_recommendable: whether a bundle may recommend a value for requests that give none.
    needs_source: whether only models with a source have the option.
    """

    name: str
    type: Any
    default: Any
    values: Values
    help: str
    needs: str | None = None
    is_recommendable: bool = True
    needs_source: bool = False

    def check(self, value: object) -> None:
        """Raise a RequestError that names the option if the value is not allowed."""
        if value is not None or self.default is not None:
            self.values.check(self.name, value)


def option(default: Any, values: Values, help: str, **more: Any) -> Any:
    """Return a dataclass field that declares an option; more: further fields of `Option`."""
    return field(default=default, metadata={"values": values, "help": help, **more})


@cache
def list_options(params: type) -> tuple[Option, ...]:
    """Return the options of a class of parameters; its other fields are not for clients."""
    types = get_type_hints(params)
    declared = (f for f in fields(params) if f.metadata)
    return tuple(Option(f.name, types[f.name], f.default, **f.metadata) for f in declared)


def check_options(params: object) -> None:
    """Raise RequestError for the first option that has a wrong value."""
    for option in list_options(type(params)):  # type: ignore[arg-type] # classes are hashable
        option.check(getattr(params, option.name))


def select_options(params: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the options of a class of parameters; any may be missing."""
    names = (option.name for option in list_options(params))
    return {name: values[name] for name in names if name in values}


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn; by default greedily.

    Filters are applied in the order of their fields, as in Hugging Face's `generate`; each works on
    the tokens that the one before has kept.
    """

    temperature: float = option(
        0.0,
        Numbers(0.0, 100.0),
        "Divides the logits; 0 takes the likeliest token and draws nothing.",
    )
    top_k: int = option(
        0, Integers(0), "Keeps only the k likeliest tokens; 0 keeps all.", needs=TEMPERATURE
    )
    top_p: float = option(
        1.0,
        Numbers(0.0, 1.0),
        "Keeps only the smallest set of likeliest tokens that holds this much probability"
        " (Holtzman et al. 2020); at 0 the likeliest one.",
        needs=TEMPERATURE,
    )
    min_p: float = option(
        0.0,
        Numbers(0.0, 1.0),
        "Keeps only tokens with at least this fraction of the likeliest one's probability"
        " (Nguyen et al. 2024).",
        needs=TEMPERATURE,
    )
    typical_p: float = option(
        1.0,
        Numbers(0.0, 1.0, is_low_open=True),
        "Keeps the tokens whose surprisal is nearest to the entropy, until they hold this much"
        " probability (Meister et al. 2023).",
        needs=TEMPERATURE,
    )
    seed: int | None = option(
        None,
        Integers(-(2**63), MAX_SEED, "64 bits"),
        "The same seed and request give the same tokens at any load; without one, a fresh one"
        " is drawn.",
        is_recommendable=False,
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1 or self.top_p == 0

    @property
    def filters(self) -> dict[str, float]:
        """Return the values of the filters that are on, by name."""
        values = {option.name: getattr(self, option.name) for option in FILTER_OPTIONS}
        return {o.name: values[o.name] for o in FILTER_OPTIONS if values[o.name] != o.default}


FILTER_OPTIONS: tuple[Option, ...] = tuple(
    option for option in list_options(SamplingParams) if option.needs == TEMPERATURE
)
GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class BeamParams:
    """A beam search, as in Hugging Face's `generate`.

    num_hypotheses: how many are reported, best first.
    num_counted: number of prompt tokens that count as tokens of a hypothesis, with log-probability
        0: those that `generate` forces after the first.
    """

    num_beams: int = option(
        MISSING, Integers(1, MAX_BEAMS), "The number of beams of a beam search."
    )
    num_hypotheses: int = 1
    length_penalty: float = option(
        1.0,
        Numbers(-10.0, 10.0),
        "Divides the score of a hypothesis, its log-probability, by the number of its tokens, its"
        " end included, to this power.",
        needs=NUM_BEAMS,
    )
    early_stopping: bool | Literal["never"] = option(
        False,
        Choices({"true": True, "false": False, "never": "never"}),
        "Stops as soon as enough hypotheses have ended (true), when no live one is better, by"
        " its score so far, than the worst of them (false), or when none can become better"
        " (never).",
        needs=NUM_BEAMS,
    )
    patience: float = option(
        1.0,
        Numbers(0.0, 10.0, is_low_open=True),
        "Stops after patience x num_beams finished hypotheses (Kasai et al. 2024).",
        needs=NUM_BEAMS,
    )
    coverage_penalty: float = option(
        0.0,
        Numbers(0.0, 10.0),
        "Weighs the sum over source tokens of log(min(attention received, 1)), added to the"
        " score of a hypothesis that ends (Wu et al. 2016, equation 14). It does not decide"
        " when to stop.",
        needs=NUM_BEAMS,
        is_recommendable=False,
        needs_source=True,
    )
    num_counted: int = 0

    def __post_init__(self) -> None:
        check_options(self)
        require_integer("num_hypotheses", self.num_hypotheses, 1)
        if self.num_hypotheses > self.num_beams:
            message = f"must be at most num_beams, {self.num_beams}"
            raise RequestError("num_hypotheses", self.num_hypotheses, message)

    @property
    def num_enough(self) -> int:
        return max(round(self.num_beams * self.patience), 1)


def _require_words(field: str, words: tuple[TokenIds, ...]) -> None:
    if len(words) > MAX_WORDS:
        raise RequestError(field, len(words), f"must be at most {MAX_WORDS}")
    for word in words:
        if not 1 <= len(word) <= MAX_WORD_TOKENS:
            message = f"must have between 1 and {MAX_WORD_TOKENS} tokens each"
            raise RequestError(field, list(word), message)


@dataclass(frozen=True, slots=True)
class TimestampRules:
    """Which timestamps a transcript of speech may have, as in openai/whisper, ApplyTimestampRules.

    It begins with a timestamp, and its timestamps never decrease. Each begins or ends a segment, so
    two follow each other within the text; before the end there may be one alone. A timestamp must
    come next if all of them together are more probable than each other token.

    end_id: the end of the text. The tokens before it are words.
    no_timestamps_id: the token of transcripts without timestamps, which is never generated.
    first_id: the timestamp of 0 s; all tokens from it on are timestamps.
    max_initial_index: the latest first timestamp, counted from `first_id`; None allows all.
    """

    end_id: int
    no_timestamps_id: int
    first_id: int
    max_initial_index: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessorParams:
    """Changes of the scores before a token is chosen; the defaults change nothing.

    logit_bias: pairs of a token id and a number that is added to its score.
    bad_words: sequences of tokens that must not be generated.
    allowed_ids: the only tokens that may be generated, besides stop tokens; None means all.
    timestamps: of a transcript with times; applied after all others. Prompt and forced tokens count
        for nothing.
    renormalizes: log-probabilities are those among the tokens that processors allow, as in
        openai/whisper: they rank hypotheses, and are reported. Otherwise they are the model's.
    """

    repetition_penalty: float = option(
        1.0,
        Numbers(0.0, 100.0, is_low_open=True),
        "Divides positive scores of tokens that occurred before, prompt included, and"
        " multiplies negative ones (Keskar et al. 2019): logits when drawing, log-probabilities"
        " in a beam search, as in Hugging Face.",
    )
    presence_penalty: float = option(
        0.0, Numbers(-2.0, 2.0), "Is subtracted from the score of a token that has been generated."
    )
    frequency_penalty: float = option(
        0.0,
        Numbers(-2.0, 2.0),
        "Is subtracted from the score of a token for each time that it has been generated.",
    )
    no_repeat_ngram_size: int = option(
        0, Integers(0), "Forbids n-grams of this size to occur twice, prompt included; 0 is off."
    )
    min_tokens: int = option(0, Integers(0), "Forbids an end before this many tokens.")
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[TokenIds, ...] = ()
    allowed_ids: TokenIds | None = None
    timestamps: TimestampRules | None = None
    renormalizes: bool = False

    def __post_init__(self) -> None:
        check_options(self)
        for _, bias in self.logit_bias:
            require_number("logit_bias", bias, -MAX_BIAS, MAX_BIAS)
        _require_words("bad_words", self.bad_words)
        if self.allowed_ids is not None and not self.allowed_ids:
            raise RequestError("allowed_ids", [], "must not be empty")


NO_PROCESSORS = ProcessorParams()
OPTIONS: dict[str, Option] = {
    option.name: option
    for params in (SamplingParams, BeamParams, ProcessorParams)
    for option in list_options(params)
}
