"""Reads tensors as torch's pickles describe them: views of storages, when asked for.

A pickle holds a tensor as torch._utils._rebuild_tensor_v2(storage, offset, size, stride, ...) and a
storage as the persistent id ("storage", class, key, location, number of elements). What they say is
checked before it is believed: every element must lie in its storage, and a tensor must not have
more elements than its storage, or a few bytes would describe more memory than there is.
"""

import math
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from export.readers.common.torch_files.unpickling import Name

MOST_DIMENSIONS = 8
MOST_ELEMENTS = 2**48

# storage classes of torch: what an element is called in safetensors, and how it lies in the file
STORED: dict[str, tuple[str, str]] = {
    "torch.DoubleStorage": ("F64", "<f8"),
    "torch.FloatStorage": ("F32", "<f4"),
    "torch.HalfStorage": ("F16", "<f2"),
    "torch.BFloat16Storage": ("BF16", "<u2"),
    "torch.LongStorage": ("I64", "<i8"),
    "torch.IntStorage": ("I32", "<i4"),
    "torch.ShortStorage": ("I16", "<i2"),
    "torch.CharStorage": ("I8", "|i1"),
    "torch.ByteStorage": ("U8", "|u1"),
    "torch.BoolStorage": ("BOOL", "|b1"),
}


class Storage:
    """Describes a run of elements in the file; `elements` are known once it is placed."""

    def __init__(self, key: str, class_name: str, size: int) -> None:
        self.key, self.class_name, self.size = key, class_name, size
        self.kind, dtype = STORED[class_name]
        self.dtype = np.dtype(dtype)
        self.elements: np.ndarray | None = None

    @property
    def num_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def place(self, file: mmap.mmap, span: slice | None, problems: list[str]) -> None:
        """Its elements are the bytes `span` of the file."""
        if span is None:
            problems.append(f"storage {self.key[:40]!r} is missing")
            return
        found = min(span.stop, len(file)) - span.start
        if found < self.num_bytes:
            problems.append(
                f"storage {self.key[:40]!r} has {max(found, 0)} bytes, expected {self.num_bytes}"
            )
            return
        self.elements = np.frombuffer(file, self.dtype, self.size, span.start)


@dataclass(frozen=True, eq=False)
class LazyArray:
    """Describes a tensor in a file. `read` copies it into memory; nothing is kept."""

    storage: Storage
    offset: int  # elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements

    @property
    def kind(self) -> str:
        """Name the type of its elements as safetensors does."""
        return self.storage.kind

    def read(self) -> np.ndarray:
        """fp32 of floats of any size; integers and truth values as they are."""
        view = self._view()
        if self.kind == "BF16":
            return (view.astype(np.uint32) << 16).view(np.float32)
        return view.astype(np.float32) if view.dtype.kind == "f" else view.copy()

    def _view(self) -> np.ndarray:
        elements = self.storage.elements
        assert elements is not None, "storages are placed before anything is read"
        if 0 in self.shape:
            return np.empty(self.shape, elements.dtype)
        strides = tuple(stride * elements.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(
            elements[self.offset :], self.shape, strides, writeable=False
        )


class Storages:
    """Collects all storages that a pickle names, each once."""

    def __init__(self) -> None:
        self.by_key: dict[str, Storage] = {}

    def load(self, identity: Any) -> Storage:
        """`persistent_load` of torch's files. Raises ValueError, TypeError."""
        tag, kind, key, _location, size, *view = identity
        if tag != "storage" or not (isinstance(kind, Name) and kind.dotted in STORED):
            raise ValueError("a persistent id is not that of a storage")
        if not isinstance(key, str) or not _is_size(size):
            raise ValueError("a storage has no name or no size")
        if view not in ([], [None]):
            raise ValueError(f"storage {key[:40]!r} is a part of another")
        known = self.by_key.setdefault(key, Storage(key, kind.dotted, size))
        if (known.size, known.class_name) != (size, kind.dotted):
            raise ValueError(f"storage {key[:40]!r} has two sizes or two types")
        return known


def rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> LazyArray:
    """torch._utils._rebuild_tensor and _rebuild_tensor_v2. Raises ValueError."""
    if not (isinstance(storage, Storage) and _is_size(offset)):
        raise ValueError("a tensor has no storage or no place in it")
    if not (_are_sizes(shape) and _are_sizes(strides) and len(shape) == len(strides)):
        raise ValueError("a tensor's shape or strides are no sizes")
    elements = math.prod(shape)
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if elements and (elements > storage.size or last >= storage.size):
        raise ValueError(f"a tensor of shape {list(shape)} does not fit its storage")
    return LazyArray(storage, offset, shape, strides)


def rebuild_parameter(tensor: Any, *_: Any) -> LazyArray:
    """torch._utils._rebuild_parameter(data, requires_grad, hooks). Raises ValueError."""
    if not isinstance(tensor, LazyArray):
        raise ValueError("a parameter holds no tensor")
    return tensor


def rebuild_size(sizes: Any = ()) -> tuple[int, ...]:
    """torch.Size. Raises ValueError."""
    if not _are_sizes(sizes):
        raise ValueError("a torch.Size holds no sizes")
    return sizes


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_ELEMENTS


def _are_sizes(values: Any) -> bool:
    is_short = isinstance(values, tuple) and len(values) <= MOST_DIMENSIONS
    return is_short and all(_is_size(value) for value in values)
