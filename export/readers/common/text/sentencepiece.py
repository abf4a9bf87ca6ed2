"""Reads sentencepiece's model files (`.model`, `.spm`, `spiece.model`).

File format: sentencepiece_model.proto of https://github.com/google/sentencepiece.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any

from sentencepiece import SentencePieceNormalizer, sentencepiece_model_pb2

from export.readers.common.text.errors import TokenizerError
from export.readers.common.text.pieces import Kind, Order, Piece, Pieces, Spelling, tokenizer_json

_UNIGRAM, _BPE = 1, 2  # TrainerSpec.ModelType


def from_sentencepiece(model: bytes, order: Order | None = None) -> bytes:
    """`tokenizer.json` of a model file; ids as they are in it, unless ordered otherwise.

    Raises TokenizerError.
    """
    return tokenizer_json(read_pieces(model), order or Order())


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


def piece_ids(model: bytes) -> dict[str, int]:
    """Read the ids of a file by name. Raises TokenizerError."""
    return {piece.name: i for i, piece in enumerate(read_pieces(model).pieces)}


def fairseq_order(model: bytes, appended: Sequence[str] = ()) -> Order:
    """As fairseq numbers a file's pieces (mBART, NLLB, XLM-R): four specials, then its text."""
    special = ("<s>", "<pad>", "</s>", "<unk>")
    names = [
        p.name for p in read_pieces(model).pieces if p.kind not in {Kind.CONTROL, Kind.UNKNOWN}
    ]
    ids = {name: token_id for token_id, name in enumerate((*special, *names))}
    return Order(ids, special, appended, unknown="<unk>")
