"""Finds the words that OpenNMT-py keeps in its checkpoints.

{"src": words, "tgt": words, "decoder_start_token": word, ...}    since 3.0
{"src": fields of torchtext, "tgt": ...}                         before, as objects
[("src", vocabulary of torchtext), ("tgt", ...)]                 before 1.0
"""

from collections.abc import Sequence
from typing import Any

from export.readers.common.torch_files.unpickling import Record

# Classes and functions that older vocabularies name; all are data here.
NAMES = frozenset(
    [
        "collections.Counter",
        "functools.partial",
        "onmt.inputters.inputter.make_src",
        "onmt.inputters.inputter.make_tgt",
        "onmt.inputters.text_dataset.TextMultiField",
        "onmt.inputters.text_dataset._feature_tokenize",
        "torchtext.data.field.Field",
        "torchtext.data.field.RawField",
        "torchtext.vocab.Vocab",
        "torchtext.vocab._default_unk_index",
    ]
)

PAD, BOS, EOS, UNK = "<blank>", "<s>", "</s>", "<unk>"
SPECIAL = (UNK, PAD, BOS, EOS)


def words_of(vocabulary: Any, side: str, problems: list[str]) -> list[str]:
    """Find the words of "src" or "tgt" by their ids; none, and a problem, if there are none."""
    if isinstance(vocabulary, list) and all(_is_pair(each) for each in vocabulary):
        vocabulary = {name: value for name, value in vocabulary if isinstance(name, str)}
    found = _words(vocabulary.get(side)) if isinstance(vocabulary, dict) else None
    if not found:
        problems.append(f"vocab: the words of {side} are missing")
        return []
    if len(set(found)) < len(found):
        problems.append(f"vocab: some words of {side} are there twice")
    return list(found)


def decoder_start(vocabulary: Any) -> str:
    """Find the word that targets begin with."""
    word = vocabulary.get("decoder_start_token", BOS) if isinstance(vocabulary, dict) else BOS
    return word if isinstance(word, str) else BOS


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _words(value: Any) -> Sequence[str] | None:
    """Find a list, itself or in whatever object of torchtext holds one."""
    for _ in range(4):  # TextMultiField -> ("src", Field) -> Vocab -> itos
        match value:
            case Record(fields={"fields": [(_, field), *_]}):
                value = field
            case Record(fields={"vocab": inner}):
                value = inner
            case Record(fields={"itos": inner}):
                value = inner
    is_list = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return value if is_list else None
