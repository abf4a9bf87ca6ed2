"""Word lists of OpenNMT-py and fairseq, beside what subword-nmt and the toolkits themselves do."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from export.readers.common.pieces import TokenizerError
from export.readers.common.word_tokenizers import tokenizer_from_words
from serving.text.tokenizer import Tokenizer
from tests.export.readers.common.awkward import awkward_texts

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
MERGES = [
    "t h",
    "th e</w>",
    "o w",
    "l ow",
    "e r</w>",
    "n e",
    "ne w",
    "o w</w>",
    "l ow</w>",
    "a a",
    "aa a</w>",
]
CODES = "\n".join(["#version: 0.2", *MERGES, ""])
PARTS = ["the", "low@@", "er", "new@@", "est", "e@@", "s@@", "t", "low", "a@@", "aaa", "d@@", "g"]


def subword_nmt(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """apply_bpe.py of https://github.com/rsennrich/subword-nmt, version 0.2 of the codes."""
    parts = [*word[:-1], word[-1] + "</w>"]
    while len(parts) > 1:
        pairs = [pair for pair in pairwise(parts) if pair in merges]
        if not pairs:
            break
        first = min(pairs, key=merges.index)
        merged, i = [], 0
        while i < len(parts):
            is_pair = tuple(parts[i : i + 2]) == first
            merged.append("".join(first) if is_pair else parts[i])
            i += 1 + is_pair
        parts = merged
    return [*(part + "@@" for part in parts[:-1]), parts[-1].removesuffix("</w>")]


def words_in(text: str) -> list[str]:
    """As the library counts spaces: Python has four separators of files more."""
    return [word for word in re.split(r"[^\S\x1c-\x1f]+", text) if word]


def tokenizer_of(path: Path, words: list[str], codes: str | None = None) -> Tokenizer:
    path.write_bytes(tokenizer_from_words(words, "<unk>", SPECIAL, codes))
    return Tokenizer(path)


def test_codes_cut_words_as_subword_nmt_does(tmp_path: Path) -> None:
    words = [*SPECIAL, *PARTS]
    merges = [line.partition(" ")[::2] for line in MERGES]
    tokenizer = tokenizer_of(tmp_path / "tokenizer.json", words, CODES)
    own = ["the lower newest low", "aaaa aaa aaaaa a", " dogged  godet ", "lowlow the\nthe"]

    for text in [*own, *awkward_texts()]:
        parts = [part for word in words_in(text) for part in subword_nmt(word, merges)]
        expected = [words.index(p) if p in words and p not in SPECIAL else 3 for p in parts]
        assert tokenizer.encode(text) == expected, text

    assert tokenizer.decode(tokenizer.encode("the lower newest low")) == "the lower newest low"
    assert tokenizer.vocab_size == len(words)


def test_whole_words(tmp_path: Path) -> None:
    words = [*SPECIAL, "the", "dog", "la</w>", "@@", "été"]
    tokenizer = tokenizer_of(tmp_path / "tokenizer.json", words)

    for text in ["the dog", " the\tdog ", "dogs la</w> été", "@@ <s> the </s>", *awkward_texts()]:
        expected = [words.index(w) if w in words[4:] else 3 for w in words_in(text)]
        assert tokenizer.encode(text) == expected, text

    assert tokenizer.decode([0, 4, 5, 3, 8, 2]) == "the dog été"


def test_words_that_a_text_has_cut_already(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path / "tokenizer.json", [*SPECIAL, "low@@", "er", "er@@", "low"])

    ids = tokenizer.encode("low@@ er low er er@@ low")

    assert ids == [4, 5, 7, 5, 6, 7]
    assert tokenizer.decode(ids) == "lower low er erlow"


def test_fast_bpe_counts_its_merges(tmp_path: Path) -> None:
    counted = "".join(f"{line} 12\n" for line in MERGES)
    words = [*SPECIAL, *PARTS]
    tokenizer = tokenizer_of(tmp_path / "tokenizer.json", words, counted)
    assert tokenizer.encode("lower") == [words.index("low@@"), words.index("er")]


@pytest.mark.parametrize(
    ("words", "codes", "message"),
    [
        (["<s>", "<pad>", "</s>"], None, "there is no token '<unk>'"),
        ([*SPECIAL, "a", "a"], None, "two tokens are called 'a</w>'"),
        (SPECIAL, "a b\nabc\n", "line 2 of the BPE codes is 'abc'"),
        (SPECIAL, "e </w>\n", "line 1 of the BPE codes is 'e </w>'"),
    ],
)
def test_what_is_wrong_is_told(words: list[str], codes: str | None, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_words(words, "<unk>", SPECIAL, codes)
