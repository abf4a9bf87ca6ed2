"""Reads how tokens are written: the bytes that the decoder of a `tokenizer.json` makes of each.

Every decoder here writes a token alike wherever it stands, but for spaces at the ends of a text: so
a stream never has to be taken back.
Decoders: https://huggingface.co/docs/tokenizers/api/decoders.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

from serving.errors import BundleError, Untokenizable

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


class Writer:
    """Writes a text token by token.

    begins_text: no other text goes before it.
    """

    def __init__(self, table: TokenTable, begins_text: bool) -> None:
        self._table = table
        self._leading = table.leading if begins_text else 0
        self._held = b" " if table.drops_last_space and not begins_text else b""

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
            piece = self._held + piece
            self._held = b" " if piece.endswith(b" ") else b""
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
class _Names:
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
    table = _Names(list(names), {})
    if decoder is None:  # the library puts spaces between tokens
        _parted_words(table)
    else:
        _apply(decoder, table)
    written = (table.as_bytes.get(i, text.encode()) for i, text in enumerate(table.texts))
    return TokenTable(tuple(written), table.leading, table.drops_last_space)


def _apply(step: Spec, table: _Names) -> None:
    apply = _STEPS.get(str(step["type"]))
    if apply is None:
        raise UnknownDecoder(f"decoder {step['type']} is not supported")
    apply(step, table)


def _sequence(step: Spec, table: _Names) -> None:
    for part in step["decoders"]:
        _apply(part, table)


def _byte_level(step: Spec, table: _Names) -> None:
    byte_of = {character: byte for byte, character in enumerate(_byte_characters())}
    for token_id, text in enumerate(table.texts):
        if all(character in byte_of for character in text):
            table.as_bytes[token_id] = bytes(byte_of[character] for character in text)


def _byte_fallback(step: Spec, table: _Names) -> None:
    for token_id, text in enumerate(table.texts):
        if match := _BYTE.fullmatch(text):
            table.as_bytes[token_id] = bytes([int(match[1], 16)])


def _metaspace(step: Spec, table: _Names) -> None:
    table.change(lambda text: text.replace(step["replacement"], " "))
    table.leading = int(step.get("prepend_scheme", "always") != "never")


def _replace(step: Spec, table: _Names) -> None:
    pattern = step["pattern"]
    if "String" in pattern:
        table.change(lambda text: text.replace(pattern["String"], step["content"]))
    elif pattern["Regex"] == _LAST_SPACE and not step["content"]:
        table.drops_last_space = True
    else:
        raise UnknownDecoder(f"decoder Replace of {pattern['Regex']!r} is not supported")


def _strip(step: Spec, table: _Names) -> None:
    if step["content"] != " " or step["stop"]:
        raise UnknownDecoder(f"decoder Strip of {step['content']!r} is not supported")
    table.leading = step["start"]


def _word_piece(step: Spec, table: _Names) -> None:
    if step["cleanup"]:
        raise UnknownDecoder("decoder WordPiece with cleanup is not supported")
    prefix = step["prefix"]

    def written(name: str) -> str:
        return name.removeprefix(prefix) if name.startswith(prefix) else f" {name}"

    table.change(lambda name: written(name) if name else "")
    table.leading = 1


def _bpe(step: Spec, table: _Names) -> None:
    table.change(lambda name: name.replace(step["suffix"], " "))
    table.drops_last_space = True


def _parted_words(table: _Names) -> None:
    table.change(lambda name: name and name + " ")
    table.drops_last_space = True


def _nothing(step: Spec, table: _Names) -> None:
    """Leave tokens alone: writing them one after another joins them."""


_STEPS: dict[str, Callable[[Spec, _Names], None]] = {
    "Sequence": _sequence,
    "ByteLevel": _byte_level,
    "ByteFallback": _byte_fallback,
    "Fuse": _nothing,
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


def inside_a_text(tokenizer: Spec) -> dict[str, Any]:
    """Return a `tokenizer.json` without what it does where a text begins."""
    normalizer, pre_tokenizer = (
        _without(tokenizer.get(name)) for name in ("normalizer", "pre_tokenizer")
    )
    parts = (tokenizer.get("pre_tokenizer") or {}).get("pretokenizers", ())
    if _parts_words_twice(parts):
        rest = [part for part in parts if part["type"] != "WhitespaceSplit"]
        pre_tokenizer = _without({"type": "Sequence", "pretokenizers": rest})
        steps = [normalizer] if normalizer else []
        normalizer = {"type": "Sequence", "normalizers": [*steps, *_SINGLE_SPACES]}
    return {**tokenizer, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer}


_SINGLE_SPACES = [
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": r" \z"}, "content": ""},
]


def _parts_words_twice(parts: Sequence[Spec]) -> bool:
    """Check that words are parted by white space, which a Metaspace after it, that puts a space
    before each, sees no more.
    """
    return {"WhitespaceSplit", "Metaspace"} <= {str(part["type"]) for part in parts}


def _without(step: Spec | None) -> Spec | None:
    if step is None or _is_start(step):
        return None
    for name in ("normalizers", "pretokenizers"):
        if name in step:
            parts = map(_without, step[name])
            return {**step, name: [part for part in parts if part is not None]}
    changes: dict[str, Any] = {
        "Metaspace": {"prepend_scheme": "never"},
        "ByteLevel": {"add_prefix_space": False},
        "Strip": {"strip_left": False},
    }
    return {**step, **changes.get(str(step["type"]), {})}


def _is_start(step: Spec) -> bool:
    """Check that a step prepends something, or replaces what stands at the very beginning."""
    pattern = step.get("pattern")
    is_anchored = isinstance(pattern, dict) and pattern.get("Regex", "").startswith("\\A")
    return step["type"] == "Prepend" or is_anchored


class Encoders:
    """Opens a `tokenizer.json`. Raises BundleError.

    outline: the file's content, but for its vocabulary.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        text = _read(path)
        whole = _open(path, text)
        spec = _complete(path, json.loads(text))
        self._charsmap, rest = _charsmap_apart(path, spec)
        self.outline = {**spec, "model": _without_vocabulary(spec["model"])}
        self._text = json.dumps(rest)  # takes a tenth of the memory of what it holds
        self._made: dict[tuple[bool, bool], Any] = {}
        if rest is spec:
            self._made[False, False] = _as_asked(whole, parse_special=False)

    def normalise(self, text: str) -> str:
        """Return the text that all tokenizers here take."""
        return text if self._charsmap is None else self._charsmap.normalize(text)

    def normalise_with_origins(self, text: str) -> tuple[str, Sequence[int]]:
        """Return also, for each of its characters and for its end, the place in the text that was
        given.
        """
        if self._charsmap is None:
            return text, range(len(text) + 1)
        found: tuple[str, list[int]] = self._charsmap.normalize(text, with_offsets=True)
        return found

    def get(self, inside: bool = False, parse_special: bool = False) -> Any:
        """Return a tokenizer, made when it is first needed.

        inside: for a text that goes on from another one.
        """
        encoder = self._made.get((inside, parse_special))
        if encoder is None:
            encoder = self._made[inside, parse_special] = self._make(inside, parse_special)
        return encoder

    def _make(self, inside: bool, parse_special: bool) -> Any:
        text = self._text
        if inside:
            spec = json.loads(text)
            changed = inside_a_text(spec)
            if changed == spec:
                return self.get(False, parse_special)
            text = json.dumps(changed)
        return _as_asked(_open(self._path, text), parse_special)


@contextmanager
def reading(value: object) -> Iterator[None]:
    """Turn what the library raises inside, over a text or several, into Untokenizable.

    It raises bare Exception, and it panics, with what is no Exception, where a pattern of the
    tokenizer takes too many steps.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        message = f"the model's tokenizer fails at it: {error}"
        raise Untokenizable("text", value, message) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None


def _complete(path: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a file with all its parts; of a form that the library takes."""
    model = spec["model"]
    if isinstance(model["vocab"], list) and model.get("unk_id") is None:
        raise BundleError(path, ["not a tokenizer: a unigram model needs an unknown token"])
    return {"decoder": None, "normalizer": None, "pre_tokenizer": None, **spec}


def _without_vocabulary(model: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in model.items() if key not in ("vocab", "merges")}


def _as_asked(encoder: Any, parse_special: bool) -> Any:
    encoder.encode_special_tokens = not parse_special
    encoder.no_truncation()
    encoder.no_padding()
    if getattr(encoder.model, "dropout", None):  # for training
        encoder.model.dropout = None
    return encoder


def _open(path: Path, text: str) -> Any:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exception, and panics at some bytes
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None


def _charsmap_apart(
    path: Path, spec: dict[str, Any]
) -> tuple[SentencePieceNormalizer | None, dict[str, Any]]:
    """Return the rules of sentencepiece that a text is first normalised by, if there are any, and
    the tokenizer without.

    The library gives a whole cluster of characters what the first of them becomes: of an a with two
        combining marks one is lost.
    """
    normalizer = spec.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    if not steps or steps[0].get("type") != "Precompiled":
        return None, spec
    file_format: Any = sentencepiece_model_pb2  # its classes are made at run time
    proto = file_format.NormalizerSpec(
        add_dummy_prefix=False, remove_extra_whitespaces=False, escape_whitespaces=False
    )
    rest = {"type": "Sequence", "normalizers": steps[1:]}
    without = {**spec, "normalizer": rest if steps[1:] else None}
    try:
        proto.precompiled_charsmap = base64.b64decode(steps[0]["precompiled_charsmap"])
        return SentencePieceNormalizer(normalizer_spec=proto), without
    except (RuntimeError, LookupError, TypeError, ValueError) as error:
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None
