"""Text to token ids and back, by the bundle's own `tokenizer.json`.

Special tokens are never read from text, unless that is asked for: a literal "</s>" is four
characters. They are put around a request's ids by the pipelines, as the bundle's manifest says.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

from serving.errors import BundleError
from serving.text.spelling import Spelling, UnknownDecoder, Writer, spelling
from serving.text.word_starts import inside_a_text

# In converted tokenizers what has higher ids only helps to cut a text.
_BEYOND = "<beyond the vocabulary>"
# No text in UTF-8 has others.
_BYTES_OF_TEXTS = {bytes([byte]) for byte in range(0xF5) if byte not in (0, 0xC0, 0xC1)}


class Tokenizer:
    """vocab_size: of the model, if the tokenizer may know more; that is unknown to the model.

    A byte-level tokenizer round-trips every valid Unicode string: `decode(encode(text)) == text`.
    Others may normalise a text, or have no token for some of it: see `is_lossless`.
    """

    def __init__(self, path: Path, vocab_size: int | None = None) -> None:
        self._spec = _read_spec(path)
        self._path = path
        self._normalise, self._rest = _charsmap_apart(self._spec)
        self._encoders: dict[tuple[bool, bool], Any] = {}
        self._encoder = self._made(inside=False, parse_special=False)
        self._names = _names(self._encoder, vocab_size)
        self.special_tokens: Mapping[int, str] = _special(self._encoder, len(self._names))
        """How special tokens are written, by id."""
        self.unknown_id = _unknown_id(self._encoder, self._spec)
        self._reserved = {*self.special_tokens} - {self.unknown_id}
        self.spelling = self._spelling(path)

    @property
    def vocab_size(self) -> int:
        return len(self._names)

    @property
    def is_lossless(self) -> bool:
        """Whether every text comes back as it was."""
        is_byte_level = (self._spec["decoder"] or {}).get("type") == "ByteLevel"
        adds_space = '"add_prefix_space": true' in json.dumps(self._spec.get("pre_tokenizer"))
        has_all_bytes = {*self.spelling.table} >= _BYTES_OF_TEXTS
        changes_nothing = not self._spec.get("normalizer") and not adds_space
        return is_byte_level and has_all_bytes and changes_nothing

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """As a text begins. parse_special: read special tokens from it, as in a chat template."""
        text = self._normalise(text)
        ids = self._ids(self._made(False, parse_special), text)
        return ids if parse_special else self._plain(ids, text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        normalised = [self._normalise(text) for text in texts]
        encodings = self._encoder.encode_batch(normalised, add_special_tokens=False)
        rows = zip(encodings, normalised, strict=True)
        return [self._plain(self._known(encoding.ids), text) for encoding, text in rows]

    def encode_inside(self, text: str, parse_special: bool = False) -> list[int]:
        """As other text goes on: with a space before it only if it begins with one, if the text
        before has not ended with it.
        """
        text = self._normalise(text)
        ids = self._ids(self._made(not self.spelling.drops_last_space, parse_special), text)
        return ids if parse_special else self._plain(ids, text)

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes a token stands for inside a text, perhaps part of a character; none if
        special.
        """
        return self.spelling.table[token_id]

    def pieces(self, token_ids: Iterable[int], begins_text: bool = True) -> list[bytes]:
        """The bytes of each token in this very text."""
        writer = Writer(self.spelling, begins_text)
        return [writer.push(token_id) for token_id in token_ids]

    def decode(self, token_ids: Iterable[int], begins_text: bool = True) -> str:
        """Bytes that are not UTF-8 become U+FFFD, exactly as a `Detokenizer` streams them."""
        return b"".join(self.pieces(token_ids, begins_text)).decode("utf-8", errors="replace")

    def _ids(self, encoder: Any, text: str) -> list[int]:
        return self._known(encoder.encode(text, add_special_tokens=False).ids)

    def _plain(self, ids: list[int], text: str) -> list[int]:
        """The ids of a text without special tokens: some models find them as they find any piece.
        Their names are cut in two then.
        """
        if self._reserved.isdisjoint(ids):
            return ids
        first, *others = self._inside_names.split(text)
        ids = self._ids(self._encoder, first)
        for part in others:
            ids += self._ids(self._made(True, False), part)
        return [token_id for token_id in ids if token_id not in self._reserved]

    @cached_property
    def _inside_names(self) -> re.Pattern[str]:
        """Matches after the first character of a special token's name."""
        names = (self.special_tokens[token_id] for token_id in self._reserved)
        places = (f"(?<={re.escape(name[:1])})(?={re.escape(name[1:])})" for name in names)
        return re.compile("|".join(places))

    def _made(self, inside: bool, parse_special: bool) -> Any:
        """The library's tokenizer, made when it is first needed."""
        encoder = self._encoders.get((inside, parse_special))
        if encoder is None:
            spec = inside_a_text(self._rest) if inside else self._rest
            if inside and spec == self._rest:
                encoder = self._made(False, parse_special)
            else:
                encoder = _open(self._path, spec, parse_special)
            self._encoders[inside, parse_special] = encoder
        return encoder

    def _spelling(self, path: Path) -> Spelling:
        names = ("" if i in self.special_tokens else name for i, name in enumerate(self._names))
        try:
            return spelling(self._spec["decoder"], names)
        except UnknownDecoder as error:
            raise BundleError(path, [str(error)]) from None

    def _known(self, ids: list[int]) -> list[int]:
        """Without those that the model does not know, which become its unknown token."""
        size = len(self._names)
        if not ids or max(ids) < size:
            return list(ids)
        known = (token_id if token_id < size else self.unknown_id for token_id in ids)
        return [token_id for token_id in known if token_id is not None]


def _read_spec(path: Path) -> dict[str, Any]:
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
        spec["model"]["dropout"] = None
        spec.setdefault("decoder", None)
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise BundleError(path, [f"not a tokenizer: {error!r}"]) from None
    return dict(spec)


def _open(path: Path, spec: Mapping[str, Any], parse_special: bool) -> Any:
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    except Exception as error:  # the library raises bare Exception
        raise BundleError(path, [f"not a tokenizer: {error}"]) from None
    tokenizer.encode_special_tokens = not parse_special
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _charsmap_apart(spec: dict[str, Any]) -> tuple[Callable[[str], str], dict[str, Any]]:
    """The rules of sentencepiece that a text is first normalised by, and the tokenizer without.

    The library gives a whole cluster of characters what the first of them becomes: of an a with two
    combining marks one is lost.
    """
    normalizer = spec.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    if not steps or steps[0].get("type") != "Precompiled":
        return str, spec
    rules = base64.b64decode(steps[0]["precompiled_charsmap"])
    file_format: Any = sentencepiece_model_pb2  # its classes are made at run time
    proto = file_format.NormalizerSpec(
        precompiled_charsmap=rules,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        escape_whitespaces=False,
    )
    rest = {"type": "Sequence", "normalizers": steps[1:]}
    without = {**spec, "normalizer": rest if steps[1:] else None}
    return SentencePieceNormalizer(normalizer_spec=proto).normalize, without


def _names(tokenizer: Any, vocab_size: int | None) -> list[str]:
    """What every token of the model is called; nothing where an id has no token."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values(), default=-1) + 1
    vocab_size = min(vocabulary.get(_BEYOND, size), size if vocab_size is None else vocab_size)
    names = [""] * size
    for name, token_id in vocabulary.items():
        names[token_id] = name
    return names[:vocab_size]


def _special(tokenizer: Any, size: int) -> dict[int, str]:
    added = tokenizer.get_added_tokens_decoder()
    return {i: token.content for i, token in added.items() if token.special and i < size}


def _unknown_id(tokenizer: Any, spec: Mapping[str, Any]) -> int | None:
    model = spec["model"]
    if model.get("unk_id") is not None:
        return int(model["unk_id"])
    name = model.get("unk_token")
    unknown_id: int | None = None if name is None else tokenizer.token_to_id(name)
    return unknown_id
