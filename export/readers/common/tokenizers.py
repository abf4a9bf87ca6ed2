"""Tokenizers of pieces (WordPiece, Devlin et al. 2019; sentencepiece) and of words, and chat
templates.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.pieces import (
    SPACE,
    Kind,
    Order,
    Piece,
    Pieces,
    Spelling,
    TokenizerError,
    check_names,
    tokenizer_from_pieces,
)
from models.data.tokenizer import BEYOND
from models.files import read_file

UNKNOWN = "[UNK]"


def tokenizer_from_word_pieces(
    ids: Mapping[str, int],
    *,
    special: Iterable[str],
    lowercase: bool,
    strip_accents: bool | None,
    splits_chinese: bool,
) -> bytes:
    """Make `tokenizer.json` of pieces with their ids; those inside words begin with ##. Raises
    TokenizerError where no piece stands for what is unknown.

    special: tokens that texts cannot spell, as far as they are pieces. strip_accents: None where
    that goes with `lowercase`. splits_chinese: each of its characters is a word.
    """
    if UNKNOWN not in ids:
        raise TokenizerError([f"vocab.txt has no {UNKNOWN}"])
    tokenizer = Tokenizer(models.WordPiece(dict(ids), unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=splits_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([token for token in dict.fromkeys(special) if token in ids])
    return tokenizer.to_str().encode()


DEFAULT, TOOLS = "default", "tool_use"


def merge_templates(templates: Mapping[str, str], notes: list[str]) -> str | None:
    """Return one template that is "tool_use" in chats with tools and "default" in others, as
    `transformers` chooses between them. Other templates are left out, with a note.
    """
    others = sorted(templates.keys() - {DEFAULT, TOOLS})
    if others:
        notes.append(f"chat templates are left out: {', '.join(others)}")
    usual, for_tools = (templates.get(name) for name in (DEFAULT, TOOLS))
    if for_tools is None or usual is None or for_tools == usual:
        return usual if for_tools is None else for_tools
    # A plus keeps the white space beside a tag, which Jinja would remove with `trim_blocks` and
    # `lstrip_blocks`. Of each template it drops one newline at the end.
    first, second = for_tools.removesuffix("\n"), usual.removesuffix("\n")
    return f"{{% if tools +%}}{first}{{%+ else +%}}{second}{{%+ endif %}}"


_GOES_ON = "@@"
_END = "</w>"


def tokenizer_from_words(
    words: Sequence[str], unknown: str, special: Sequence[str], codes: str | None = None
) -> bytes:
    """`tokenizer.json` of words in the order of their ids. Raises TokenizerError.

    codes: the text of a file of BPE codes, which cut words that are written whole; without them
    words are cut where a text has them cut, as "wor@@ ld".
    """
    check_names(words)
    special = [*dict.fromkeys((unknown, *special))]
    if missing := [name for name in special if name not in words]:
        raise TokenizerError([f"there is no token {missing[0]!r}"])
    names = [word if word in special else _name(word) for word in words]
    if codes is None:
        tokenizer = Tokenizer(models.WordLevel(_ids(names), unknown))
        tokenizer.normalizer = _ends_of_words()
    else:
        tokenizer = Tokenizer(_bpe(names, unknown, codes))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.BPEDecoder(_END)
    tokens = [AddedToken(name, special=True, normalized=False) for name in special]
    tokenizer.add_special_tokens(tokens)
    return tokenizer.to_str().encode()


def _name(word: str) -> str:
    goes_on = word.endswith(_GOES_ON) and word != _GOES_ON
    return word.removesuffix(_GOES_ON) if goes_on else word + _END


def _ids(names: Iterable[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for token_id, name in enumerate(names):
        if ids.setdefault(name, token_id) != token_id:
            raise TokenizerError([f"two tokens are called {name!r}"])
    return ids


def _ends_of_words() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(r"(?<=\S)(?=\s|\z)"), _END),
            normalizers.Replace(Regex(rf"(?<=\S){_GOES_ON}{_END}"), ""),
        ]
    )


def _bpe(names: Sequence[str], unknown: str, codes: str) -> models.BPE:
    """Steps between the parts that are no tokens of the model come after those that are."""
    merges = _merges(codes)
    steps = dict.fromkeys(part for pair in merges for part in (*pair, "".join(pair)))
    tokens = {*names}
    ids = _ids([*names, BEYOND, *(step for step in steps if step not in tokens)])
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


_UNIGRAM, _BPE = 1, 2  # TrainerSpec.ModelType


def tokenizer_from_sentencepiece(model: bytes, order: Order | None = None) -> bytes:
    """`tokenizer.json` of a model file; ids as they are in it, unless ordered otherwise.

    Raises TokenizerError.
    """
    return tokenizer_from_pieces(read_pieces(model), order or Order())


def read_pieces(model: bytes) -> Pieces:
    """Raises TokenizerError."""
    file_format: Any = sentencepiece_model_pb2  # its classes are made at run time
    proto = file_format.ModelProto()
    try:
        proto.ParseFromString(model)
    except Exception:  # DecodeError of protobuf, which is no dependency of ours
        raise TokenizerError(["not a sentencepiece model"]) from None
    if not proto.pieces:
        raise TokenizerError(["not a sentencepiece model: it has no pieces"])
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    if trainer.model_type not in {_UNIGRAM, _BPE}:
        name = trainer.ModelType.Name(trainer.model_type).lower()
        raise TokenizerError([f"sentencepiece model_type {name!r} is not supported"])
    if not all(isinstance(p.piece, str) and isfinite(p.score) for p in proto.pieces):
        raise TokenizerError(["not a sentencepiece model: it has pieces that are no text"])
    _check_rules(normalizer)
    return Pieces(
        [Piece(piece.piece, piece.score, Kind(piece.type)) for piece in proto.pieces],
        is_bpe=trainer.model_type == _BPE,
        has_bytes=trainer.byte_fallback,
        spelling=Spelling(
            charsmap=normalizer.precompiled_charsmap,
            adds_space=normalizer.add_dummy_prefix,
            space_is_suffix=trainer.treat_whitespace_as_suffix,
            trims=normalizer.remove_extra_whitespaces,
            escapes_spaces=normalizer.escape_whitespaces,
        ),
    )


def _check_rules(normalizer: Any) -> None:
    """Raises TokenizerError for normalisation rules that sentencepiece itself cannot read."""
    try:
        SentencePieceNormalizer(normalizer_spec=normalizer).normalize("a")
    except RuntimeError as error:
        raise TokenizerError([f"normalisation rules cannot be read: {error}"]) from None


def read_piece_ids(model: bytes) -> dict[str, int]:
    """Read the ids of a file by name. Raises TokenizerError."""
    return {piece.name: i for i, piece in enumerate(read_pieces(model).pieces)}


def fairseq_order(model: bytes, appended: Sequence[str] = ()) -> Order:
    """Return the ids that fairseq gives the pieces of a file (mBART, NLLB, XLM-R): four special
    tokens, then the pieces of text.
    """
    special = ("<s>", "<pad>", "</s>", "<unk>")
    names = [
        p.name for p in read_pieces(model).pieces if p.kind not in {Kind.CONTROL, Kind.UNKNOWN}
    ]
    ids = {name: token_id for token_id, name in enumerate((*special, *names))}
    return Order(ids, special, appended, unknown="<unk>")


PIECES = ("*.spm", "*.model")
CODES = ("bpecodes*", "*codes", "code", "*.bpe")


def tokenizer_from_vocabulary(
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
        _read(path), Order(ids=ids, special=special, unknown=unknown)
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
