"""Checkpoints of OpenNMT-py (Klein et al. 2017), 0.x to 3.x.

Sources are the words alone; targets begin with <s> and end before </s>
(onmt/inputters/text_utils.py, `numericalize`). The words are in the checkpoint:

    {"src": words, "tgt": words, "decoder_start_token": word, ...}    since 3.0
    {"src": fields of torchtext, "tgt": ...}                          before, as objects
    [("src", vocabulary of torchtext), ("tgt", ...)]                  before 1.0
"""

import re
from collections.abc import Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from export.readers.common.options import limit_split_tokens
from export.readers.common.unpickling import Record
from export.readers.toolkits.opennmt_models import Embeddings, OpenNMTRecurrent, OpenNMTTransformer
from export.readers.toolkits.toolkit import TorchModel, language_options
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint
from models.conventions import Conventions
from models.safetensors import in_safetensors

READERS: dict[str, type[OpenNMTRecurrent] | type[OpenNMTTransformer]] = {
    "rnn": OpenNMTRecurrent,
    "brnn": OpenNMTRecurrent,
    "transformer": OpenNMTTransformer,
}
MOST_NEW_TOKENS = 250  # max_length of onmt_translate
OLD_NORMS = {"a_2": "weight", "b_2": "bias"}  # of a class of its own, before torch had one


def read_checkpoint(path: Path, tree: Mapping[str, Any]) -> Checkpoint:
    """Return the model of an unpickled checkpoint. Raises CheckpointError."""
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
    values["split_tokens"] = limit_split_tokens(model.options.values.get("src_seq_length"))
    model.check()
    config = model.configured(values)
    weights = reader.weights(config)
    return model.checkpoint(config, weights, vocabulary.conventions, vocabulary.tokenizers)


def _tensors(path: Path, tree: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return all tensors by name; since 3.4 they may be in safetensors files beside the
    checkpoint.
    """
    if "model" in tree:
        return _state(tree)
    found: dict[str, Any] = {}
    for shard in shards(path):
        found |= in_safetensors(shard, problems)
    return found


def shards(path: Path) -> list[Path]:
    """Return the files `model_step_1000.safetensors` or `model_step_1000.00.safetensors`, ... of a
    `.pt` file.
    """
    pattern = f"{escape(path.stem)}*.safetensors"
    return sorted(each for each in path.parent.glob(pattern) if each.is_file())


def _options(tree: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    options = tree["opt"]
    if isinstance(options, Record):
        return options.fields
    problems.append("opt holds no options")
    return {}


def _state(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of model and generator, which are stored apart.

    The generator's names begin with "0." where it is a `torch.nn.Sequential`.
    """
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
    """The vocabularies of both sides, as tokenizers, and the ids of special tokens."""

    def __init__(self, model: TorchModel, embeddings: Embeddings, vocabulary: Any) -> None:
        self._model = model
        source = words_of(vocabulary, "src", model.problems)
        target = words_of(vocabulary, "tgt", model.problems)
        self._check_size("src", source, embeddings.source_words)
        self._check_size("tgt", target, embeddings.target_words)
        vocabularies = {"source": source} | ({} if source == target else {"target": target})
        self.tokenizers = model.tokenizers(vocabularies, SPECIAL, UNK)
        self._target = {word: token_id for token_id, word in enumerate(target)}
        start = self._id(decoder_start(vocabulary))
        self.values = {
            "vocab_size": embeddings.target_words,
            "source_vocab_size": None if embeddings.are_tied else embeddings.source_words,
            "tied_embeddings": embeddings.are_tied,
            **language_options([UNKNOWN_LANGUAGE] * 2, self._id(PAD), start, self._id(EOS)),
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

    def _id(self, word: str) -> int:
        if word not in self._target:
            self._model.problems.append(f"vocab: tgt lacks {word}")
        return self._target.get(word, 0)


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
    """Return the words of "src" or "tgt" in the order of their ids; an empty list, and a problem,
    if there are none.
    """
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
    """Return the word with which targets begin."""
    word = vocabulary.get("decoder_start_token", BOS) if isinstance(vocabulary, dict) else BOS
    return word if isinstance(word, str) else BOS


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _words(value: Any) -> Sequence[str] | None:
    """Return a list of words: the value itself, or a list inside an object of torchtext."""
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
