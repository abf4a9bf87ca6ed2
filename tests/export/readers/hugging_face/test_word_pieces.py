"""Folders with nothing but a `vocab.txt`: read as `transformers` reads them, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from export.readers.hugging_face.tokenizers import read_tokenizers


def pieces_of(text: str) -> list[str]:
    return text.split()


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
MPNET = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
LOWER = [*SPECIAL, *pieces_of("the cat sat on a mat ##s ##é e é c b ##r br 猫 - . 12")]
CASED = [*SPECIAL, *pieces_of("The the C Br ##r Cl ( ) = 1 é É E 猫 ##s cat")]
CHEMISTRY = [*SPECIAL, *pieces_of("C Br ##C ##Br N ( ) = # 1")]
ODD_LINES = [
    *SPECIAL,
    "a\u2028b",
    "a\x85b",
    "the",
    "a\x1cb",
    "cat",
]  # ends of lines in Python alone
TEXTS = [
    "The cat sat.",
    "C Br CBr Cl (é) É",
    "cats 猫猫 E 12",
    "[MASK] [unused0] thé",
    "",
    "\u2028",
]
BERT = {"tokenizer_class": "BertTokenizer"}

READ: list[tuple[str, dict[str, Any], dict[str, Any] | None, list[str]]] = [
    ("bert uncased", {"model_type": "bert"}, None, LOWER),
    ("bert uncased, said", {"model_type": "bert"}, {"do_lower_case": True}, LOWER),
    ("bert cased", {"model_type": "bert"}, {"do_lower_case": False}, CASED),
    ("capitals lower-cased all the same", {"model_type": "bert"}, {"do_lower_case": True}, CASED),
    ("accents kept", {"model_type": "bert"}, {"strip_accents": False}, LOWER),
    ("accents of cased stripped", {"model_type": "bert"}, BERT
     | {"do_lower_case": False, "strip_accents": True}, CASED),
    ("chinese in one", {"model_type": "bert"}, {"tokenize_chinese_chars": False}, LOWER),
    ("a fast class", {"model_type": "bert"}, {"tokenizer_class": "BertTokenizerFast"}, LOWER),
    ("class in config.json", {"model_type": "gpt2", **BERT}, None, LOWER),
    ("electra", {"model_type": "electra"}, None, LOWER),
    ("electra of its class", {"model_type": "electra"}, {"tokenizer_class": "ElectraTokenizer",
     "do_lower_case": False}, CASED),
    ("distilbert", {"model_type": "distilbert"}, {"tokenizer_class": "DistilBertTokenizer"}, LOWER),
    ("distilbert cased", {"model_type": "distilbert"}, {"do_lower_case": False}, CASED),
    ("mpnet", {"model_type": "mpnet"}, None, [*MPNET, *LOWER[6:]]),
    ("nomic", {"model_type": "nomic_bert"}, None, LOWER),
    ("chemistry's albert", {"model_type": "albert"}, BERT | {"do_lower_case": False}, CHEMISTRY),
    ("chinese gpt2", {"model_type": "gpt2"}, BERT, LOWER),
    ("lines that only Python ends", {"model_type": "bert"}, None, ODD_LINES),
]  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], dict[str, Any] | None, list[str], str]] = [
    ("capitals, and no word of them", {"model_type": "bert"}, None, CASED, "do_lower_case"),
    ("an empty configuration", {"model_type": "electra"}, {}, CASED, "do_lower_case"),
    ("chemistry's bert", {"model_type": "bert"}, BERT, CHEMISTRY, "'Br'"),
    ("chemistry's albert", {"model_type": "albert"}, None, CHEMISTRY, "tokenizer_class"),
    ("albert in lower case", {"model_type": "albert"}, None, LOWER, "tokenizer_class"),
    ("albert of its class", {"model_type": "albert"}, {"tokenizer_class": "AlbertTokenizer"},
     LOWER, "AlbertTokenizer"),
    ("roberta", {"model_type": "roberta"}, None, LOWER, "tokenizer_class"),
    ("gpt2", {"model_type": "gpt2"}, {"do_lower_case": False}, LOWER, "tokenizer_class"),
    ("japanese", {"model_type": "bert"}, {"tokenizer_class": "BertJapaneseTokenizer"}, LOWER,
     "BertJapaneseTokenizer"),
    ("japanese of old", {"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"}, None,
     LOWER, "BertJapaneseTokenizer"),
    ("a class without a vocabulary", {"model_type": "bert"},
     {"tokenizer_class": "PreTrainedTokenizerFast"}, LOWER, "PreTrainedTokenizerFast"),
    ("no truth", {"model_type": "bert"}, {"do_lower_case": "false"}, LOWER, "do_lower_case"),
    ("no truth of accents", {"model_type": "bert"}, {"strip_accents": 1}, LOWER, "strip_accents"),
]  # fmt: skip


def folder_of(
    tmp_path: Path, model: dict[str, Any], said: dict[str, Any] | None, pieces: list[str]
) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(model))
    (tmp_path / "vocab.txt").write_bytes("".join(f"{piece}\n" for piece in pieces).encode())
    if said is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    return tmp_path


@pytest.mark.parametrize("case", READ, ids=lambda case: case[0])
def test_it_cuts_as_in_transformers(case: Any, tmp_path: Path) -> None:
    folder, problems = folder_of(tmp_path, *case[1:]), list[str]()
    found = read_tokenizers(folder, problems)
    assert found is not None, problems
    ours, theirs = Tokenizer.from_str(found.source.decode()), AutoTokenizer.from_pretrained(folder)
    assert {theirs.get_vocab()[piece] for piece in case[3]} == {*range(len(case[3]))}
    assert {piece: ours.get_vocab()[piece] for piece in case[3]} == {
        piece: number for number, piece in enumerate(case[3])
    }
    for text in TEXTS:
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_special_tokens=False).ids == expected, text


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_what_is_not_said_is_not_made_up(case: Any, tmp_path: Path) -> None:
    *files, word = case[1:]
    problems: list[str] = []
    assert read_tokenizers(folder_of(tmp_path, *files), problems) is None
    assert word in "; ".join(problems)
