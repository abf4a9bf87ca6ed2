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

from export.readers.common.options import Options
from export.readers.common.unpickling import Record
from export.readers.toolkits.opennmt_recurrent import RECURRENT
from export.readers.toolkits.opennmt_transformer import OUTPUT, SOURCE, TARGET, TRANSFORMER
from export.readers.toolkits.toolkit import Toolkit, ToolkitReader, Vocabularies
from models.checkpoint import Checkpoint
from models.safetensors import in_safetensors

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
MODELS = {"rnn": RECURRENT, "brnn": RECURRENT, "transformer": TRANSFORMER}
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    "copy_attn": (False,),
    "generator_function": ("softmax", "log_softmax"),
    "n_src_feats": (0,),
}
MOST_NEW_TOKENS = 250  # max_length of onmt_translate
OLD_NORMS = {"a_2": "weight", "b_2": "bias"}  # of a class of its own, before torch had one
PAD, BOS, EOS, UNK = "<blank>", "<s>", "</s>", "<unk>"
SPECIAL = (UNK, PAD, BOS, EOS)


def read_checkpoint(path: Path, tree: Mapping[str, Any], source: Path) -> Checkpoint:
    """Return the model of an unpickled checkpoint. Raises CheckpointError with every problem."""
    problems: list[str] = []
    values = tree["opt"].fields if isinstance(tree["opt"], Record) else {}
    if not isinstance(tree["opt"], Record):
        problems.append("opt holds no options")
    tensors = _read_tensors(path, tree, problems)
    options = Options("options", values, problems)
    vocabulary = tree.get("vocab", tree.get("fields"))
    return ToolkitReader(OPENNMT, path, options, tensors, source, vocabulary).read_checkpoint()


def _read_tensors(path: Path, tree: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the tensors of model and generator by their current names; since 3.4 they may be in
    safetensors files beside the checkpoint.

    The generator's names begin with "0." where it is a `torch.nn.Sequential`.
    """
    tensors: dict[str, Any] = {}
    if "model" not in tree:
        for shard in find_shards(path):
            tensors |= in_safetensors(shard, problems)
        return tensors
    for part, prefix in (("model", ""), ("generator", "generator.")):
        named = tree[part] if isinstance(tree.get(part), dict) else {}
        tensors |= {_current_name(f"{prefix}{name}"): tensor for name, tensor in named.items()}
    return tensors


def find_shards(path: Path) -> list[Path]:
    """Return the files `model_step_1000.safetensors` or `model_step_1000.00.safetensors`, ... of a
    `.pt` file.
    """
    pattern = f"{escape(path.stem)}*.safetensors"
    return sorted(shard for shard in path.parent.glob(pattern) if shard.is_file())


def _current_name(name: str) -> str:
    name = re.sub(r"^generator\.0\.", "generator.", name)
    return re.sub(
        r"(.*\.layer_norm(?:_\d+)?)\.(a_2|b_2)", lambda m: f"{m[1]}.{OLD_NORMS[m[2]]}", name
    )


def _find_model(reader: ToolkitReader) -> str | None:
    name = reader.options.word("encoder_type", "rnn")
    if name in MODELS:
        return name
    reader.options.refuse("encoder_type")
    return None


def _read_vocabularies(reader: ToolkitReader) -> Vocabularies:
    vocabulary = reader.vocabulary
    source = read_words(vocabulary, "src", reader.problems)
    target = read_words(vocabulary, "tgt", reader.problems)
    sizes = {"src": (source, reader.source_words), "tgt": (target, reader.target_words)}
    for side, (words, expected) in sizes.items():
        if words and len(words) != expected:
            reader.problems.append(
                f"vocab: {side} has {len(words)} words, the embeddings are of {expected}"
            )
    ids = {word: token_id for token_id, word in enumerate(target)}
    start = _decoder_start(vocabulary)
    missing = [word for word in (start, PAD, EOS) if word not in ids]
    reader.problems += [f"vocab: tgt lacks {word}" for word in missing]
    return Vocabularies(
        {"source": source} if source == target else {"source": source, "target": target},
        SPECIAL,
        UNK,
        pad=ids.get(PAD, 0),
        bos=ids.get(start, 0),
        eos=ids.get(EOS, 0),
        unk=ids.get(UNK),
        start=ids.get(start, 0),
    )


def read_words(vocabulary: Any, side: str, problems: list[str]) -> list[str]:
    """Return the words of "src" or "tgt" in the order of their ids; an empty list, and a problem,
    if there are none.
    """
    if isinstance(vocabulary, list) and all(_is_pair(item) for item in vocabulary):
        vocabulary = {name: value for name, value in vocabulary if isinstance(name, str)}
    words = _find_words(vocabulary.get(side)) if isinstance(vocabulary, dict) else None
    if not words:
        problems.append(f"vocab: the words of {side} are missing")
        return []
    if len(set(words)) < len(words):
        problems.append(f"vocab: some words of {side} are there twice")
    return list(words)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _find_words(value: Any) -> Sequence[str] | None:
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


def _decoder_start(vocabulary: Any) -> str:
    """Return the word with which targets begin."""
    word = vocabulary.get("decoder_start_token", BOS) if isinstance(vocabulary, dict) else BOS
    return word if isinstance(word, str) else BOS


OPENNMT = Toolkit(
    "OpenNMT-py",
    (SOURCE, TARGET, OUTPUT),
    MODELS,
    _find_model,
    _read_vocabularies,
    SUPPORTED,
    sources_end_with_eos=False,
    longest_source=lambda reader: reader.options.values.get("src_seq_length"),
    generation=lambda _: {"max_new_tokens": MOST_NEW_TOKENS},
)
