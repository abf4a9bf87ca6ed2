"""Tokenizers of GGUF files, beside the tokenizers that they were made from."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex  # type: ignore[import-untyped]  # another engine; transformers needs it
import sentencepiece
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library
from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX as QWEN_35

from export.readers.common.byte_level import PRE_TOKENIZATIONS as KNOWN
from export.readers.common.byte_level import byte_level_bpe
from export.readers.gguf.tokenizer import tokenizer_from_gguf
from serving.text.tokenizer import Tokenizer
from tests.export.readers.common.awkward import SCRIPTS, awkward_texts
from tests.export.readers.common.sentencepiece_models import GEMMA, LLAMA, trained

TEXTS = awkward_texts()
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), BYTES])


def digits_first() -> pre_tokenizers.PreTokenizer:
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), whole])


LLAMA_3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED_REST = REST.replace(r"[\r\n]*", "[\\r\\n/]*")
START = r"[^\r\n\p{L}\p{N}]?"
# As the models' own tokenizer.json have them.
SPLITTINGS = {
    "bailingmoe": split(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    "bloom": split(r" ?[^(\s|[.,!?…。，、।۔،])]+"),
    "command-r": digits_first(),
    "dbrx": split(LLAMA_3),
    "deepseek-v3": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            pre_tokenizers.Split(Regex("[一-龥\u3040-ゟ゠-ヿ]+"), "isolated"),
            split(
                r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
                r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
        ]
    ),
    "falcon": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    ),
    "glm4": split(LLAMA_3),
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "gpt-4o": split(
        f"{START}{UPPER}*{LOWER}+{CONTRACTIONS}?|{START}{UPPER}+{LOWER}*{CONTRACTIONS}?"
        r"|\p{N}{1,3}" + CASED_REST
    ),
    "llama-bpe": split(LLAMA_3),
    "minicpm5": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
            split(LLAMA_3.replace("{1,3}", "+")),
        ]
    ),
    "qwen2": split(LLAMA_3.replace("{1,3}", "")),
    "qwen35": split(QWEN_35),
    "refact": digits_first(),
    "seed-coder": split(
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "smollm": digits_first(),
    "stablelm2": split(LLAMA_3.replace("{1,3}", "")),
    "starcoder": digits_first(),
    "tekken": split(rf"{START}{UPPER}*{LOWER}+|{START}{UPPER}+{LOWER}*|\p{{N}}" + CASED_REST),
}
TAKE_WHOLE_WORDS = ("llama-bpe", "minicpm5", "tekken")
COMPOSE = ("qwen2", "qwen35")


def served(path: Path, fields: dict[str, Any]) -> Tokenizer:
    problems: list[str] = []
    data = tokenizer_from_gguf(
        {f"tokenizer.ggml.{key}": value for key, value in fields.items()}, problems
    )
    assert data is not None, problems
    path.write_bytes(data)
    return Tokenizer(path)


def byte_level(name: str) -> Library:
    tokenizer = Library(models.BPE(ignore_merges=name in TAKE_WHOLE_WORDS))
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

    if name in COMPOSE:  # as Qwen's own
        own.normalizer = normalizers.NFC()
    encodings = own.encode_batch(TEXTS, add_special_tokens=False)
    assert tokenizer.encode_batch(TEXTS) == [encoding.ids for encoding in encodings]
    assert tokenizer.special_tokens == {0: "<|im_start|>", 1: "<|im_end|>"}
    assert tokenizer.is_lossless == (name not in COMPOSE)


def parted(text: str, patterns: Sequence[str]) -> list[str]:
    """Part a text as llama.cpp does: each pattern parts the words that those before it left."""
    words = [text]
    for pattern in patterns:
        ends = [[at for found in regex.finditer(pattern, w) for at in found.span()] for w in words]
        spans = [pairwise([0, *inside, len(w)]) for w, inside in zip(words, ends, strict=True)]
        words = [w[a:b] for w, pairs in zip(words, spans, strict=True) for a, b in pairs if a < b]
    return words


# Engines have other versions of Unicode, and other white space among control characters.
KNOWN_ALIKE = [text for text in TEXTS if not regex.search("[\x1c-\x1f\U00020000-\U0010ffff]", text)]


@pytest.mark.parametrize("name", {each: name for name, each in KNOWN.items()}.values())
def test_another_engine_parts_words_alike(name: str) -> None:
    tokenizer = byte_level_bpe({"a": 0}, [], name)
    for text in KNOWN_ALIKE:
        pieces = tokenizer.pre_tokenizer.pre_tokenize_str(text)
        assert [text[a:b] for _, (a, b) in pieces] == parted(text, KNOWN[name].patterns)


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
    assert tokenizer_from_gguf(named, problems) is None
    assert problems == [f"tokenizer: {message}"]
