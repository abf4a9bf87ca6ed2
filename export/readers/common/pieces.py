"""SentencePiece's pieces as a `tokenizer.json` that finds the same pieces, and tokenizers' errors.

The pieces may come from a `.spm` or a GGUF file; the order of ids is the caller's. Algorithms: Kudo
2018 (unigram), Sennrich et al. 2016 (BPE), as sentencepiece 0.2 runs them. A piece that no text may
become has a space before its name: normalised text has none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from models.data.tokenizer import BEYOND


class TokenizerError(Exception):
    """A tokenizer that cannot be converted; `problems` lists every reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@contextmanager
def using_library(subject: str) -> Iterator[None]:
    """Inside, what the tokenizers' library raises becomes TokenizerError: bare Exception, or a
    panic, which is no Exception.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TokenizerError([f"{subject}: {error}"]) from None


def check_names(names: Iterable[str]) -> None:
    """Raise TokenizerError for a name that is no Unicode text, as JSON and pickles may hold."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise TokenizerError([f"the token {name!r} is no text"]) from None


SPACE = "\u2581"  # stands for a space in the names of pieces
MOST_SPACES = 2**16  # more than any text begins with


class PieceKind(IntEnum):
    """Names types of pieces: of sentencepiece_model.proto and `tokenizer.ggml.token_type` alike."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class ModelPiece:
    name: str
    score: float
    kind: PieceKind

    @property
    def is_text(self) -> bool:
        """Return whether a text can become this piece."""
        return self.kind in {PieceKind.NORMAL, PieceKind.USER_DEFINED}


@dataclass(frozen=True)
class TextNormalization:
    """The changes to a text before it is split into pieces, undone afterwards.

    charsmap: sentencepiece's compiled normalisation rules; empty if there are none.
    adds_space: whether a space is added in front of the text, or behind it if `space_is_suffix`.
    trims: whether runs of spaces become one, and spaces at the ends are removed.
    """

    charsmap: bytes = b""
    adds_space: bool = True
    space_is_suffix: bool = False
    trims: bool = True
    escapes_spaces: bool = True


@dataclass(frozen=True)
class SentencePieceModel:
    """A sentencepiece model. has_bytes: what is in no piece becomes its UTF-8 bytes."""

    pieces: Sequence[ModelPiece]
    is_bpe: bool
    has_bytes: bool
    spelling: TextNormalization


@dataclass(frozen=True)
class PieceOrder:
    """The ids of pieces in a model, if they differ from their numbers in the file.

    ids: by name. Other pieces are unknown to the model; a name that is no piece is never found in a
        text.
    special: names that are no text.
    appended: special tokens that get the following ids.
    unknown: the name of the unknown token; None: that of the file.
    """

    ids: Mapping[str, int] | None = None
    special: Sequence[str] = ()
    appended: Sequence[str] = ()
    unknown: str | None = None


def tokenizer_from_pieces(source: SentencePieceModel, order: PieceOrder) -> bytes:
    """Return `tokenizer.json`. Pieces that the order lacks come after the model's ids and BEYOND.

    Raises TokenizerError.
    """
    vocabulary = _Vocabulary(source, order)
    tokenizer = Tokenizer(_bpe(vocabulary) if source.is_bpe else _unigram(vocabulary))
    symbols = vocabulary.user_defined if source.is_bpe else []
    tokenizer.normalizer = _normalizer(source.spelling, symbols)
    if guarded := [] if source.is_bpe else _guard_special_tokens(vocabulary):
        pattern = Regex("|".join(guarded))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, "merged_with_previous")
    tokenizer.decoder = _decoder(source, vocabulary.has_foreign)
    tokenizer.add_special_tokens([_special_token(name) for name in vocabulary.special])
    tokenizer.add_tokens([AddedToken(name, normalized=True) for name in symbols])
    return tokenizer.to_str().encode()


class _Vocabulary:
    """All ids with their pieces."""

    def __init__(self, source: SentencePieceModel, order: PieceOrder) -> None:
        self.source = source
        self.pieces = _by_name(source.pieces)
        ids = {name: i for i, name in enumerate(self.pieces)} if order.ids is None else order.ids
        self.unknown = order.unknown or _unknown_name(source.pieces)
        named = _names_by_id(ids)
        self._specials = {self.unknown, *order.special, *order.appended}
        self.special = [name for name in named if self._is_special(name)]
        self.special += order.appended
        lost = [piece.name for piece in source.pieces if piece.is_text and piece.name not in ids]
        self.names = [*named, *order.appended, BEYOND, *lost] if lost else named
        if self.unknown not in self.names:
            raise TokenizerError([f"there is no token {self.unknown!r}"])

    @property
    def user_defined(self) -> list[str]:
        return [name for name in self.names if self._kind(name) == PieceKind.USER_DEFINED]

    @property
    def has_foreign(self) -> bool:
        """Return whether there are names of text that no text can become."""
        return any(map(self.is_foreign, self.names))

    def is_foreign(self, name: str) -> bool:
        kind = self._kind(name)
        is_known = self._is_special(name) or name == BEYOND
        is_hidden = kind == PieceKind.UNUSED or (kind is None and not is_known)
        return is_hidden and not self.source.is_bpe

    def _kind(self, name: str) -> PieceKind | None:
        return self.pieces[name].kind if name in self.pieces else None

    def _is_special(self, name: str) -> bool:
        is_named = name in self._specials or name.startswith(_HOLE)
        return is_named or self._kind(name) in {PieceKind.CONTROL, PieceKind.UNKNOWN}


_HOLE = "<no token "  # an id between others that stands for nothing


def _by_name(pieces: Iterable[ModelPiece]) -> dict[str, ModelPiece]:
    """Raise TokenizerError for a name that two have."""
    table: dict[str, ModelPiece] = {}
    for piece in pieces:
        if table.setdefault(piece.name, piece) is not piece:
            raise TokenizerError([f"two tokens are called {piece.name!r}"])
    return table


def _unknown_name(pieces: Iterable[ModelPiece]) -> str:
    names = [piece.name for piece in pieces if piece.kind == PieceKind.UNKNOWN]
    if not names:
        raise TokenizerError(["there is no unknown token"])
    return names[0]


def _names_by_id(ids: Mapping[str, int]) -> list[str]:
    """Raise TokenizerError for an id that two have, or that leaves most ids without a name."""
    check_names(ids)
    names = {token_id: name for name, token_id in ids.items()}
    size = max(names, default=-1) + 1
    if len(names) < len(ids) or min(names, default=0) < 0 or size > 2 * len(ids) + 1000:
        raise TokenizerError(["the ids of tokens are not numbers from 0, each once"])
    return [names.get(token_id, f"{_HOLE}{token_id}>") for token_id in range(size)]


def _unigram(vocabulary: _Vocabulary) -> models.Unigram:
    """Each piece with its logarithmic probability; those of specials count for nothing."""
    pieces = vocabulary.pieces
    scores = [piece.score for piece in pieces.values() if piece.kind == PieceKind.NORMAL]
    highest = max(scores, default=0.0)
    entries = []
    for name in vocabulary.names:
        piece = pieces.get(name)
        if vocabulary.is_foreign(name):
            entries.append((" " + name, 0.0))
        elif piece is None or not piece.is_text:
            entries.append((name, 0.0))
        elif piece.kind == PieceKind.USER_DEFINED:  # unigram_model.cc, EncodeOptimized
            entries.append((name, len(name.encode()) * highest - 0.1))
        else:
            entries.append((name, piece.score))
    unknown_id = vocabulary.names.index(vocabulary.unknown)
    return models.Unigram(entries, unknown_id, vocabulary.source.has_bytes)


def _bpe(vocabulary: _Vocabulary) -> models.BPE:
    return models.BPE(
        vocab={name: token_id for token_id, name in enumerate(vocabulary.names)},
        merges=_merges(vocabulary),
        unk_token=vocabulary.unknown,
        fuse_unk=True,
        byte_fallback=vocabulary.source.has_bytes,
    )


def _merges(vocabulary: _Vocabulary) -> list[tuple[str, str]]:
    """Every way to make a piece of two, the pieces with the highest scores first."""
    rank = {name: token_id for token_id, name in enumerate(vocabulary.names)}
    mergeable = {p.name: p for p in vocabulary.pieces.values() if p.kind == PieceKind.NORMAL}
    merges = []
    for name, piece in mergeable.items():
        halves = ((name[:end], name[end:]) for end in range(1, len(name)))
        for left, right in halves:
            if left in mergeable and right in mergeable:
                merges.append((-piece.score, rank[name], rank[left], rank[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def _normalizer(spelling: TextNormalization, user_symbols: Sequence[str]) -> normalizers.Normalizer:
    """own: symbols that are looked for in normalised text, after being normalised themselves: which
    must not put a space before them.
    """
    space = SPACE if spelling.escapes_spaces else " "
    steps: list[Any] = []
    if spelling.charsmap:
        steps.append(_precompiled_rules(spelling.charsmap))
    if spelling.trims:
        steps += [
            normalizers.Replace(Regex(r"\A +"), ""),
            normalizers.Replace(Regex(r" {2,}"), " "),
            normalizers.Replace(Regex(rf"[ {space}]+\z"), ""),
        ]
    if spelling.adds_space:
        symbols = "|".join(map(re.escape, user_symbols))
        other = rf"(?!(?:{symbols})\z)" if user_symbols else ""
        place = r"(?<=[\s\S])\z" if spelling.space_is_suffix else r"\A(?=[\s\S])" + other
        steps.append(normalizers.Replace(Regex(place), space))
    if spelling.escapes_spaces:
        steps.append(normalizers.Replace(" ", SPACE))
    return normalizers.Sequence(steps)


def _precompiled_rules(charsmap: bytes) -> normalizers.Normalizer:
    try:
        return normalizers.Precompiled(charsmap)
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError([f"normalisation rules cannot be read: {error}"]) from None


def _guard_special_tokens(vocabulary: _Vocabulary) -> list[str]:
    """Patterns before whose end a text is cut, so that none of it becomes a special piece or a
    byte: where no piece reaches across, if there is such a place.
    """
    pairs = {
        name[i : i + 2]
        for name, piece in vocabulary.pieces.items()
        if piece.is_text
        for i in range(len(name) - 1)
    }
    special = {*vocabulary.special}
    names = [name for name in vocabulary.names if name in special and len(name) > 1]
    texts = {name for name, piece in vocabulary.pieces.items() if piece.is_text}
    patterns = [_cut(name, pairs, texts) for name in names if not name.startswith(_HOLE)]
    if vocabulary.source.has_bytes:
        patterns.append("<(?=0x[0-9A-F]{2}>)")
    return patterns


def _cut(name: str, pairs: set[str], texts: set[str]) -> str:
    """Not between two unknown characters, which are one unknown token together."""
    places = range(1, len(name))
    free = (
        i for i in places if name[i - 1 : i + 1] not in pairs and {*name[i - 1 : i + 1]} & texts
    )
    place = next(free, 1)
    return f"{re.escape(name[:place])}(?={re.escape(name[place:])})"


def _decoder(source: SentencePieceModel, has_foreign: bool) -> decoders.Decoder:
    spelling = source.spelling
    steps: list[Any] = []
    if has_foreign:
        steps.append(decoders.Replace(" ", ""))
    if spelling.escapes_spaces:
        steps.append(decoders.Replace(SPACE, " "))
    if source.has_bytes:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if spelling.space_is_suffix:
        steps.append(decoders.Replace(Regex(r" \z"), ""))
    elif spelling.adds_space or spelling.trims:
        steps.append(decoders.Strip(" ", MOST_SPACES if spelling.trims else 1, 0))
    return decoders.Sequence(steps)


def _special_token(name: str) -> AddedToken:
    return AddedToken(name, special=True, normalized=False)
