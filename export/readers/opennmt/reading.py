"""Reads checkpoints of OpenNMT-py (Klein et al. 2017), 0.x to 3.x: recurrent encoder-decoders with
attention, and Transformers.

Their sources are the words alone; targets begin with <s> and end before </s>
(onmt/inputters/text_utils.py, `numericalize`).
"""

import re
from collections.abc import Mapping
from glob import escape
from pathlib import Path
from typing import Any

from export.readers.common.toolkits import TorchModel
from export.readers.common.torch_files.unpickling import Record
from export.readers.common.vocabularies import read_vocabulary
from export.readers.opennmt.embeddings import Embeddings
from export.readers.opennmt.recurrent import OpenNMTRecurrent
from export.readers.opennmt.transformer import OpenNMTTransformer
from export.readers.opennmt.vocabulary import (
    EOS,
    NAMES,
    PAD,
    SPECIAL,
    UNK,
    decoder_start,
    words_of,
)
from models.conventions import Conventions
from models.storage.checkpoint import UNKNOWN_LANGUAGE, Checkpoint
from models.storage.stored import in_safetensors

__all__ = ["NAMES", "read", "shards"]

READERS: dict[str, type[OpenNMTRecurrent] | type[OpenNMTTransformer]] = {
    "rnn": OpenNMTRecurrent,
    "brnn": OpenNMTRecurrent,
    "transformer": OpenNMTTransformer,
}
MOST_NEW_TOKENS = 250  # max_length of onmt_translate
OLD_NORMS = {"a_2": "weight", "b_2": "bias"}  # of a class of its own, before torch had one


def read(path: Path, tree: Mapping[str, Any]) -> Checkpoint:
    """Read the model in an unpickled checkpoint. Raises CheckpointError."""
    problems: list[str] = []
    options, state = _options(tree, problems), _tensors(path, tree, problems)
    model = TorchModel(path, "OpenNMT-py", options, state, problems)
    kind = model.options.word("encoder_type", "rnn")
    _refuse_what_differs(model)
    if kind not in READERS:
        model.options.refuse("encoder_type")
        raise model.error()
    embeddings = Embeddings(model)
    vocabulary = Words(model, embeddings, tree.get("vocab", tree.get("fields")))
    reader = READERS[kind](model, embeddings)
    values = reader.values() | vocabulary.values
    model.check()
    config = model.configured(values)
    weights = reader.weights(config)
    return model.checkpoint(config, weights, vocabulary.conventions, vocabulary.tokenizers)


def _tensors(path: Path, tree: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Find all tensors by name; since 3.4 they may be in files of safetensors beside it."""
    if "model" in tree:
        return _state(tree)
    found: dict[str, Any] = {}
    for shard in shards(path):
        found |= in_safetensors(shard, problems)
    return found


def shards(path: Path) -> list[Path]:
    """`model_step_1000.safetensors` or `model_step_1000.00.safetensors` ... of a `.pt` file."""
    pattern = f"{escape(path.stem)}*.safetensors"
    return sorted(each for each in path.parent.glob(pattern) if each.is_file())


def _options(tree: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    options = tree["opt"]
    if isinstance(options, Record):
        return options.fields
    problems.append("opt holds no options")
    return {}


def _state(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Join the generator's tensors, which lie apart, behind "0." where it is a sequence."""
    found: dict[str, Any] = {}
    for part, prefix in (("model", ""), ("generator", "generator.")):
        tensors = tree[part] if isinstance(tree.get(part), dict) else {}
        for name, tensor in tensors.items():
            found[_current_name(f"{prefix}{name}")] = tensor
    return found


def _current_name(name: str) -> str:
    name = re.sub(r"^generator\.0\.", "generator.", name)
    return re.sub(
        r"(.*\.layer_norm(?:_\d+)?)\.(a_2|b_2)", lambda m: f"{m[1]}.{OLD_NORMS[m[2]]}", name
    )


def _refuse_what_differs(model: TorchModel) -> None:
    only = model.options.only
    only("model_type", "text")
    only("model_task", "seq2seq")
    only("copy_attn", False)
    only("generator_function", "softmax", "log_softmax")
    only("n_src_feats", 0)


class Words:
    """Holds the words of both sides, as tokenizers and as the ids that mean something."""

    def __init__(self, model: TorchModel, embeddings: Embeddings, vocabulary: Any) -> None:
        self._model = model
        source = words_of(vocabulary, "src", model.problems)
        target = words_of(vocabulary, "tgt", model.problems)
        self._check_size("src", source, embeddings.source_words)
        self._check_size("tgt", target, embeddings.target_words)
        self.is_shared = source == target
        self.tokenizers = self._tokenizers(source, target)
        self._target = {word: token_id for token_id, word in enumerate(target)}
        start = self._id(decoder_start(vocabulary))
        self.values = {
            "vocab_size": embeddings.target_words,
            "source_vocab_size": None if embeddings.are_tied else embeddings.source_words,
            "tied_embeddings": embeddings.are_tied,
            "source_languages": (UNKNOWN_LANGUAGE,),
            "target_languages": (UNKNOWN_LANGUAGE,),
            "pad_id": self._id(PAD),
            "bos_id": start,
            "eos_id": self._id(EOS),
        }
        self.conventions = Conventions(
            prompt_prefix=(start,),
            stop=(self._id(EOS),),
            unk=self._target.get(UNK),
            generation={"max_new_tokens": MOST_NEW_TOKENS},
        )

    def _check_size(self, side: str, words: list[str], expected: int) -> None:
        if words and len(words) != expected:
            message = f"vocab: {side} has {len(words)} words, the embeddings are of {expected}"
            self._model.problems.append(message)

    def _tokenizers(
        self, source: list[str], target: list[str]
    ) -> tuple[bytes, bytes | None] | None:
        first = self._tokenizer("source", source)
        second = None if self.is_shared else self._tokenizer("target", target)
        if first is None or (second is None and not self.is_shared):
            return None
        return first, second

    def _tokenizer(self, side: str, words: list[str]) -> bytes | None:
        special = [word for word in SPECIAL if word in words]
        folder, problems = self._model.path.parent, self._model.problems
        return read_vocabulary(words, special, UNK, folder, side, problems) if words else None

    def _id(self, word: str) -> int:
        if word not in self._target:
            self._model.problems.append(f"vocab: tgt lacks {word}")
        return self._target.get(word, 0)
