"""Tokenizers of GGUF files, beside the tokenizers that they were made from."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from export.readers.gguf import from_gguf
from serving.text.tokenizer import Tokenizer
from tests.export.readers.common.awkward import SCRIPTS, awkward_texts
from tests.export.readers.common.sentencepiece_models import GEMMA, LLAMA, trained

TEXTS = awkward_texts()
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), BYTES])


# As the models' own tokenizer.json have them.
SPLITTINGS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    ),
    "llama-bpe": split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST),
    "qwen2": split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST),
}


def served(path: Path, fields: dict[str, Any]) -> Tokenizer:
    problems: list[str] = []
    data = from_gguf({f"tokenizer.ggml.{key}": value for key, value in fields.items()}, problems)
    assert data is not None, problems
    path.write_bytes(data)
    return Tokenizer(path)


def byte_level(name: str) -> Library:
    tokenizer = Library(models.BPE(ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = SPLITTINGS[name]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(SCRIPTS * 3, trainer)
    return tokenizer


def fields_of(tokenizer: Library, name: str) -> dict[str, Any]:
    vocabulary: dict[str, int] = tokenizer.get_vocab(True)
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    kinds = np.array([3, 3] + [1] * (len(tokens) - 2), np.int32)
    return {
        "model": "gpt2",
        "pre": name,
        "tokens": tokens,
        "token_type": kinds,
        "merges": [" ".join(pair) for pair in merges],
    }


@pytest.mark.parametrize("name", SPLITTINGS)
def test_words_are_parted_as_a_name_says(name: str, tmp_path: Path) -> None:
    own = byte_level(name)
    own.encode_special_tokens = True

    tokenizer = served(tmp_path / "tokenizer.json", fields_of(own, name))

    if name == "qwen2":  # as Qwen's own
        own.normalizer = normalizers.NFC()
    encodings = own.encode_batch(TEXTS, add_special_tokens=False)
    assert tokenizer.encode_batch(TEXTS) == [encoding.ids for encoding in encodings]
    assert tokenizer.special_tokens == {0: "<|im_start|>", 1: "<|im_end|>"}
    assert tokenizer.is_lossless == (name != "qwen2")


def sentencepiece_fields(model: bytes) -> dict[str, Any]:
    own = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(own.vocab_size())
    kinds = [
        2 if own.is_unknown(i) else 3 if own.is_control(i) else 6 if own.is_byte(i) else 1
        for i in ids
    ]
    tokens = [own.id_to_piece(i) for i in ids]
    symbols = ("▁▁", "▁▁▁", "\n", "<sep>")  # of Gemma's; no pieces of Llama's
    kinds = [4 if token in symbols else kind for token, kind in zip(tokens, kinds, strict=True)]
    return {
        "model": "llama",
        "tokens": tokens,
        "token_type": [
            4 if token in symbols else k for token, k in zip(tokens, kinds, strict=True)
        ],
        "scores": np.array([own.get_score(i) for i in ids], np.float32),
    }


@pytest.mark.parametrize("options", [LLAMA, GEMMA], ids=["Llama", "Gemma"])
def test_pieces_of_sentencepiece(options: dict[str, Any], tmp_path: Path) -> None:
    model = trained(**options)
    fields = {**sentencepiece_fields(model), "add_space_prefix": options is LLAMA}

    tokenizer = served(tmp_path / "tokenizer.json", fields)

    own = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert tokenizer.encode_batch(TEXTS) == own.encode(TEXTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "rwkv"}, "tokenizer.ggml.model 'rwkv' is not supported"),
        ({"model": 5}, "tokenizer.ggml.model must be a text, this is 5"),
        ({"pre": "klingon"}, "tokenizer.ggml.pre 'klingon' is not supported"),
        ({"tokens": "abc"}, "tokenizer.ggml.tokens must be a list of texts"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, "several tokens have the same name"),
        ({"merges": ["a"]}, "the merge 'a' is not one of tokens"),
        ({"merges": ["a zzz"]}, "the merge 'a zzz' is not one of tokens"),
        ({"token_type": [1]}, "tokenizer.ggml.token_type must have a number for each token"),
        ({"token_type": [9] * 600}, "there is no token_type 9"),
        ({"model": "llama"}, "tokenizer.ggml.scores must be a list of numbers"),
    ],
)
def test_what_is_wrong_is_told(changes: dict[str, Any], message: str) -> None:
    fields = {**fields_of(byte_level("gpt-2"), "gpt-2"), **changes}
    problems: list[str] = []
    named = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    assert from_gguf(named, problems) is None
    assert problems == [f"tokenizer: {message}"]
