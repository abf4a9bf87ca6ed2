"""Checkpoints of fairseq (Ott et al. 2019): Transformers, convolutional models and LSTMs.

Options are an argparse namespace, since 0.10 also dictionaries by part. Sources end with </s>;
targets begin with it, and end before it (fairseq/data/language_pair_dataset.py).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from export.readers.common.options import Options
from export.readers.common.shapes import STACKS
from export.readers.common.unpickling import Record
from export.readers.toolkits.fairseq_convolutional import CONVOLUTIONAL
from export.readers.toolkits.fairseq_lstm import LSTM
from export.readers.toolkits.fairseq_transformer import SOURCE, TARGET, TRANSFORMER
from export.readers.toolkits.toolkit import Toolkit, ToolkitReader, Vocabularies
from models.checkpoint import Checkpoint
from models.files import read_text

# Counters of training that older checkpoints keep; all are data here.
NAMES = frozenset(f"fairseq.meters.{name}Meter" for name in ("Average", "Stopwatch", "Time"))
MODELS = {"transformer": TRANSFORMER, "fconv": CONVOLUTIONAL, "lstm": LSTM}
MOST_NEW_TOKENS = 200  # max_len_b of fairseq-generate
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(len(SPECIAL))
OVERWRITE = "#fairseq:overwrite"  # marks a word that stands twice: the later line counts


def read_checkpoint(path: Path, tree: Mapping[str, Any], source: Path) -> Checkpoint:
    """Return the model of an unpickled checkpoint. Raises CheckpointError with every problem."""
    options = Options("options", _read_options(tree), [])
    tensors = tree["model"] if isinstance(tree["model"], dict) else {}
    return ToolkitReader(FAIRSEQ, path, options, tensors, source).read_checkpoint()


def _read_options(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options by name; {"encoder": {"layers": 6}} becomes encoder_layers."""
    parts = [tree.get("args")]
    if isinstance(tree.get("cfg"), dict):
        parts += [tree["cfg"].get("task"), tree["cfg"].get("model")]
    options: dict[str, Any] = {}
    for part in map(_read_fields, parts):
        for name, value in part.items():
            inner = _read_fields(value) if name in STACKS else {}
            options |= {f"{name}_{key}": item for key, item in inner.items()} or {name: value}
    return options


def _read_fields(part: Any) -> dict[str, Any]:
    values = part.fields if isinstance(part, Record) else part
    return {str(name): value for name, value in values.items()} if isinstance(values, dict) else {}


def _find_model(reader: ToolkitReader) -> str | None:
    """Return the architecture, which may have one of several sizes in its name."""
    option = "arch" if "arch" in reader.options else "_name"
    name = reader.options.word(option, "transformer")
    for model in MODELS:
        if re.match(rf"{model}(?!_lm|_self_att)(_|$)", name):
            return model
    reader.options.refuse(option)
    return None


def _read_vocabularies(reader: ToolkitReader) -> Vocabularies:
    source, target = (reader.options.word(f"{side}_lang") for side in ("source", "target"))
    reader.raise_problems()
    words = {
        side: reader.read_words(
            reader.path.parent / f"dict.{Path(language).name}.txt", read_dictionary, num_words
        )
        for side, language, num_words in (
            ("source", source, reader.source_words),
            ("target", target, reader.target_words),
        )
    }
    reader.raise_problems()
    return Vocabularies(words, SPECIAL, SPECIAL[UNK], PAD, BOS, EOS, UNK, EOS, (source, target))


def read_dictionary(path: Path) -> list[str]:
    """Return the words of a dictionary by their ids. Raises OSError, and ValueError for a line that
    is no word and its count.
    """
    words: dict[str, None] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        is_again = line.endswith(OVERWRITE)
        word, _, count = line.removesuffix(OVERWRITE).rstrip().rpartition(" ")
        if not word or not count.isdecimal():
            raise ValueError(f"line {number} is not a word and its count")
        if word in words and not is_again:
            raise ValueError(f"line {number} has a word for the second time")
        words[word] = None
    return [*SPECIAL, *(word for word in words if word not in SPECIAL)]


FAIRSEQ = Toolkit(
    "fairseq",
    (SOURCE, TARGET),
    MODELS,
    _find_model,
    _read_vocabularies,
    generation=lambda _: {"max_new_tokens": MOST_NEW_TOKENS},
)
