"""The weights of a reader, found among the stored tensors.

A tensor that is missing, has another shape or is not of floats is a problem, and so is a tensor
that no weight uses.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from models.safetensors import FLOATS, Array, Stored

WeightReader = Callable[[], Array]  # reads a weight when it is needed
Shape = tuple[int, ...]


class Tensors:
    """Stored tensors by name. Base models are saved without `prefix`, which the names given here
    begin with.
    """

    def __init__(self, stored: Mapping[str, Stored], problems: list[str]) -> None:
        self.stored, self.prefix = stored, ""
        self._problems = problems
        self._taken: dict[tuple[str, Shape], WeightReader] = {}
        self._ignored: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._resolved(name) in self.stored

    def __len__(self) -> int:
        return len(self.stored)

    def take(self, name: str, shape: Shape) -> WeightReader:
        """Check that the tensor `name` is there and has `shape`; it is read as fp32."""
        key = (self._resolved(name), shape)
        if key not in self._taken:  # else what is wrong with it is known
            self._taken[key] = self._checked(*key)
        return self._taken[key]

    def differ(self, name: str, other: str) -> bool:
        """Return whether both tensors are stored, with different numbers."""
        first, second = (self.stored.get(self._resolved(each)) for each in (name, other))
        if first is None or second is None or not {first.kind, second.kind} <= {*FLOATS}:
            return False
        return first.shape != second.shape or not np.array_equal(first.read(), second.read())

    def drop(self, pattern: str) -> None:
        """Tensors of these names (a regular expression of whole names) are ignored."""
        wanted = re.compile(pattern)
        self._ignored.update(name for name in self.stored if wanted.fullmatch(name))

    def finish(self) -> None:
        """Add a problem for the tensors that no weight used."""
        known = self._ignored | {name for name, _ in self._taken}
        unused = sorted(self.stored.keys() - known)
        self._problems += [f"{name} is not expected" for name in unused]

    def _checked(self, name: str, shape: Shape) -> WeightReader:
        stored = self.stored.get(name)
        if stored is None:
            self._problems.append(f"{name} is missing")
        elif stored.kind not in FLOATS:
            self._problems.append(f"{name} holds {stored.kind}, which is not supported")
        elif stored.shape != shape:
            found, expected = list(stored.shape), list(shape)
            self._problems.append(f"{name} has shape {found}, expected {expected}")
        else:
            return stored.read
        return lambda: np.zeros(shape, np.float32)

    def _resolved(self, name: str) -> str:
        short = name.removeprefix(self.prefix)
        return short if name not in self.stored and short in self.stored else name


Change = Callable[[Array], Array]
VOCABULARY = ("source_embedding.weight", "target_embedding.weight", "output.weight")
LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")  # its number


@dataclass(frozen=True)
class TensorReference:
    """Describes a tensor of theirs that is more than one of ours by another name.

    name: of several, the first that the file has, else the last. `{}` stands for "weight" or
        "bias", or what `words` has in their place; it is added to names that have none.
    is_transposed: it is [in, out]. shape: theirs, if it is neither ours nor that transposed.
    change: of the whole tensor, before ours are cut out of it along `axis`, after `skipped` rows.
    """

    name: str | tuple[str, ...]
    words: tuple[str, str] = ("weight", "bias")
    is_transposed: bool = False
    shape: Shape | None = None
    change: Change | None = None
    axis: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Computed:
    """Computes a weight from its shape, whatever the file holds."""

    make: Callable[[Shape], Array]


ZEROS, ONES = (Computed(partial(make, dtype=np.float32)) for make in (np.zeros, np.ones))


@dataclass(frozen=True)
class Merged:
    """Makes one weight of ours of several tensors of theirs, by their very names and shapes; with
    `*` for the number of a layer. `join` gets them in this order.
    """

    parts: Mapping[str, Shape]
    join: Callable[..., Array]


WeightSource = TensorReference | Computed | Merged
Names = Mapping[Any, str | WeightSource]  # by a name of ours, or by several


@dataclass(frozen=True)
class Table:
    """changes: by names of ours. ignored: names of theirs, as regular expressions.

    prefix: what base models are saved without. first_layer: the number that theirs has.
    vectors_are_rows: they lie as [1, n].
    """

    names: Names
    changes: Mapping[str, Change] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    prefix: str = ""
    first_layer: int = 0
    vectors_are_rows: bool = False


def read_weights(
    shapes: Mapping[str, Shape], table: Table, tensors: Tensors
) -> dict[str, WeightReader]:
    """Return a reader for each weight, with its shape checked. Weights are read later."""
    tensors.prefix = table.prefix
    lookup = _Lookup(table, tensors)
    weights = {ours: lookup.reader(ours, shapes) for ours in shapes}
    shared = [name for name in VOCABULARY if name not in shapes and lookup.knows(name)]
    for pattern in (*table.ignored, *(re.escape(lookup.their_name(name)) for name in shared)):
        tensors.drop(pattern)
    return weights


def tensor_names(shapes: Mapping[str, Shape], table: Table, tensors: Tensors) -> dict[str, str]:
    """Return the file's name of each weight that it holds."""
    lookup = _Lookup(table, tensors)
    names = {ours: lookup.their_name(ours) for ours in shapes}
    return {ours: name for ours, name in names.items() if name}


def apply_change(reader: WeightReader, change: Change) -> WeightReader:
    """Change the weight when it is read."""
    return lambda: change(reader())


def scale_by(factor: float) -> Change:
    """Multiply by a number, in single precision."""
    return lambda weight: weight * np.float32(factor)


class _Lookup:
    """Asks a table for the weights of one model."""

    def __init__(self, table: Table, tensors: Tensors) -> None:
        self._table, self._tensors = table, tensors
        keys = {key: (key,) if isinstance(key, str) else key for key in table.names}
        self._keys = {name: key for key, names in keys.items() for name in names}

    def knows(self, ours: str) -> bool:
        return any(name in self._keys for name, _ in _patterns(ours))

    def their_name(self, ours: str) -> str:
        """Empty, if it is made, or of several."""
        entry = self.find(ours)[1]
        return str(entry.name) if isinstance(entry, TensorReference) else ""

    def find(self, ours: str) -> tuple[list[str], WeightSource]:
        """Return all of our weights that are in the same tensor, and the tensor with its exact
        name.
        """
        known, end = next(pattern for pattern in _patterns(ours) if pattern[0] in self._keys)
        key, number = self._keys[known], LAYER.search(ours)
        layer, entry = number[0] if number else "", self._table.names[key]
        together = [name.replace("*", layer) + end for name in key] if known != key else [ours]
        if isinstance(entry, Computed):
            return together, entry
        if isinstance(entry, Merged):
            parts = {self._numbered(name, layer): each for name, each in entry.parts.items()}
            return together, replace(entry, parts=parts)
        return together, self._named(
            TensorReference(entry) if isinstance(entry, str) else entry, layer, end
        )

    def _named(self, entry: TensorReference, layer: str, end: str) -> TensorReference:
        """end: what the table leaves away of the name."""
        names = (entry.name,) if isinstance(entry.name, str) else entry.name
        if end:
            word = entry.words[end == ".bias"]
            names = tuple((n if "{}" in n else f"{n}.{{}}").replace("{}", word) for n in names)
        found = [self._numbered(name, layer) for name in names]
        held = next((name for name in found if name in self._tensors), found[-1])
        return replace(entry, name=held)

    def _numbered(self, name: str, layer: str) -> str:
        """Put the number that theirs has in place of the star."""
        return name.replace("*", str(int(layer) + self._table.first_layer) if layer else "")

    def reader(self, ours: str, shapes: Mapping[str, Shape]) -> WeightReader:
        together, entry = self.find(ours)
        if isinstance(entry, Computed):
            found: WeightReader = partial(entry.make, shapes[ours])
        elif isinstance(entry, Merged):
            found = self._joined(entry)
        else:
            found = self._cut(entry, together.index(ours), [shapes[name] for name in together])
        changes = [self._table.changes.get(name) for name, _ in _patterns(ours)]
        change = next(filter(None, changes), None)
        return found if change is None else apply_change(found, change)

    def _joined(self, entry: Merged) -> WeightReader:
        parts = [self._tensors.take(name, shape) for name, shape in entry.parts.items()]
        return lambda: entry.join(*(read() for read in parts))

    def _cut(self, entry: TensorReference, index: int, shapes: list[Shape]) -> WeightReader:
        """Cut out one of the weights of these shapes that make up a tensor of theirs."""
        sizes, shape = [each[entry.axis] for each in shapes], list(shapes[index])
        start = entry.skipped + sum(sizes[:index])
        shape[entry.axis] = entry.skipped + sum(sizes)
        whole = self._whole(entry, tuple(shape))
        part = (*[slice(None)] * entry.axis, slice(start, start + sizes[index]))
        return (
            whole
            if tuple(shape) == shapes[index]
            else apply_change(whole, lambda weight: weight[part])
        )

    def _whole(self, entry: TensorReference, shape: Shape) -> WeightReader:
        is_row = self._table.vectors_are_rows and len(shape) == 1
        theirs = (1, *shape) if is_row else shape[::-1] if entry.is_transposed else shape
        found = self._tensors.take(str(entry.name), entry.shape or theirs)
        if is_row:
            found = apply_change(found, np.ravel)
        if entry.is_transposed:
            found = apply_change(found, np.transpose)
        return found if entry.change is None else apply_change(found, entry.change)


def _patterns(ours: str) -> Iterator[tuple[str, str]]:
    """List what a table may know a weight by, the most special first, and what that leaves away."""
    part, _, last = ours.rpartition(".")
    for name, end in ((ours, ""), (part, f".{last}")):
        yield name, end
        yield LAYER.sub("*", name, count=1), end
