"""The tokenizer of a GGUF file as `tokenizer.json`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from export.readers.common.byte_level import byte_level_bpe
from export.readers.common.pieces import (
    ModelPiece,
    PieceKind,
    PieceOrder,
    SentencePieceModel,
    TextNormalization,
    TokenizerError,
    tokenizer_from_pieces,
)

_PREFIX = "tokenizer.ggml."


def tokenizer_from_gguf(fields: Mapping[str, Any], problems: list[str]) -> bytes | None:
    """Return `tokenizer.json` from a file's metadata by key; None if there are problems."""
    try:
        return _tokenizer(_Fields(fields))
    except TokenizerError as error:
        problems += [f"tokenizer: {problem}" for problem in error.problems]
        return None


class _Fields:
    """The metadata of a tokenizer, with types checked. Raises TokenizerError."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = {
            key.removeprefix(_PREFIX): value
            for key, value in fields.items()
            if key.startswith(_PREFIX)
        }

    @property
    def tokens(self) -> list[str]:
        return self._list("tokens", str)

    @property
    def merges(self) -> list[str]:
        return self._list("merges", str)

    @property
    def kinds(self) -> list[PieceKind]:
        if "token_type" not in self._fields:
            return [PieceKind.NORMAL] * len(self.tokens)
        values = self._numbers("token_type")
        if wrong := {*values} - {*PieceKind}:
            raise TokenizerError([f"there is no token_type {min(wrong):g}"])
        return [PieceKind(int(value)) for value in values]

    @property
    def scores(self) -> list[float]:
        return [float(value) for value in self._numbers("scores")]

    @property
    def unknown(self) -> str | None:
        """Return the unknown token by the id in the file, or the first token, as llama.cpp does.

        None if a token's kind says which it is.
        """
        token_id = self._fields.get(
            "unknown_token_id", None if PieceKind.UNKNOWN in self.kinds else 0
        )
        if token_id is None:
            return None
        if not isinstance(token_id, int) or not 0 <= token_id < len(self.tokens):
            message = f"{_PREFIX}unknown_token_id {token_id!r} is no token's"
            raise TokenizerError([message])
        return self.tokens[token_id]

    def text(self, key: str, default: str | None = None) -> str:
        value = self._fields.get(key, default)
        if not isinstance(value, str):
            raise TokenizerError([f"{_PREFIX}{key} must be a text, this is {value!r}"])
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._fields.get(key, default)
        if not isinstance(value, bool | np.bool_):
            raise TokenizerError([f"{_PREFIX}{key} must be true or false, this is {value!r}"])
        return bool(value)

    def _numbers(self, key: str) -> list[float]:
        """One for each token."""
        try:
            numbers = np.asarray(self._fields[key], np.float64)
        except (KeyError, TypeError, ValueError):
            raise TokenizerError([f"{_PREFIX}{key} must be a list of numbers"]) from None
        if numbers.shape != (len(self.tokens),) or not np.isfinite(numbers).all():
            raise TokenizerError([f"{_PREFIX}{key} must have a number for each token"])
        return numbers.tolist()

    def _list(self, key: str, kind: type) -> list[Any]:
        value = self._fields.get(key)
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise TokenizerError([f"{_PREFIX}{key} must be a list of texts"])
        return value


def _tokenizer(fields: _Fields) -> bytes:
    readers = {"gpt2": _byte_level, "llama": _sentencepiece}
    model = fields.text("model")
    if model not in readers:
        raise TokenizerError([f"{_PREFIX}model {model!r} is not supported"])
    return readers[model](fields)


def _sentencepiece(fields: _Fields) -> bytes:
    kinds = fields.kinds
    rows = zip(fields.tokens, fields.scores, kinds, strict=True)
    spelling = TextNormalization(adds_space=fields.flag("add_space_prefix", True), trims=False)
    pieces = [ModelPiece(*row) for row in rows]
    source = SentencePieceModel(pieces, True, PieceKind.BYTE in kinds, spelling)
    return tokenizer_from_pieces(source, PieceOrder(unknown=fields.unknown))


def _byte_level(fields: _Fields) -> bytes:
    tokens = fields.tokens
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise TokenizerError(["several tokens have the same name"])
    tokenizer = byte_level_bpe(vocabulary, fields.merges, fields.text("pre", "default"))
    _add(tokenizer, tokens, fields.kinds)
    return tokenizer.to_str().encode()


def _add(tokenizer: Tokenizer, tokens: Sequence[str], kinds: Sequence[PieceKind]) -> None:
    """Tokens that are found in a text before all others."""
    rows = list(zip(tokens, kinds, strict=True))
    special = [
        token
        for token, kind in rows
        if kind in {PieceKind.CONTROL, PieceKind.UNKNOWN, PieceKind.UNUSED}
    ]
    user_defined = [token for token, kind in rows if kind == PieceKind.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in user_defined])
