"""What a caller may ask of decoding, in token ids: plain values, checked where they are made.

A value out of range, or a combination that cannot be, is a RequestError that names the field.
"""

import math
from dataclasses import dataclass
from typing import Literal

from serving.errors import RequestError

MAX_SEED = 2**64 - 1
MAX_COUNT = 2**31 - 1
MAX_BEAMS = 16
MAX_BIAS = 100.0
MAX_WORDS = 256
MAX_WORD_TOKENS = 64
MAX_TERMS = 64


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


def require_positive(field: str, value: float, high: float) -> None:
    require_number(field, value, 0.0, high)
    if value == 0:
        raise RequestError(field, value, "must be greater than 0")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a next token is drawn. The defaults are greedy decoding.

    temperature: divides the logits; 0 takes the likeliest token. The filters follow in this order,
    each on what the one before has left, as Hugging Face's `generate` has them:

    top_k: only the k likeliest tokens; 0 means all.
    top_p: only the smallest set of likeliest tokens that holds this much probability (Holtzman et
        al. 2020).
    min_p: only tokens with at least this fraction of the likeliest one's probability (Nguyen et al.
        2024).
    typical_p: the tokens whose surprisal is nearest to the entropy, until they hold this much
        probability (Meister et al. 2023).
    epsilon_cutoff: only tokens with at least this probability (Hewitt et al. 2022).
    seed: the same seed and request give the same tokens at any load; None draws a fresh one.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        require_number("temperature", self.temperature, 0.0, 100.0)
        require_integer("top_k", self.top_k, 0)
        require_positive("top_p", self.top_p, 1.0)
        require_number("min_p", self.min_p, 0.0, 1.0)
        require_positive("typical_p", self.typical_p, 1.0)
        require_number("epsilon_cutoff", self.epsilon_cutoff, 0.0, 1.0)
        if self.epsilon_cutoff == 1:
            raise RequestError("epsilon_cutoff", self.epsilon_cutoff, "must be less than 1")
        if self.seed is not None:
            require_integer("seed", self.seed, -(2**63), MAX_SEED)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @property
    def filters(self) -> dict[str, float]:
        """The filters that are on, by name."""
        names = ("top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value != getattr(GREEDY, name)}


GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class BeamParams:
    """Beam search, as Hugging Face's `generate` has it.

    num_hypotheses: how many are reported, best first.
    length_penalty: a hypothesis of n tokens, its end included, with log-probability s scores
        s / n**length_penalty.
    early_stopping: True stops as soon as enough hypotheses have ended; False when no live one is
        better, by its score so far, than the worst of them; "never" when none can become better.
    patience: how many times `num_beams` hypotheses are enough (Kasai et al. 2024).
    coverage_penalty: weight of sum over source tokens of log(min(attention received, 1)), added to
        the score of a hypothesis that ends (Wu et al. 2016, equation 14); it does not decide when
        to stop.
    num_counted: how many tokens of the prompt count as the hypothesis's own, with log-probability
        0: those that `generate` forces after the first.
    """

    num_beams: int
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    patience: float = 1.0
    coverage_penalty: float = 0.0
    num_counted: int = 0

    def __post_init__(self) -> None:
        require_integer("num_beams", self.num_beams, 1, MAX_BEAMS)
        require_integer("num_hypotheses", self.num_hypotheses, 1)
        if self.num_hypotheses > self.num_beams:
            message = f"must be at most num_beams, {self.num_beams}"
            raise RequestError("num_hypotheses", self.num_hypotheses, message)
        require_number("length_penalty", self.length_penalty, -10.0, 10.0)
        if self.early_stopping not in (True, False, "never"):
            message = 'must be true, false or "never"'
            raise RequestError("early_stopping", self.early_stopping, message)
        require_positive("patience", self.patience, 10.0)
        require_number("coverage_penalty", self.coverage_penalty, 0.0, 10.0)

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
    """What is done to the scores before a token is chosen; the defaults do nothing.

    repetition_penalty: divides positive scores of tokens that were there before, prompt included,
        and multiplies negative ones (Keskar et al. 2019): logits when drawing, log-probabilities
        under beam search, as Hugging Face has it.
    presence_penalty, frequency_penalty: taken off the score of a generated token once, and once
        per occurrence.
    no_repeat_ngram_size: no n-gram of this size occurs twice, prompt included; 0 is off.
    logit_bias: added to the scores of these tokens.
    bad_words: sequences of tokens that must not come about.
    allowed_ids: the only tokens that may come, besides stop tokens; None means all.
    min_tokens: no stop token before this many tokens.
    """

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[TokenIds, ...] = ()
    allowed_ids: TokenIds | None = None
    min_tokens: int = 0

    def __post_init__(self) -> None:
        require_positive("repetition_penalty", self.repetition_penalty, 100.0)
        require_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        require_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        require_integer("no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        require_integer("min_tokens", self.min_tokens, 0)
        for _, bias in self.logit_bias:
            require_number("logit_bias", bias, -MAX_BIAS, MAX_BIAS)
        _require_words("bad_words", self.bad_words)
        if self.allowed_ids is not None and not self.allowed_ids:
            raise RequestError("allowed_ids", [], "must not be empty")


NO_PROCESSORS = ProcessorParams()


@dataclass(frozen=True, slots=True)
class Term:
    """A term that must occur in the output, as a word of its own.

    spellings: the ways to write it, each as token ids, with whatever parts it from the word before.
    bare: those without, which count at the start of the output and after one of `opening_ids`.
    inner_ids: tokens that, coming right after it, would make it part of a longer word.
    """

    spellings: tuple[TokenIds, ...]
    bare: tuple[TokenIds, ...] = ()
    opening_ids: frozenset[int] = frozenset()
    inner_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if not (self.spellings or self.bare):
            raise RequestError("required", [], "must have a spelling")
        _require_words("required", self.spellings + self.bare)
