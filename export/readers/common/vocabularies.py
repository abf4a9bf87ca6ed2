"""Makes tokenizers of lists of words, cut by what lies beside the checkpoint.

Words are what spaces part, unless they look like sentencepiece's pieces ("▁the"), which need the
model that cuts them, or like parts of subword-nmt ("wor@@"), whose codes cut words where they are
there; without them the text must have been cut before, as the toolkit itself expects.
"""

from collections.abc import Sequence
from pathlib import Path

from export.readers.common.text.errors import TokenizerError
from export.readers.common.text.pieces import SPACE, Order
from export.readers.common.text.sentencepiece import from_sentencepiece
from export.readers.common.text.words import from_words
from models.storage.files import read_file

PIECES = ("*.spm", "*.model")
CODES = ("bpecodes*", "*codes", "code", "*.bpe")


def read_vocabulary(
    words: Sequence[str],
    special: Sequence[str],
    unknown: str,
    folder: Path,
    side: str,
    problems: list[str],
) -> bytes | None:
    """`tokenizer.json` of `words`, in the order of their ids; None, and problems, if there is none.

    special: those of the words that are no text. side: "source" or "target", which a file's name
    begins with where each side has its own.
    """
    try:
        if any(word.startswith(SPACE) for word in words):
            return _of_pieces(words, special, unknown, folder, side)
        codes = _beside(folder, CODES, side) if any(w.endswith("@@") for w in words) else None
        text = None if codes is None else _read(codes).decode("utf-8")
        return from_words(words, unknown, special, text)
    except TokenizerError as error:
        problems += [f"the {side}'s vocabulary: {problem}" for problem in error.problems]
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"the {side}'s vocabulary: what lies beside it cannot be read: {error}")
    return None


def _of_pieces(
    words: Sequence[str], special: Sequence[str], unknown: str, folder: Path, side: str
) -> bytes:
    path = _beside(folder, PIECES, side)
    if path is None:
        expected = f"{side}.spm" if side else "source.spm"
        raise TokenizerError([f"it is of sentencepiece: its model is missing ({expected})"])
    ids = {word: token_id for token_id, word in enumerate(words)}
    return from_sentencepiece(_read(path), Order(ids=ids, special=special, unknown=unknown))


def _beside(folder: Path, patterns: Sequence[str], side: str) -> Path | None:
    """Find the side's own file, or the only one."""
    found = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    found = sorted(set(found))
    own = [path for path in found if path.name.startswith(side)]
    if not own and len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise TokenizerError([f"which of {names} is it cut by? (one must begin with {side!r})"])
    return next(iter(own or found), None)


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise TokenizerError([f"{path.name} cannot be read: {error.strerror}"]) from None
