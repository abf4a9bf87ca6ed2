"""Finds the tensors of a folder: in safetensors or in a pickle of torch, in one file or in shards,
which have an index that tells which tensor lies where.
"""

from collections.abc import Iterator
from pathlib import Path

from export.readers.common.options import read_options
from export.readers.common.torch_files import LazyArray, read_torch
from models.storage.checkpoint import CheckpointError
from models.storage.stored import Stored, in_safetensors

MOST_SHARDS = 1000
MOST_INDEX_BYTES = 2**25  # 300,000 tensors
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"


def stored_tensors(folder: Path, problems: list[str]) -> dict[str, Stored]:
    """Find all tensors of a folder by name, of safetensors where there are any."""
    found: dict[str, Stored] = {}
    for path in _files(folder, problems):
        is_pickle = path.suffix == ".bin"
        found |= _in_pickle(path, problems) if is_pickle else in_safetensors(path, problems)
    return found


def _in_pickle(path: Path, problems: list[str]) -> dict[str, Stored]:
    """Read the tensors of one file of torch.save as data: nothing of it runs."""
    try:
        tree = read_torch(path)
    except CheckpointError as error:
        problems += [f"{path.name}: {problem}" for problem in error.problems]
        return {}
    if not isinstance(tree, dict):
        problems.append(f"{path.name} holds no tensors by name")
        return {}
    tensors = {str(name): each for name, each in tree.items() if isinstance(each, LazyArray)}
    return {name: Stored(each.kind, each.shape, each.read) for name, each in tensors.items()}


def _files(folder: Path, problems: list[str]) -> Iterator[Path]:
    """Find the files that hold the weights; a folder with none has a problem."""
    for name in (SAFETENSORS, PICKLE):
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            yield folder / name
            return
        if index.is_file():
            yield from _shards(index, problems)
            return
    problems.append(f"{SAFETENSORS} is missing")


def _shards(index: Path, problems: list[str]) -> Iterator[Path]:
    options = read_options(index, problems, most_bytes=MOST_INDEX_BYTES).section("weight_map")
    names = sorted(set(map(str, options.values.values())))
    if len(names) > MOST_SHARDS:
        problems.append(f"{index.name} names {len(names)} files, more than {MOST_SHARDS}")
        return
    for name in names:
        if Path(name).name == name:
            yield index.parent / name
        else:
            problems.append(f"{index.name}: {name!r} is no name of a file beside it")
