"""Tokenizers of a list of words, with the BPE codes or the sentencepiece model beside it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.pieces import (
    SPACE,
    PieceOrder,
    TokenizerError,
    check_names,
)
from export.readers.common.tokenizers import tokenizer_from_sentencepiece
from models.data.tokenizer import BEYOND
from models.files import read_file

_CONTINUATION = "@@"
_END = "</w>"
PIECES = ("*.spm", "*.model")
CODES = ("bpecodes*", "*codes", "code", "*.bpe")


def tokenizer_from_words(
    words: Sequence[str], unknown: str, special: Sequence[str], codes: str | None = None
) -> bytes:
    """Return `tokenizer.json` of words in the order of their ids. Raises TokenizerError.

    codes: the text of a file of BPE codes, which cut words that are written whole; without them
    words are cut where a text has them cut, as "wor@@ ld".
    """
    check_names(words)
    special = [*dict.fromkeys((unknown, *special))]
    if missing := [name for name in special if name not in words]:
        raise TokenizerError([f"there is no token {missing[0]!r}"])
    names = [word if word in special else _token_name(word) for word in words]
    if codes is None:
        tokenizer = Tokenizer(models.WordLevel(_number_tokens(names), unknown))
        tokenizer.normalizer = _mark_ends_of_words()
    else:
        tokenizer = Tokenizer(_bpe(names, unknown, codes))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(_END)
    tokens = [AddedToken(name, special=True, normalized=False) for name in special]
    tokenizer.add_special_tokens(tokens)
    return tokenizer.to_str().encode()


def _token_name(word: str) -> str:
    continues = word.endswith(_CONTINUATION) and word != _CONTINUATION
    return word.removesuffix(_CONTINUATION) if continues else word + _END


def _number_tokens(names: Iterable[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for token_id, name in enumerate(names):
        if ids.setdefault(name, token_id) != token_id:
            raise TokenizerError([f"two tokens are called {name!r}"])
    return ids


def _mark_ends_of_words() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"(?<=\S)(?=\s|\z)"), _END),
            normalizers.Replace(Regex(rf"(?<=\S){_CONTINUATION}{_END}"), ""),
        ]
    )


def _bpe(names: Sequence[str], unknown: str, codes: str) -> models.BPE:
    """Steps between the parts that are no tokens of the model come after those that are."""
    merges = _merges(codes)
    steps = dict.fromkeys(part for pair in merges for part in (*pair, "".join(pair)))
    tokens = {*names}
    ids = _number_tokens([*names, BEYOND, *(step for step in steps if step not in tokens)])
    return models.BPE(vocab=ids, merges=merges, unk_token=unknown, end_of_word_suffix=_END)


def _merges(codes: str) -> list[tuple[str, str]]:
    """Read codes of subword-nmt from version 0.2 on, or of fastBPE, with a count in each line."""
    merges = []
    for number, line in enumerate(codes.split("\n"), 1):
        if not line.strip() or line.startswith("#version"):
            continue
        match line.strip("\r ").split(" "):
            case [left, right] | [left, right, _] if _END not in (left, right):
                merges.append((left, right))
            case _:
                raise TokenizerError([f"line {number} of the BPE codes is {line[:60]!r}"])
    return list(dict.fromkeys(merges))


def tokenizer_from_vocabulary(
    words: Sequence[str],
    special: Sequence[str],
    unknown: str,
    folder: Path,
    side: str,
    problems: list[str],
) -> bytes | None:
    """Return `tokenizer.json` of `words`, in the order of their ids; None, and problems, if there
    is none.

    special: those of the words that are no text. side: "source" or "target", which a file's name
    begins with where each side has its own.
    """
    try:
        if any(word.startswith(SPACE) for word in words):
            return _tokenizer_of_pieces(words, special, unknown, folder, side)
        codes = _find_beside(folder, CODES, side) if any(w.endswith("@@") for w in words) else None
        text = None if codes is None else _read(codes).decode("utf-8")
        return tokenizer_from_words(words, unknown, special, text)
    except TokenizerError as error:
        problems += [f"the {side}'s vocabulary: {problem}" for problem in error.problems]
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"the {side}'s vocabulary: what lies beside it cannot be read: {error}")
    return None


def _tokenizer_of_pieces(
    words: Sequence[str], special: Sequence[str], unknown: str, folder: Path, side: str
) -> bytes:
    path = _find_beside(folder, PIECES, side)
    if path is None:
        expected = f"{side}.spm" if side else "source.spm"
        raise TokenizerError([f"it is of sentencepiece: its model is missing ({expected})"])
    ids = {word: token_id for token_id, word in enumerate(words)}
    return tokenizer_from_sentencepiece(
        _read(path), PieceOrder(ids=ids, special=special, unknown=unknown)
    )


def _find_beside(folder: Path, patterns: Sequence[str], side: str) -> Path | None:
    """Return the side's own file, or the only one."""
    paths = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    paths = sorted(set(paths))
    side_paths = [path for path in paths if path.name.startswith(side)]
    if not side_paths and len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise TokenizerError([f"which of {names} is it cut by? (one must begin with {side!r})"])
    return next(iter(side_paths or paths), None)


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise TokenizerError([f"{path.name} cannot be read: {error.strerror}"]) from None
