"""The tokenizer of a GGUF file: byte-level BPE ("gpt2") or sentencepiece's ("llama").

Metadata: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. How words are parted before BPE
is only named there; the patterns of a name are those of llama.cpp, llm_tokenizer_bpe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from models.pretrained.text.errors import TokenizerError
from models.pretrained.text.pieces import Kind, Order, Piece, Pieces, Spelling, tokenizer_json

_PREFIX = "tokenizer.ggml."
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN_2 = _LLAMA_3.replace("{1,3}", "")


@dataclass(frozen=True)
class _Splitting:
    """patterns: each parts what those before have left. takes_whole_words: a word that is a token
    needs no merges. composes: Unicode's NFC comes first, as the model was trained.
    """

    patterns: tuple[str, ...]
    takes_whole_words: bool = False
    composes: bool = False


_DEFAULT = _Splitting((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))
_SPLITTINGS = {
    "default": _DEFAULT,
    "falcon": _Splitting((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais"), _Splitting((_GPT2,))),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
        _Splitting((r"\p{N}", _GPT2)),
    ),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _Splitting((_LLAMA_3,), True)),
    **dict.fromkeys(("smaug-bpe", "dbrx"), _Splitting((_LLAMA_3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _Splitting((_QWEN_2,), composes=True)),
    "stablelm2": _Splitting((_QWEN_2,)),
}


def from_gguf(fields: Mapping[str, Any], problems: list[str]) -> bytes | None:
    """`tokenizer.json` from a file's metadata by key; None if there are problems."""
    try:
        return _tokenizer(_Fields(fields))
    except TokenizerError as error:
        problems += [f"tokenizer: {problem}" for problem in error.problems]
        return None


class _Fields:
    """The metadata of a tokenizer, of the right types. Raises TokenizerError for what is not."""

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
    def kinds(self) -> list[Kind]:
        if "token_type" not in self._fields:
            return [Kind.NORMAL] * len(self.tokens)
        values = self._numbers("token_type")
        if wrong := {*values} - {*Kind}:
            raise TokenizerError([f"there is no token_type {sorted(wrong)[0]}"])
        return [Kind(int(value)) for value in values]

    @property
    def scores(self) -> list[float]:
        return [float(value) for value in self._numbers("scores")]

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
    spelling = Spelling(adds_space=fields.flag("add_space_prefix", True), trims=False)
    pieces = [Piece(*row) for row in rows]
    return tokenizer_json(Pieces(pieces, True, Kind.BYTE in kinds, spelling), Order())


def _byte_level(fields: _Fields) -> bytes:
    name = fields.text("pre", "default")
    if name not in _SPLITTINGS:
        raise TokenizerError([f"{_PREFIX}pre {name!r} is not supported"])
    splitting, tokens = _SPLITTINGS[name], fields.tokens
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise TokenizerError(["several tokens have the same name"])
    tokenizer = Tokenizer(_bpe(vocabulary, fields.merges, splitting.takes_whole_words))
    tokenizer.normalizer = normalizers.NFC() if splitting.composes else None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splitting.patterns]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    _add(tokenizer, tokens, fields.kinds)
    return tokenizer.to_str().encode()


def _bpe(vocabulary: dict[str, int], merges: Sequence[str], takes_whole_words: bool) -> models.BPE:
    """Raises TokenizerError for a merge of what are no tokens."""
    pairs = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not space or not {left, right, left + right} <= vocabulary.keys():
            raise TokenizerError([f"the merge {merge!r} is not one of tokens"])
        pairs.append((left, right))
    return models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=takes_whole_words)


def _add(tokenizer: Tokenizer, tokens: Sequence[str], kinds: Sequence[Kind]) -> None:
    """Tokens that are found in a text before all others."""
    rows = list(zip(tokens, kinds, strict=True))
    special = [token for token, kind in rows if kind in {Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED}]
    own = [token for token, kind in rows if kind == Kind.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in own])
