"""Reads folders of Sockeye 3 (Hieber et al. 2022): Transformers, with SSRUs in the decoder or not.

    config  params.best  vocab.src.0.json  vocab.trg.0.json

Sources end with </s>; targets begin with <s> and end before </s>. Sockeye 1 and 2 kept their
weights in files of MXNet, which are told apart by name and not read.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from export.readers.common.options import Options
from export.readers.common.toolkits import TorchModel
from export.readers.common.torch_files.pickles import looks_like_torch, read_torch
from export.readers.common.vocabularies import read_vocabulary
from export.readers.common.yaml_files import read_yaml
from export.readers.sockeye.transformer import SOURCE, TARGET, SockeyeTransformer
from models.conventions import Conventions
from models.storage.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.storage.files import read_json

CONFIG, PARAMETERS = "config", "params.best"
VOCABULARIES = {"source": "vocab.src.0.json", "target": "vocab.trg.0.json"}
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNK, BOS, EOS = range(len(SPECIAL))


def looks_like(source: Path) -> bool:
    """Tell whether the source is a folder of Sockeye, or the parameters in one."""
    path = _file(source)
    return path.is_file() and (path.parent / CONFIG).is_file() and path.name.startswith("params.")


def _file(source: Path) -> Path:
    return source / PARAMETERS if source.is_dir() else source


def read(source: Path) -> Checkpoint:
    """Read the model, its weights still unread. Raises CheckpointError with every problem."""
    path = _file(source)
    if not looks_like_torch(path):
        message = (
            f"{path.name} is no file of torch: Sockeye 1 and 2 wrote MXNet's, which is not read"
        )
        raise CheckpointError(source, [message])
    problems: list[str] = []
    options = Options(CONFIG, read_yaml(path.parent / CONFIG, problems), problems)
    state = read_torch(path, frozenset())
    model = TorchModel(
        path, "Sockeye", options.values, state if isinstance(state, dict) else {}, problems
    )
    model.options.file = CONFIG
    source_words, target_words = (rows for rows, _ in model.dims(SOURCE, TARGET))
    reader = SockeyeTransformer(model)
    words = {
        side: _words(path.parent / VOCABULARIES[side], number, problems)
        for side, number in (("source", source_words), ("target", target_words))
    }
    values = reader.values() | {
        "source_languages": (UNKNOWN_LANGUAGE,),
        "target_languages": (UNKNOWN_LANGUAGE,),
        "pad_id": PAD,
        "bos_id": BOS,
        "eos_id": EOS,
    }
    model.check()
    tokenizers = _tokenizers(words, path.parent, problems)
    config = model.configured(values)
    conventions = Conventions(source_suffix=(EOS,), prompt_prefix=(BOS,), stop=(EOS,), unk=UNK)
    weights = reader.weights(config)
    return replace(model.checkpoint(config, weights, conventions, tokenizers), folder=source)


def _words(path: Path, number: int, problems: list[str]) -> list[str]:
    """List words by their ids; none, and a problem, if the file does not fit."""
    try:
        ids: Any = read_json(path)
    except FileNotFoundError:
        problems.append(f"{path.name} is missing beside the parameters")
        return []
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return []
    if not isinstance(ids, dict) or sorted(map(str, ids.values())) != sorted(
        map(str, range(number))
    ):
        problems.append(
            f"{path.name} does not number words from 0 to {number - 1}, as the model has"
        )
        return []
    words = sorted(ids, key=lambda word: int(ids[word]))
    if tuple(words[: len(SPECIAL)]) != SPECIAL:
        problems.append(f"{path.name} does not begin with {', '.join(SPECIAL)}")
        return []
    return words


def _tokenizers(
    words: dict[str, list[str]], folder: Path, problems: list[str]
) -> tuple[bytes, bytes | None] | None:
    source, target = (
        read_vocabulary(each, SPECIAL, SPECIAL[UNK], folder, side, problems)
        for side, each in words.items()
    )
    if source is None or target is None:
        return None
    return source, None if words["source"] == words["target"] else target
