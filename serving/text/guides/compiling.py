"""Compiles one grammar with llguidance, within limits of its own; knows no requests."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

# A step of the engine waits for the masks of all rows. Half of llguidance's own limits or less: the
# slowest mask that they let an ambiguous grammar ask for took 60 ms, against 570 ms. 240 optional
# properties of a JSON object fit. A lexer state takes up to 2 kB.
STEP_LIMITS = LLParserLimits(
    max_items_in_row=1000,
    step_max_items=10_000,
    step_lexer_fuel=100_000,
    max_lexer_states=50_000,
    verbose_errors=False,
)
# Of a text that a grammar forces llguidance asks the tokens at every step, to take the first one:
# all of 65,000 characters took 95 ms each time.
MAX_FORCED_BYTES = 1000


class NotCompiled(ValueError):
    """Repeats what llguidance says of a grammar that does not compile."""


class Vocabulary:
    """Holds what llguidance wants to know of a tokenizer.

    tokens: their bytes; none of special ones.
    """

    def __init__(self, tokens: Sequence[bytes], eos: int) -> None:
        self.table = tokens
        self.eos_token_id = eos
        self.bos_token_id = None
        self.special_token_ids = [token_id for token_id, text in enumerate(tokens) if not text]
        self.tokens = [text or f"<{token_id}>".encode() for token_id, text in enumerate(tokens)]

    def __call__(self, text: bytes) -> list[int]:
        """Return tokens that a text of exactly these bytes begins with."""
        return self.longest(beginning(text))

    def longest(self, text: bytes) -> list[int]:
        """Return the longest tokens of exactly these bytes, as far as there are any."""
        ids: list[int] = []
        start = 0
        while start < len(text):
            lengths = range(min(len(text) - start, self._max_bytes), 0, -1)
            found = next((n for n in lengths if text[start : start + n] in self._id_of), None)
            if found is None:  # no token can write what comes next
                break
            ids.append(self._id_of[text[start : start + found]])
            start += found
        return ids

    @cached_property
    def _id_of(self) -> dict[bytes, int]:
        return {text: token_id for token_id, text in enumerate(self.table) if text}

    @cached_property
    def _max_bytes(self) -> int:
        return max(map(len, self._id_of), default=0)


def beginning(text: bytes) -> bytes:
    """Return as much of a forced text as is worth tokenizing, to the end of a character."""
    end = MAX_FORCED_BYTES
    while len(text) > end and text[end] & 0xC0 == 0x80:  # inside a character of UTF-8
        end -= 1
    return text[:end]


def prepare(vocabulary: Vocabulary) -> LLTokenizer:
    """Return what grammars are compiled against."""
    return LLTokenizer(TokenizerWrapper(vocabulary), eos_token=vocabulary.eos_token_id)


def compile_grammar(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    """Compile a grammar and look at its first mask. Raises NotCompiled."""
    matcher = LLMatcher(tokens, grammar, log_level=0, limits=STEP_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # some limits are reached only here
    if matcher.is_error():
        raise NotCompiled(matcher.get_error())
    return matcher


def try_grammar(tokens: LLTokenizer, grammar: str) -> None:
    """Compile a grammar and take a step: that a text which it forces is too long for the limits is
    found only then. Raises NotCompiled.
    """
    matcher = compile_grammar(tokens, grammar)
    allowed = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    allowed[tokens.eos_token] = 0
    if not allowed.any():
        return
    matcher.consume_token(int(allowed.argmax()))
    matcher.compute_bitmask()
    if matcher.is_error():
        raise NotCompiled(matcher.get_error())
