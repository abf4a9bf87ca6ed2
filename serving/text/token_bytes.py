"""Reads how tokens are written: the bytes that the decoder of a `tokenizer.json` makes of each.

Every decoder here writes a token alike wherever it stands, but for spaces at the ends of a text: so
a stream never has to be taken back.
Decoders: https://huggingface.co/docs/tokenizers/api/decoders.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Spec = Mapping[str, Any]
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_LAST_SPACE = " \\z"


class UnknownDecoder(Exception):
    """Names a decoder, or an option of one, that is not supported."""


@dataclass(frozen=True)
class TokenTable:
    """How each token is written, and what a text of them loses at its ends.

    token_bytes: of every token inside a text; none if special.
    leading: how many spaces a text loses at its beginning, at most.
    drops_last_space: whether a text loses one at its end.
    """

    token_bytes: tuple[bytes, ...]
    leading: int = 0
    drops_last_space: bool = False


class TokenWriter:
    """Writes a text token by token.

    begins_text: no other text goes before it.
    """

    def __init__(self, table: TokenTable, begins_text: bool) -> None:
        self._table = table
        self._leading = table.leading if begins_text else 0
        self._pending_space = b" " if table.drops_last_space and not begins_text else b""

    def push_all(self, token_ids: Iterable[int]) -> list[bytes]:
        """Return what each token adds."""
        waiting = iter(token_ids)
        pieces: list[bytes] = []
        while self._leading or self._table.drops_last_space:
            token_id = next(waiting, None)
            if token_id is None:
                return pieces
            pieces.append(self.push(token_id))
        return [*pieces, *map(self._table.token_bytes.__getitem__, waiting)]

    def push(self, token_id: int) -> bytes:
        """Return what the token adds: a space at its end, which may be lost, comes with the next
        one.
        """
        piece = self._table.token_bytes[token_id]
        piece, self._leading = without_leading(piece, self._leading)
        if self._table.drops_last_space and piece:
            piece = self._pending_space + piece
            self._pending_space = b" " if piece.endswith(b" ") else b""
            piece = piece.removesuffix(b" ")
        return piece


def without_leading(piece: bytes, num_spaces: int) -> tuple[bytes, int]:
    """Return a piece without so many spaces at its beginning, and how many the next ones may yet
    lose.
    """
    text = piece.lstrip(b" ")
    num_dropped = min(len(piece) - len(text), num_spaces)
    return piece[num_dropped:], 0 if text else num_spaces - num_dropped


@dataclass
class _TokenNames:
    """How tokens are written, while decoders change it step by step.

    as_bytes: of those that are bytes already.
    """

    texts: list[str]
    as_bytes: dict[int, bytes]
    leading: int = 0
    drops_last_space: bool = False

    def change(self, change: Callable[[str], str]) -> None:
        self.texts = [change(text) for text in self.texts]


def token_table(decoder: Spec | None, names: Iterable[str]) -> TokenTable:
    """Return how a decoder writes tokens. Raises UnknownDecoder.

    names: of every token id, empty for one that has no text.
    """
    table = _TokenNames(list(names), {})
    if decoder is None:  # the library puts spaces between tokens
        _space_separated(table)
    else:
        _apply(decoder, table)
    written = (table.as_bytes.get(i, text.encode()) for i, text in enumerate(table.texts))
    return TokenTable(tuple(written), table.leading, table.drops_last_space)


def _apply(step: Spec, table: _TokenNames) -> None:
    apply = _STEPS.get(str(step["type"]))
    if apply is None:
        raise UnknownDecoder(f"decoder {step['type']} is not supported")
    apply(step, table)


def _sequence(step: Spec, table: _TokenNames) -> None:
    for part in step["decoders"]:
        _apply(part, table)


def _byte_level(step: Spec, table: _TokenNames) -> None:
    byte_of = {character: byte for byte, character in enumerate(_byte_characters())}
    for token_id, text in enumerate(table.texts):
        if all(character in byte_of for character in text):
            table.as_bytes[token_id] = bytes(byte_of[character] for character in text)


def _byte_fallback(step: Spec, table: _TokenNames) -> None:
    for token_id, text in enumerate(table.texts):
        if match := _BYTE.fullmatch(text):
            table.as_bytes[token_id] = bytes([int(match[1], 16)])


def _metaspace(step: Spec, table: _TokenNames) -> None:
    table.change(lambda text: text.replace(step["replacement"], " "))
    table.leading = int(step.get("prepend_scheme", "always") != "never")


def _replace(step: Spec, table: _TokenNames) -> None:
    pattern = step["pattern"]
    if "String" in pattern:
        table.change(lambda text: text.replace(pattern["String"], step["content"]))
    elif pattern["Regex"] == _LAST_SPACE and not step["content"]:
        table.drops_last_space = True
    else:
        raise UnknownDecoder(f"decoder Replace of {pattern['Regex']!r} is not supported")


def _strip(step: Spec, table: _TokenNames) -> None:
    if step["content"] != " " or step["stop"]:
        raise UnknownDecoder(f"decoder Strip of {step['content']!r} is not supported")
    table.leading = step["start"]


def _word_piece(step: Spec, table: _TokenNames) -> None:
    if step["cleanup"]:
        raise UnknownDecoder("decoder WordPiece with cleanup is not supported")
    prefix = step["prefix"]

    def piece_text(name: str) -> str:
        return name.removeprefix(prefix) if name.startswith(prefix) else f" {name}"

    table.change(lambda name: piece_text(name) if name else "")
    table.leading = 1


def _bpe(step: Spec, table: _TokenNames) -> None:
    table.change(lambda name: name.replace(step["suffix"], " "))
    table.drops_last_space = True


def _space_separated(table: _TokenNames) -> None:
    table.change(lambda name: name and name + " ")
    table.drops_last_space = True


def _keep_tokens(step: Spec, table: _TokenNames) -> None:
    """Leave tokens alone: writing them one after another joins them."""


_STEPS: dict[str, Callable[[Spec, _TokenNames], None]] = {
    "Sequence": _sequence,
    "ByteLevel": _byte_level,
    "ByteFallback": _byte_fallback,
    "Fuse": _keep_tokens,
    "Metaspace": _metaspace,
    "Replace": _replace,
    "Strip": _strip,
    "WordPiece": _word_piece,
    "BPEDecoder": _bpe,
}


def _byte_characters() -> list[str]:
    """Return GPT-2's character for each byte: itself where printable, else from 256 upwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
