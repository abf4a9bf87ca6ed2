"""Checkpoints of fairseq (Ott et al. 2019): Transformers, convolutional models and LSTMs.

Options are an argparse namespace, since 0.10 also dictionaries by part. Sources end with </s>;
targets begin with it, and end before it (fairseq/data/language_pair_dataset.py).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from export.readers.common.unpickling import Record
from export.readers.toolkits.fairseq_convolutional import FairseqConvolutional
from export.readers.toolkits.fairseq_models import FairseqRecurrent, FairseqTransformer
from export.readers.toolkits.toolkit import TorchModel, language_options
from models.checkpoint import Checkpoint
from models.conventions import Conventions
from models.files import read_text

AnyReader = FairseqTransformer | FairseqConvolutional | FairseqRecurrent
READERS: dict[str, type[AnyReader]] = {
    "transformer": FairseqTransformer,
    "fconv": FairseqConvolutional,
    "lstm": FairseqRecurrent,
}
MOST_NEW_TOKENS = 200  # max_len_b of fairseq-generate

# Counters of training that older checkpoints keep; all are data here.
NAMES = frozenset(f"fairseq.meters.{name}Meter" for name in ("Average", "Stopwatch", "Time"))


def read_checkpoint(path: Path, tree: Mapping[str, Any]) -> Checkpoint:
    """Return the model of an unpickled checkpoint. Raises CheckpointError."""
    problems: list[str] = []
    state = tree["model"] if isinstance(tree["model"], dict) else {}
    model = TorchModel(path, "fairseq", _options(tree), state, problems)
    reader = _reader(model)
    languages = [model.options.word(f"{side}_lang") for side in ("source", "target")]
    model.check()
    vocabularies = {
        side: model.read_words(
            model.path.parent / f"dict.{Path(language).name}.txt", words_of, rows
        )
        for side, language, rows in zip(
            ("source", "target"), languages, (reader.source_words, reader.target_words), strict=True
        )
    }
    model.check()
    tokenizers = model.tokenizers(vocabularies, SPECIAL, "<unk>")
    config = model.configured(reader.values() | language_options(languages, PAD, BOS, EOS))
    conventions = Conventions(
        source_suffix=(EOS,),
        prompt_prefix=(EOS,),
        stop=(EOS,),
        unk=UNK,
        generation={"max_new_tokens": MOST_NEW_TOKENS},
    )
    return model.checkpoint(config, reader.weights(config), conventions, tokenizers)


def _options(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options by name; {"encoder": {"layers": 6}} becomes encoder_layers."""
    parts = [tree.get("args")]
    if isinstance(tree.get("cfg"), dict):
        parts += [tree["cfg"].get("task"), tree["cfg"].get("model")]
    found: dict[str, Any] = {}
    for part in map(_fields, parts):
        for name, value in part.items():
            inner = _fields(value) if name in {"encoder", "decoder"} else {}
            found |= {f"{name}_{key}": each for key, each in inner.items()} or {name: value}
    return found


def _fields(part: Any) -> dict[str, Any]:
    values = part.fields if isinstance(part, Record) else part
    return {str(name): value for name, value in values.items()} if isinstance(values, dict) else {}


def _reader(model: TorchModel) -> AnyReader:
    """Return the reader of the architecture, which may have one of several sizes in its name.
    Raises CheckpointError.
    """
    option = "arch" if "arch" in model.options else "_name"
    name = model.options.word(option, "transformer")
    kinds = [kind for kind in READERS if re.match(rf"{kind}(?!_lm|_self_att)(_|$)", name)]
    if not kinds:
        model.options.refuse(option)
        raise model.error()
    return READERS[kinds[0]](model)


SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
BOS, PAD, EOS, UNK = range(len(SPECIAL))
OVERWRITE = "#fairseq:overwrite"  # marks a word that stands twice: the later line counts


def words_of(path: Path) -> list[str]:
    """Return the words of a dictionary by their ids. Raises OSError, and ValueError for a line that
    is no word and its count.
    """
    return [*SPECIAL, *_words(read_text(path).splitlines())]


def _words(lines: list[str]) -> list[str]:
    words: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        is_again = line.endswith(OVERWRITE)
        word, _, count = line.removesuffix(OVERWRITE).rstrip().rpartition(" ")
        if not word or not count.isdecimal():
            raise ValueError(f"line {number} is not a word and its count")
        if word in words and not is_again:
            raise ValueError(f"line {number} has a word for the second time")
        words[word] = None
    return [word for word in words if word not in SPECIAL]
