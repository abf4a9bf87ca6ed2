"""Converted models find the pieces that sentencepiece itself finds, and write the same texts."""

from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer as Library

from export.readers.common.pieces import PieceOrder, TokenizerError
from export.readers.common.tokenizers import (
    fairseq_order,
    read_piece_ids,
    tokenizer_from_sentencepiece,
)
from models.data.tokenizer import encode_all, load_tokenizer
from serving.text.tokenizer import Tokenizer
from tests.export.readers.common.awkward import awkward_texts
from tests.export.readers.common.sentencepiece_models import GEMMA, LLAMA, trained

MODELS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram of Marian": {"bos_id": -1, "eos_id": 0, "unk_id": 1},
    "unigram of T5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "unigram with bytes": {"byte_fallback": True, "vocab_size": 700, "character_coverage": 0.98},
    "unigram as it is": {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
    "unigram with symbols": {
        "user_defined_symbols": ("<sep>", "@@"),
        "control_symbols": ("<mask>", "[INST]"),
    },
    "unigram with spaces behind": {"treat_whitespace_as_suffix": True},
    "unigram without a space before": {"add_dummy_prefix": False},
    "bpe": {"model_type": "bpe"},
    "bpe of Llama": LLAMA,
    "bpe of Gemma": GEMMA,
    "bpe with symbols": {"model_type": "bpe", "user_defined_symbols": ("<sep>", "@@")},
    "folding": {"normalization_rule_name": "nmt_nfkc_cf"},
}
DIFFERENT = {
    # Nothing but characters that the rules drop: sentencepiece yet puts a space behind the nothing.
    "unigram with spaces behind": {
        *("\x0b\x0c", "\x01\x07\x1b\x7f", " \x0b\x0c", "\x0b\x0c ", " \x01\x07\x1b\x7f"),
        *("\x01\x07\x1b\x7f ", "\x0b\x0c\n", "\x08\ufffd\ufffd"),
    },
    # A symbol of the user's alone: the library knows it by a form that has no space before it.
    "bpe with symbols": {"@@", "@@ ", " @@"},
}
SPLITS = {
    # The library gives a cluster of characters what the first of them becomes.
    "a letter with two marks": "a\u0323\u0302",
    "half a syllable, voiced": "\uff76\uff9e",
    "a ligature with a mark": "\ufb01\u0301",
}


def own(options: dict[str, Any]) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=trained(**options))


def opened(path: Path, tokenizer_json: bytes) -> Tokenizer:
    path.write_bytes(tokenizer_json)
    return Tokenizer(path)


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_sentencepiece(name: str, tmp_path: Path) -> None:
    model = tokenizer_from_sentencepiece(trained(**MODELS[name]))
    texts = awkward_texts()

    found = opened(tmp_path / "tokenizer.json", model).encode_batch(texts)

    expected = own(MODELS[name]).encode(texts)
    rows = zip(texts, found, expected, strict=True)
    different = {text for text, ids, wanted in rows if ids != wanted}
    assert different == DIFFERENT.get(name, set())


@pytest.mark.parametrize("name", MODELS)
def test_texts_are_those_of_sentencepiece(name: str, tmp_path: Path) -> None:
    processor, data = own(MODELS[name]), tokenizer_from_sentencepiece(trained(**MODELS[name]))
    served, library = opened(tmp_path / "tokenizer.json", data), Library.from_str(data.decode())
    rows = [ids for ids in processor.encode(awkward_texts()) if processor.unk_id() not in ids]

    expected = processor.decode(rows)

    if name == "unigram with spaces behind":  # there sentencepiece leaves the space it has added
        expected = [text.removesuffix(" ") for text in expected]
    assert len(rows) > 100
    assert [served.decode(ids) for ids in rows] == expected
    assert [library.decode(ids) for ids in rows] == expected


@pytest.mark.parametrize("text", SPLITS.values(), ids=SPLITS.keys())
def test_marks_are_kept_that_the_library_would_lose(text: str, tmp_path: Path) -> None:
    options = {"byte_fallback": True}
    data = tokenizer_from_sentencepiece(trained(**options))
    served, library = opened(tmp_path / "tokenizer.json", data), Library.from_str(data.decode())

    assert served.encode(text) == own(options).encode(text)
    assert library.encode(text, add_special_tokens=False).ids != served.encode(text)


def test_pieces_take_the_ids_of_another_vocabulary(tmp_path: Path) -> None:
    """As Marian's: of other pieces too, and lacking one, which is unknown then."""
    model, processor = trained(), own({})
    names = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
    lost = processor.encode("dog", out_type=str)[0]
    known = [name for name in reversed(names) if name not in ("<s>", lost)]
    ids = {name: i for i, name in enumerate([*known, "\u2581foreign", ">>fra<<", "<pad>"])}
    order = PieceOrder(ids, special=(">>fra<<", "<pad>"))

    tokenizer = opened(tmp_path / "t.json", tokenizer_from_sentencepiece(model, order))

    texts = awkward_texts()
    pieces = processor.encode(texts, out_type=str)
    expected = [[ids.get(piece, ids["<unk>"]) for piece in row] for row in pieces]
    assert tokenizer.encode_batch(texts) == expected
    assert tokenizer.vocab_size == len(ids)
    assert tokenizer.encode("dog")[0] == ids["<unk>"]
    assert encode_all(load_tokenizer(tmp_path / "t.json"), ["dog"]) == [tokenizer.encode("dog")]
    assert ids["\u2581foreign"] not in tokenizer.encode("foreign >>fra<< <pad>")
    assert tokenizer.decode([ids["\u2581foreign"], ids[">>fra<<"], ids["<pad>"]]) == "foreign"
    assert tokenizer.encode(">>fra<<", parse_special=True) == [ids[">>fra<<"]]


@pytest.mark.parametrize("options", [{}, {"model_type": "bpe"}], ids=["unigram", "bpe"])
def test_fairseq_has_an_order_of_its_own(options: dict[str, Any], tmp_path: Path) -> None:
    """<s> <pad> </s> <unk>, then pieces, one further on than in the file; languages at the end."""
    model, processor = trained(**options), own(options)
    order = fairseq_order(model, ("en_XX", "fr_XX", "<mask>"))

    tokenizer = opened(tmp_path / "t.json", tokenizer_from_sentencepiece(model, order))

    texts = [*awkward_texts(), "en_XX"]
    expected = [[i + 1 if i else 3 for i in ids] for ids in processor.encode(texts)]
    assert tokenizer.encode_batch(texts) == expected
    size = processor.vocab_size() + 1
    special = {name: i for i, name in tokenizer.special_tokens.items()}
    assert special == {
        "<s>": 0,
        "<pad>": 1,
        "</s>": 2,
        "<unk>": 3,
        "en_XX": size,
        "fr_XX": size + 1,
        "<mask>": size + 2,
    }


def test_ids_by_name() -> None:
    ids = read_piece_ids(trained(**MODELS["unigram of Marian"]))
    assert (ids["</s>"], ids["<unk>"]) == (0, 1)


def damaged_rules() -> bytes:
    """Their size, 4 bytes at the beginning, is wrong."""
    file_format: Any = sentencepiece_model_pb2
    model = file_format.ModelProto.FromString(trained())
    model.normalizer_spec.precompiled_charsmap = b"\xff" * 8
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (b"", "has no pieces"),
        (b"not a model at all", "not a sentencepiece model"),
        (trained()[:-3], "not a sentencepiece model"),
        (trained().replace("\u2581the".encode(), b"\xff\xff\xffthe", 1), "pieces that are no text"),
        (damaged_rules(), "normalisation rules cannot be read"),
        (trained(model_type="char"), "model_type 'char' is not supported"),
    ],
)
def test_what_is_no_model_of_ours_is_refused(model: bytes, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_sentencepiece(model)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ({"<unk>": 0, "a": 0}, "each once"),
        ({"<unk>": 0, "a": -1}, "each once"),
        ({"<unk>": 0, "a": 10**9}, "each once"),
        ({"a": 0}, "no token '<unk>'"),
    ],
)
def test_orders_that_are_none_are_refused(ids: dict[str, int], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_sentencepiece(trained(), PieceOrder(ids))
