"""Declares what a caller may ask of decoding, in token ids: plain values, checked where they are
made.

A field with `option(...)` is declared here and nowhere else: HTTP bodies, commands, the defaults of
bundles, the sampler's columns and the table in docs/decoding.md follow from it.

To add a filter, declare it here, among the filters in the order in which they are applied; say how
it cuts in `engine/decoding/sampling_filters.py` and, for the tests, in `naive_sampling.py`.

A value out of range, or a combination that cannot be, is a RequestError that names the field.
"""

from dataclasses import MISSING, dataclass
from typing import Literal

from serving.errors import RequestError
from serving.options import (
    Choices,
    Integers,
    Numbers,
    Option,
    check_options,
    option,
    options_of,
    require_integer,
    require_number,
)

MAX_SEED = 2**64 - 1
MAX_BEAMS = 16
MAX_BIAS = 100.0
MAX_WORDS = 256
MAX_WORD_TOKENS = 64

TEMPERATURE = "a temperature above 0"
NUM_BEAMS = "num_beams"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Describes how a next token is drawn. The defaults are greedy decoding.

    Filters follow in the order of their fields, each on what the one before has left, as Hugging
    Face's `generate` has them.
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
        Numbers(0.0, 1.0, is_low_open=True),
        "Keeps only the smallest set of likeliest tokens that holds this much probability"
        " (Holtzman et al. 2020).",
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
        return self.temperature == 0 or self.top_k == 1

    @property
    def filters(self) -> dict[str, float]:
        """Return the filters that are on, by name."""
        values = {each.name: (getattr(self, each.name), each.default) for each in FILTER_OPTIONS}
        return {name: value for name, (value, no_op) in values.items() if value != no_op}


FILTER_OPTIONS: tuple[Option, ...] = tuple(
    each for each in options_of(SamplingParams) if each.needs == TEMPERATURE
)
GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class BeamParams:
    """Asks for beam search, as Hugging Face's `generate` has it.

    num_hypotheses: how many are reported, best first.
    num_counted: how many tokens of the prompt count as the hypothesis's own, with log-probability
        0: those that `generate` forces after the first.
    """

    num_beams: int = option(
        MISSING, Integers(1, MAX_BEAMS), "Searches with beams, so many at a time."
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
        "Makes so many times num_beams hypotheses enough (Kasai et al. 2024).",
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


TokenIds = tuple[int, ...]


def _require_words(field: str, words: tuple[TokenIds, ...]) -> None:
    if len(words) > MAX_WORDS:
        raise RequestError(field, len(words), f"must be at most {MAX_WORDS}")
    for word in words:
        if not 1 <= len(word) <= MAX_WORD_TOKENS:
            message = f"must have between 1 and {MAX_WORD_TOKENS} tokens each"
            raise RequestError(field, list(word), message)


@dataclass(frozen=True, slots=True)
class ProcessorParams:
    """Describes what is done to the scores before a token is chosen; the defaults do nothing.

    logit_bias: added to the scores of these tokens.
    bad_words: sequences of tokens that must not come about.
    allowed_ids: the only tokens that may come, besides stop tokens; None means all.
    """

    repetition_penalty: float = option(
        1.0,
        Numbers(0.0, 100.0, is_low_open=True),
        "Divides positive scores of tokens that were there before, prompt included, and"
        " multiplies negative ones (Keskar et al. 2019): logits when drawing, log-probabilities"
        " under beam search, as Hugging Face has it.",
    )
    presence_penalty: float = option(
        0.0, Numbers(-2.0, 2.0), "Is taken off the score of a token that has been generated."
    )
    frequency_penalty: float = option(
        0.0,
        Numbers(-2.0, 2.0),
        "Is taken off the score of a token for each time that it has been generated.",
    )
    no_repeat_ngram_size: int = option(
        0, Integers(0), "Lets no n-gram of this size occur twice, prompt included; 0 is off."
    )
    min_tokens: int = option(0, Integers(0), "Lets nothing end before this many tokens.")
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[TokenIds, ...] = ()
    allowed_ids: TokenIds | None = None

    def __post_init__(self) -> None:
        check_options(self)
        for _, bias in self.logit_bias:
            require_number("logit_bias", bias, -MAX_BIAS, MAX_BIAS)
        _require_words("bad_words", self.bad_words)
        if self.allowed_ids is not None and not self.allowed_ids:
            raise RequestError("allowed_ids", [], "must not be empty")


NO_PROCESSORS = ProcessorParams()
OPTIONS: dict[str, Option] = {
    each.name: each
    for params in (SamplingParams, BeamParams, ProcessorParams)
    for each in options_of(params)
}
