"""Checkpoints of fairseq (Ott et al. 2019): Transformers, convolutional models and LSTMs.

Options are an argparse namespace, since 0.10 also dictionaries by part. Sources end with </s>;
targets begin with it, and end before it (fairseq/data/language_pair_dataset.py).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from export.readers.common.tokenizers import read_vocabulary
from export.readers.common.toolkits import TorchModel
from export.readers.common.unpickling import Record
from export.readers.fairseq_convolutional import FairseqConvolutional
from export.readers.fairseq_models import FairseqRecurrent, FairseqTransformer
from models.checkpoint import Checkpoint
from models.conventions import Conventions
from models.files import read_text

__all__ = ["NAMES", "read"]

AnyReader = FairseqTransformer | FairseqConvolutional | FairseqRecurrent
READERS: dict[str, type[AnyReader]] = {
    "transformer": FairseqTransformer,
    "fconv": FairseqConvolutional,
    "lstm": FairseqRecurrent,
}
MOST_NEW_TOKENS = 200  # max_len_b of fairseq-generate

# Counters of training that older checkpoints keep; all are data here.
NAMES = frozenset(f"fairseq.meters.{name}Meter" for name in ("Average", "Stopwatch", "Time"))


def read(path: Path, tree: Mapping[str, Any]) -> Checkpoint:
    """Read the model in an unpickled checkpoint. Raises CheckpointError."""
    problems: list[str] = []
    state = tree["model"] if isinstance(tree["model"], dict) else {}
    model = TorchModel(path, "fairseq", _options(tree), state, problems)
    reader = _reader(model)
    languages = [model.options.word(f"{side}_lang") for side in ("source", "target")]
    model.check()
    tokenizers = _tokenizers(model, reader, languages)
    config = model.configured(
        reader.values()
        | {
            "source_languages": (languages[0],),
            "target_languages": (languages[1],),
            "pad_id": PAD,
            "bos_id": 0,
            "eos_id": EOS,
        }
    )
    conventions = Conventions(
        source_suffix=(EOS,),
        prompt_prefix=(EOS,),
        stop=(EOS,),
        unk=UNK,
        generation={"max_new_tokens": MOST_NEW_TOKENS},
    )
    return model.checkpoint(config, reader.weights(config), conventions, tokenizers)


def _options(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Gather all options, wherever they lie: {"encoder": {"layers": 6}} is encoder_layers."""
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


def _tokenizers(
    model: TorchModel, reader: AnyReader, languages: list[str]
) -> tuple[bytes, bytes | None] | None:
    """Make the source's, and the target's if it has words of its own."""
    words: list[list[str]] = []
    for language, expected in zip(
        languages, (reader.source_words, reader.target_words), strict=True
    ):
        path = model.path.parent / f"dict.{Path(language).name}.txt"
        found = read_dictionary(path, model.problems)
        if found and len(found) != expected:
            message = f"{path.name} has {len(found)} words, the embeddings are of {expected}"
            model.problems.append(message)
        words.append(found)
    model.check()
    source, target = (
        read_vocabulary(each, SPECIAL, "<unk>", model.path.parent, side, model.problems)
        for side, each in zip(("source", "target"), words, strict=True)
    )
    if source is None or target is None:
        return None
    return source, None if words[0] == words[1] else target


SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
PAD, EOS, UNK = 1, 2, 3
OVERWRITE = "#fairseq:overwrite"  # the word is there twice, and the later one counts


def read_dictionary(path: Path, problems: list[str]) -> list[str]:
    """Read all words by their ids; none, and a problem, if the file is missing or damaged."""
    try:
        lines = read_text(path).splitlines()
        return [*SPECIAL, *_words(lines)]
    except FileNotFoundError:
        problems.append(f"{path.name} is missing beside the checkpoint")
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
    return []


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
