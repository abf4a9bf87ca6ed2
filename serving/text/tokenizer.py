"""Turns text into token ids and back, by the bundle's own `tokenizer.json`.

Special tokens are never read from text, unless that is asked for: a literal "</s>" is four
characters. They are put around a request's ids by the pipelines, as the bundle's manifest says.
"""

import codecs
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from serving.errors import BundleError, Untokenizable
from serving.text.library_tokenizers import LibraryTokenizers, refusing_tokenizer_errors
from serving.text.spans import Span
from serving.text.token_bytes import TokenTable, TokenWriter, UnknownDecoder, token_table

_MOST_HOLES = 1000  # ids without a token
# In converted tokenizers what has higher ids only helps to cut a text.
_BEYOND = "<beyond the vocabulary>"
# No text in UTF-8 has others.
_BYTES_OF_TEXTS = {bytes([byte]) for byte in range(0xF5) if byte not in (0, 0xC0, 0xC1)}


class Tokenizer:
    """Encodes and decodes for one model.

    Whatever encodes raises Untokenizable, a RequestError, for a text that the library fails at.

    A byte-level tokenizer round-trips every valid Unicode string: `decode(encode(text)) == text`.
    Others may normalise a text, or have no token for some of it: see `is_lossless`.

    vocab_size: of the model. What the tokenizer knows beyond is unknown to the model; ids that only
        the model has are `textless_ids`.
    """

    def __init__(self, path: Path, vocab_size: int | None = None) -> None:
        self._library = LibraryTokenizers(path)
        self._spec = self._library.outline
        encoder = self._library.get()
        self._names = _name_tokens(path, encoder, vocab_size)
        self.textless_ids = frozenset(i for i, name in enumerate(self._names) if name is None)
        """Ids that the model has no token for: padding of its vocabulary, and holes in it."""
        self.special_tokens: Mapping[int, str] = _find_special_tokens(encoder, self._names)
        """How special tokens are written, by id."""
        self.unknown_id = _find_unknown_id(encoder, self._spec)
        self._reserved = {*self.special_tokens} - {self.unknown_id}
        self._first_unknown = min(self.textless_ids, default=len(self._names))
        self.table = self._token_table(path)

    @property
    def vocab_size(self) -> int:
        return len(self._names)

    @property
    def is_lossless(self) -> bool:
        """Return whether every text comes back as it was."""
        is_byte_level = (self._spec["decoder"] or {}).get("type") == "ByteLevel"
        adds_space = '"add_prefix_space": true' in json.dumps(self._spec.get("pre_tokenizer"))
        has_all_bytes = {*self.table.token_bytes} >= _BYTES_OF_TEXTS
        changes_nothing = not self._spec.get("normalizer") and not adds_space
        return is_byte_level and has_all_bytes and changes_nothing

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the ids of a text as it begins.

        parse_special: read special tokens from it, as in a chat template.
        """
        return self._encode(self._library.normalise(text), False, parse_special)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if len(texts) == 1:  # the library's threads take longer than a sentence does
            return [self.encode(texts[0])]
        normalised = [self._library.normalise(text) for text in texts]
        with refusing_tokenizer_errors(f"{len(texts)} texts"):
            encodings = self._library.get().encode_batch(normalised, add_special_tokens=False)
        rows = zip(encodings, normalised, strict=True)
        return [self._model_ids(encoding.ids, text) for encoding, text in rows]

    def encode_with_spans(self, text: str) -> tuple[list[int], list[Span]]:
        """Return what `encode` does, and which characters of the text each token stands for."""
        normalised, origins = self._library.normalise_with_origins(text)
        tokens = self._encode_with_offsets(self._library.get(), normalised)
        if any(token_id in self._reserved for token_id, _ in tokens):  # as in `_model_ids`
            first, *others = self._within_special_names.split(normalised)
            tokens, start = self._encode_with_offsets(self._library.get(), first), len(first)
            for part in others:
                tokens += self._encode_with_offsets(self._library.get(inside=True), part, start)
                start += len(part)
            tokens = [(i, span) for i, span in tokens if i not in self._reserved]
        return [i for i, _ in tokens], [_original_span(span, origins) for _, span in tokens]

    def encode_inside(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the ids of a text as it goes on from other text: with a space before it only if it
        begins with one, if the text before has not ended with it.
        """
        inside = not self.table.drops_last_space
        return self._encode(self._library.normalise(text), inside, parse_special)

    def can_write(self, text: str) -> bool:
        """Check that tokens can write all of the text: the unknown one stands for none of it."""
        try:
            ids = self.encode(text)
        except Untokenizable:
            return False
        return self.unknown_id not in ids and bool(self.decode(ids) or not text.strip())

    def token_bytes(self, token_id: int) -> bytes:
        """Return the UTF-8 bytes a token stands for inside a text, perhaps part of a character;
        none if special, or where there is no such token.
        """
        return self.table.token_bytes[token_id]

    def bytes_or_id(self, token_id: int) -> bytes | int:
        """Return its bytes, or its id where there is no such token."""
        return token_id if token_id in self.textless_ids else self.token_bytes(token_id)

    def pieces(self, token_ids: Iterable[int], begins_text: bool = True) -> list[bytes]:
        """Return the bytes of each token in this very text."""
        return TokenWriter(self.table, begins_text).push_all(token_ids)

    def decode(self, token_ids: Iterable[int], begins_text: bool = True) -> str:
        """Return the text. Bytes that are not UTF-8 become U+FFFD, exactly as a `Detokenizer`
        streams them.
        """
        pieces = TokenWriter(self.table, begins_text).push_all(token_ids)
        return b"".join(pieces).decode("utf-8", errors="replace")

    def _encode(self, text: str, inside: bool, parse_special: bool) -> list[int]:
        ids = self._library_ids(text, inside, parse_special)
        return self._known_ids(ids) if parse_special else self._model_ids(ids, text, inside)

    def _library_ids(self, text: str, inside: bool, parse_special: bool = False) -> list[int]:
        with refusing_tokenizer_errors(text):
            encoder = self._library.get(inside, parse_special)
            ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        return ids

    def _encode_with_offsets(
        self, encoder: Any, text: str, start: int = 0
    ) -> list[tuple[int, Span]]:
        """Return each token with its characters, counted from `start` on."""
        with refusing_tokenizer_errors(text):
            encoding = encoder.encode(text, add_special_tokens=False)
        ids_of_tokens = (self._known_ids([token_id]) for token_id in encoding.ids)
        pairs = zip(ids_of_tokens, encoding.offsets, strict=True)
        return [(i, Span(start + first, start + end)) for ids, (first, end) in pairs for i in ids]

    def _model_ids(self, ids: list[int], text: str, inside: bool = False) -> list[int]:
        """Return the ids of a text as the model knows them, without special tokens.

        Some tokenizers find special tokens in a text as they find any piece; then the text is
        encoded in parts, cut within their names.
        """
        if ids and max(ids) >= self._first_unknown:
            ids = self._known_ids(ids)
        if self._reserved.isdisjoint(ids):
            return ids
        first, *others = self._within_special_names.split(text)
        ids = self._library_ids(first, inside)
        for part in others:
            ids += self._library_ids(part, inside=True)
        return [token_id for token_id in self._known_ids(ids) if token_id not in self._reserved]

    @cached_property
    def _within_special_names(self) -> re.Pattern[str]:
        """Match after the first character of a special token's name."""
        names = (self.special_tokens[token_id] for token_id in self._reserved)
        places = (f"(?<={re.escape(name[:1])})(?={re.escape(name[1:])})" for name in names)
        return re.compile("|".join(places))

    def _token_table(self, path: Path) -> TokenTable:
        names = (
            "" if name is None or i in self.special_tokens else name
            for i, name in enumerate(self._names)
        )
        try:
            return token_table(self._spec["decoder"], names)
        except UnknownDecoder as error:
            raise BundleError(path, [str(error)]) from None

    def _known_ids(self, ids: list[int]) -> list[int]:
        """Return the ids with the unknown token, if there is one, for those that the model does not
        know.
        """
        known_ids: list[int] = []
        for token_id in ids:
            if token_id < self.vocab_size and token_id not in self.textless_ids:
                known_ids.append(token_id)
            elif self.unknown_id is not None:
                known_ids.append(self.unknown_id)
        return known_ids


def _original_span(span: Span, origins: Sequence[int]) -> Span:
    """Return the characters that a span of normalised ones was made of."""
    if span.start == span.end:
        return Span(origins[span.start], origins[span.start])
    end = bisect_right(origins, origins[span.end - 1])
    return Span(origins[span.start], origins[end])


def _name_tokens(path: Path, tokenizer: Any, vocab_size: int | None) -> list[str | None]:
    """Name every token of the model; None where an id has no token."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values(), default=-1) + 1
    if size > 2 * len(vocabulary) + _MOST_HOLES:
        raise BundleError(path, [f"a token has the id {size - 1}, of {len(vocabulary)} tokens"])
    known_size = vocabulary.get(_BEYOND, size)
    names: list[str | None] = [None] * max(size, vocab_size or 0)
    for name, token_id in vocabulary.items():
        if token_id < known_size:
            names[token_id] = name
    return names[: known_size if vocab_size is None else vocab_size]


def _find_special_tokens(tokenizer: Any, names: Sequence[str | None]) -> dict[int, str]:
    added = tokenizer.get_added_tokens_decoder()
    return {
        i: token.content
        for i, token in added.items()
        if token.special and i < len(names) and names[i] is not None
    }


def _find_unknown_id(tokenizer: Any, spec: Mapping[str, Any]) -> int | None:
    model = spec["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    unknown_id: int | None = None if name is None else tokenizer.token_to_id(name)
    return unknown_id


class Detokenizer:
    """Holds back the bytes of an unfinished character until the rest of it comes, and a space that
    the text may end with.

    The pieces joined are `Tokenizer.decode` of all ids.

    begins_text: no other text goes before it.
    """

    def __init__(self, tokenizer: Tokenizer, begins_text: bool = True) -> None:
        self._writer = TokenWriter(tokenizer.table, begins_text)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Return the text that became certain with this token; often empty within a character."""
        return self._decoder.decode(self._writer.push(token_id))

    def finish(self) -> str:
        """Return what is left when no more tokens come: U+FFFD for an unfinished character."""
        return self._decoder.decode(b"", final=True)
