"""Reads Marian's `model.npz`: numpy arrays in a zip archive. Nothing in it is unpickled."""

import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np

from export.readers.marian.items import Item, as_matrix
from models.arrays import Array
from models.storage.files import open_archive

# not there, not an archive, not of arrays, damaged, encrypted, compressed in unknown ways
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8"}


def read_archive(path: Path, problems: list[str]) -> dict[str, Item]:
    """Read the arrays by name; what is wrong with the file is a problem."""
    try:
        with open_archive(path) as archive:
            if damaged := archive.testzip():
                problems.append(f"{path.name}: {damaged} is damaged")
                return {}
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: _item(path, archive, name) for name in names}
    except UNREADABLE as error:
        problems.append(f"{path.name} cannot be read: {error}")
    return {}


def _item(path: Path, archive: zipfile.ZipFile, name: str) -> Item:
    """Reads the array's header only. Raises ValueError."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
        if header is None:
            raise ValueError(f"{name} is of numpy format {version}")
        shape, _, dtype = header(file)
    kind = KINDS.get(dtype.name, dtype.name)
    return Item(as_matrix(shape), kind, partial(_read, path, name))


def _read(path: Path, name: str) -> Array:
    with np.load(path, allow_pickle=False) as archive:
        array = archive[name]
    return _as_read(array.reshape(as_matrix(array.shape)))


def _as_read(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "f" else array
