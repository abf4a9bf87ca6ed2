"""Tokenizers of pieces: WordPiece (Devlin et al. 2019) and sentencepiece."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from export.readers.common.pieces import (
    ModelPiece,
    PieceKind,
    PieceOrder,
    SentencePieceModel,
    TextNormalization,
    TokenizerError,
    tokenizer_from_pieces,
)

UNKNOWN = "[UNK]"
_UNIGRAM, _BPE = 1, 2  # TrainerSpec.ModelType


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


def tokenizer_from_sentencepiece(model: bytes, order: PieceOrder | None = None) -> bytes:
    """Return `tokenizer.json` of a model file; ids as they are in it, unless ordered otherwise.

    Raises TokenizerError.
    """
    return tokenizer_from_pieces(read_pieces(model), order or PieceOrder())


def read_pieces(model: bytes) -> SentencePieceModel:
    """Raise TokenizerError."""
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
    return SentencePieceModel(
        [ModelPiece(piece.piece, piece.score, PieceKind(piece.type)) for piece in proto.pieces],
        is_bpe=trainer.model_type == _BPE,
        has_bytes=trainer.byte_fallback,
        spelling=TextNormalization(
            charsmap=normalizer.precompiled_charsmap,
            adds_space=normalizer.add_dummy_prefix,
            space_is_suffix=trainer.treat_whitespace_as_suffix,
            trims=normalizer.remove_extra_whitespaces,
            escapes_spaces=normalizer.escape_whitespaces,
        ),
    )


def _check_rules(normalizer: Any) -> None:
    """Raise TokenizerError for normalisation rules that sentencepiece itself cannot read."""
    try:
        SentencePieceNormalizer(normalizer_spec=normalizer).normalize("a")
    except RuntimeError as error:
        raise TokenizerError([f"normalisation rules cannot be read: {error}"]) from None


def read_piece_ids(model: bytes) -> dict[str, int]:
    """Read the ids of a file by name. Raises TokenizerError."""
    return {piece.name: i for i, piece in enumerate(read_pieces(model).pieces)}


def fairseq_order(model: bytes, appended: Sequence[str] = ()) -> PieceOrder:
    """Return the ids that fairseq gives the pieces of a file (mBART, NLLB, XLM-R): four special
    tokens, then the pieces of text.
    """
    special = ("<s>", "<pad>", "</s>", "<unk>")
    names = [
        p.name
        for p in read_pieces(model).pieces
        if p.kind not in {PieceKind.CONTROL, PieceKind.UNKNOWN}
    ]
    ids = {name: token_id for token_id, name in enumerate((*special, *names))}
    return PieceOrder(ids, special, appended, unknown="<unk>")
