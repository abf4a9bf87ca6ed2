"""Compiles JSON schemas, regular expressions, grammars and choices into token constraints.

llguidance walks the tokenizer's vocabulary beside the grammar, and says which tokens keep the text
on its way to a match. It is asked for masks only: what is chosen is the engine's business.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher

from serving.errors import RequestError, Untokenizable
from serving.requests.request import Constraint, Mask, Matcher
from serving.text.constraints.grammar_compiler import (
    GrammarTrials,
    GrammarVocabulary,
    NotCompiled,
    build_tokenizer,
    compile_grammar,
    truncate_forced_text,
)
from serving.text.constraints.json_formats import with_valid_dates
from serving.text.token_bytes import TokenTable
from serving.text.tokenizer import Tokenizer

MAX_GRAMMAR_CHARACTERS = 65_536
MAX_MESSAGE_CHARACTERS = 300
# Between the tokens of JSON at most one blank, as Outlines has it: a weak model that may indent
# does nothing else.
JSON_OPTIONS: Any = {"whitespace_pattern": "[ ]?", "lenient": False}


class Grammars:
    """Compiles for one bundle. Whatever does not compile, or not within the bounds of a trial, is a
    RequestError that names `field`.

    Output ends with one of the bundle's stop tokens, or of the request's own `stop_ids`; they may
    come where the text is whole, and nowhere else. Any thread may compile.

    begins_text: what is written does not go on from another text.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop_ids: Iterable[int], begins_text: bool = True
    ) -> None:
        self._stop_ids = tuple(stop_ids)
        self._spaces = _lost_spaces(tokenizer.table, begins_text)
        vocabulary = _TokenizerVocabulary(tokenizer, self._stop_ids[0])
        self._trials = GrammarTrials(vocabulary)
        self._tokens = build_tokenizer(vocabulary)

    def json_schema(
        self, schema: dict[str, Any] | str, stop_ids: Iterable[int] = (), field: str = "json"
    ) -> Constraint:
        """Allow JSON that is valid under a schema, given as such or as text."""
        text = _schema_text(schema, field)
        try:
            with_dates = with_valid_dates(text)
            grammar = LLMatcher.grammar_from_json_schema(with_dates, overrides=JSON_OPTIONS)
        except ValueError as error:
            message = f"does not compile: {_one_line(str(error))}"
            raise RequestError(field, text, message) from None
        return self._compile(grammar, text, stop_ids, field)

    def json_object(self, stop_ids: Iterable[int] = (), field: str = "json") -> Constraint:
        """Allow any JSON object."""
        return self.json_schema({"type": "object"}, stop_ids, field)

    def regex(self, pattern: str, stop_ids: Iterable[int] = (), field: str = "regex") -> Constraint:
        """Allow text that matches as a whole. Syntax: Rust's regex crate."""
        _check_text(pattern, field)
        return self._compile(LLMatcher.grammar_from_regex(pattern), pattern, stop_ids, field)

    def lark(
        self, grammar: str, stop_ids: Iterable[int] = (), field: str = "grammar"
    ) -> Constraint:
        """Allow text of a context-free grammar. Syntax: llguidance's variant of Lark."""
        _check_text(grammar, field)
        return self._compile(_lark(grammar), grammar, stop_ids, field)

    def choices(
        self, texts: Sequence[str], stop_ids: Iterable[int] = (), field: str = "choice"
    ) -> Constraint:
        """Allow one of these texts."""
        if not texts:
            raise RequestError(field, list(texts), "must not be empty")
        _check_text("".join(texts), field)
        grammar = "start: TEXT\nTEXT: " + " | ".join(json.dumps(text) for text in texts)
        return self._compile(_lark(grammar), texts, stop_ids, field)

    def _compile(
        self, grammar: str, value: object, stop_ids: Iterable[int], field: str
    ) -> Constraint:
        grammar = _with_spaces(grammar, *self._spaces)
        try:
            self._trials.check(grammar)
            matcher = compile_grammar(self._tokens, grammar)
        except NotCompiled as error:
            message = f"does not compile: {_one_line(str(error))}"
            raise RequestError(field, value, message) from None
        stops = np.array(sorted({*self._stop_ids, *stop_ids}), np.int64)
        return GrammarConstraint(matcher, stops)


class GrammarConstraint:
    """A compiled grammar, from which each row takes a copy."""

    def __init__(self, matcher: LLMatcher, stop_ids: np.ndarray[Any, Any]) -> None:
        self._matcher, self._stop_ids = matcher, stop_ids

    def start(self) -> Matcher:
        return GrammarMatcher(self._matcher.deep_copy(), self._stop_ids)


class GrammarMatcher:
    """Follows one row.

    A limit reached on the way, or a token that was not allowed, is a dead end.
    """

    def __init__(self, matcher: LLMatcher, stop_ids: np.ndarray[Any, Any]) -> None:
        self._matcher, self._stop_ids = matcher, stop_ids

    def fill_mask(self, mask: Mask) -> None:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():  # llguidance would have it end here
            mask[:] = False
            return
        tokens = np.unpackbits(bits, bitorder="little")[: len(mask)]
        mask[: len(tokens)] = tokens
        mask[len(tokens) :] = False  # a model's vocabulary may be padded
        mask[self._stop_ids] = self._matcher.is_accepting()

    def accept(self, token_id: int) -> None:
        if token_id not in self._stop_ids:
            self._matcher.consume_token(token_id)

    def fork(self) -> Matcher:
        return GrammarMatcher(self._matcher.deep_copy(), self._stop_ids)


class _TokenizerVocabulary(GrammarVocabulary):
    """Reads the vocabulary of a tokenizer of ours, which writes text as it prefers."""

    def __init__(self, tokenizer: Tokenizer, eos: int) -> None:
        super().__init__(tokenizer.table.token_bytes, eos)
        self._tokenizer = tokenizer

    def __call__(self, text: bytes) -> list[int]:
        """Return tokens of exactly these bytes, which are written next whatever a model prefers:
        those that the tokenizer has for them, or the longest ones where it would normalise them.
        """
        text = truncate_forced_text(text)
        try:
            ids = self._tokenizer.encode_inside(text.decode(errors="replace"))
        except Untokenizable:
            return self.longest(text)
        is_exact = b"".join(map(self._tokenizer.token_bytes, ids)) == text
        return ids if is_exact else self.longest(text)


def _lost_spaces(table: TokenTable, begins_text: bool) -> tuple[bool, bool]:
    """Return whether a text may lose a space at its beginning, and at its end: a grammar knows only
    what is left, and the tokens that a model has learnt to begin and to end with have it.
    """
    return begins_text and table.leading > 0, table.drops_last_space


def _lark(grammar: str) -> str:
    """Wrap a grammar; an empty one stays as it is, which has an error of its own."""
    return json.dumps({"grammars": [{"lark_grammar": grammar}]}) if grammar else ""


def _with_spaces(grammar: str, before: bool, after: bool) -> str:
    """Return a grammar that takes a space where one is lost."""
    if not grammar or not (before or after):
        return grammar
    space = "/[ ]?/"
    start = f"start: {space if before else ''} @body {space if after else ''}"
    body, *others = json.loads(grammar)["grammars"]
    return json.dumps({"grammars": [{"lark_grammar": start}, {**body, "name": "body"}, *others]})


def _check_text(text: str, field: str) -> None:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        message = f"must have at most {MAX_GRAMMAR_CHARACTERS} characters in all"
        raise RequestError(field, len(text), message)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(field, text, "must be valid Unicode") from None


def _schema_text(schema: dict[str, Any] | str, field: str) -> str:
    """Read a schema and write it again: llguidance pastes the text into a grammar as it is."""
    if isinstance(schema, str):
        _check_text(schema, field)
    try:
        content = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps(content, allow_nan=False)
    except RecursionError:  # which writing the value into the message would raise again
        raise RequestError(field, type(schema).__name__, "nests too deep") from None
    except (ValueError, TypeError) as error:
        raise RequestError(field, schema, f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise RequestError(field, schema, "must be a JSON object")
    _check_text(text, field)
    return text


def _one_line(message: str) -> str:
    """Return llguidance's message without the excerpts from the source, where it has some."""
    if "NoExtension" in message:
        return "no text can match it"
    lines = message.replace("<non-verbose/>", "").splitlines()
    messages = [line.strip() for line in lines if not re.fullmatch(r"\s*(\d+ \|.*|\^*)", line)]
    return " ".join(messages)[:MAX_MESSAGE_CHARACTERS]
