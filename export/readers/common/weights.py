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

from models.safetensors import FLOATS, Array, BlockReader, Stored

WeightReader = Callable[[], Array]  # reads a weight when it is needed
Shape = tuple[int, ...]
Change = Callable[[Array], Array]
VOCABULARY = ("source_embedding.weight", "target_embedding.weight", "output.weight")
LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")  # its number


class StoredTensors:
    """Stored tensors by name. Base models are saved without `prefix`, which the names given here
    begin with.
    """

    def __init__(self, stored: Mapping[str, Stored], problems: list[str]) -> None:
        self.stored, self.prefix = stored, ""
        self._problems = problems
        self._readers: dict[tuple[str, Shape], WeightReader] = {}
        self._ignored: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self._resolve(name) in self.stored

    def __len__(self) -> int:
        return len(self.stored)

    def take(self, name: str, shape: Shape) -> WeightReader:
        """Check that the tensor `name` is there and has `shape`; it is read as fp32."""
        key = (self._resolve(name), shape)
        if key not in self._readers:  # else what is wrong with it is known
            self._readers[key] = self._check(*key)
        return self._readers[key]

    def differ(self, name: str, other: str) -> bool:
        """Return whether both tensors are stored, with different numbers."""
        first, second = (self.stored.get(self._resolve(tensor)) for tensor in (name, other))
        if first is None or second is None or not {first.kind, second.kind} <= {*FLOATS}:
            return False
        return first.shape != second.shape or not np.array_equal(first.read(), second.read())

    def ignore(self, pattern: str) -> None:
        """Ignore tensors of these names, a regular expression of whole names."""
        compiled = re.compile(pattern)
        self._ignored.update(name for name in self.stored if compiled.fullmatch(name))

    def refuse_unused(self) -> None:
        """Add a problem for the tensors that no weight used."""
        used = self._ignored | {name for name, _ in self._readers}
        unused = sorted(self.stored.keys() - used)
        self._problems += [f"{name} is not expected" for name in unused]

    def _check(self, name: str, shape: Shape) -> WeightReader:
        stored = self.stored.get(name)
        if stored is None:
            self._problems.append(f"{name} is missing")
        elif stored.kind not in FLOATS:
            self._problems.append(f"{name} holds {stored.kind}, which is not supported")
        elif stored.shape != shape:
            actual, expected = list(stored.shape), list(shape)
            self._problems.append(f"{name} has shape {actual}, expected {expected}")
        elif stored.read_blocks is not None:
            return BlockReader(stored.read, stored.read_blocks)
        else:
            return stored.read
        return lambda: np.zeros(shape, np.float32)

    def _resolve(self, name: str) -> str:
        short = name.removeprefix(self.prefix)
        return short if name not in self.stored and short in self.stored else name


@dataclass(frozen=True)
class TensorReference:
    """A tensor of theirs that is more than one of ours by another name.

    name: of several, the first that the file has, else the last. `{}` stands for "weight" or
        "bias", or what `words` has in their place; it is added to names that have none.
    is_transposed: it is [in, out]. shape: theirs, if it is neither ours nor that transposed.
    change: of the whole tensor, before ours are cut out of it along `axis`, after `skipped` rows.
    moves_rows: whether the change only moves rows, and so can be made of quantised ones.
    """

    name: str | tuple[str, ...]
    words: tuple[str, str] = ("weight", "bias")
    is_transposed: bool = False
    shape: Shape | None = None
    change: Change | None = None
    moves_rows: bool = False
    axis: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Computed:
    """A weight that is computed from its shape, whatever the file holds."""

    compute: Callable[[Shape], Array]


ZEROS, ONES = (Computed(partial(fill, dtype=np.float32)) for fill in (np.zeros, np.ones))


@dataclass(frozen=True)
class Merged:
    """A weight of ours that is made of several tensors of theirs.

    parts: their shapes by name, with `*` for the number of a layer. merge: gets them in this order.
    """

    parts: Mapping[str, Shape]
    merge: Callable[..., Array]


WeightSource = TensorReference | Computed | Merged
Names = Mapping[Any, str | WeightSource]  # by a name of ours, or by several


@dataclass(frozen=True)
class Table:
    """Which tensor of a file is which weight.

    names: theirs, by names of ours. changes: of weights when they are read, by names of ours.
    ignored: names of theirs that are not read, as regular expressions.

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
    shapes: Mapping[str, Shape], table: Table, tensors: StoredTensors
) -> dict[str, WeightReader]:
    """Return a reader for each weight, with its shape checked. Weights are read later."""
    tensors.prefix = table.prefix
    lookup = _Lookup(table, tensors)
    weights = {ours: lookup.make_reader(ours, shapes) for ours in shapes}
    shared = [name for name in VOCABULARY if name not in shapes and lookup.has_name(name)]
    for pattern in (*table.ignored, *(re.escape(lookup.their_name(name)) for name in shared)):
        tensors.ignore(pattern)
    return weights


def tensor_names(
    shapes: Mapping[str, Shape], table: Table, tensors: StoredTensors
) -> dict[str, str]:
    """Return the file's name of each weight that it holds."""
    lookup = _Lookup(table, tensors)
    names = {ours: lookup.their_name(ours) for ours in shapes}
    return {ours: name for ours, name in names.items() if name}


def apply_change(reader: WeightReader, change: Change, *, moves_rows: bool = False) -> WeightReader:
    """Change the weight when it is read. moves_rows: whether the change leaves rows as they are."""
    if moves_rows and isinstance(reader, BlockReader):
        read_blocks = reader.read_blocks
        return BlockReader(lambda: change(reader()), lambda: read_blocks().change_rows(change))
    return lambda: change(reader())


def scale_by(factor: float) -> Change:
    """Multiply by a number, in single precision."""
    return lambda weight: weight * np.float32(factor)


class _Lookup:
    """Looks the weights of one model up in a table."""

    def __init__(self, table: Table, tensors: StoredTensors) -> None:
        self._table, self._tensors = table, tensors
        keys = {key: (key,) if isinstance(key, str) else key for key in table.names}
        self._keys = {name: key for key, names in keys.items() for name in names}

    def has_name(self, ours: str) -> bool:
        return any(name in self._keys for name, _ in _patterns(ours))

    def their_name(self, ours: str) -> str:
        """Return the file's name of a weight; empty if it is computed or merged."""
        source = self._find_source(ours)[1]
        return str(source.name) if isinstance(source, TensorReference) else ""

    def make_reader(self, ours: str, shapes: Mapping[str, Shape]) -> WeightReader:
        """Return what reads a weight, and note the problems of its tensors."""
        together, source = self._find_source(ours)
        if isinstance(source, Computed):
            reader: WeightReader = partial(source.compute, shapes[ours])
        elif isinstance(source, Merged):
            reader = self._read_merged(source)
        else:
            index = together.index(ours)
            reader = self._read_part(source, index, [shapes[name] for name in together])
        changes = [self._table.changes.get(name) for name, _ in _patterns(ours)]
        change = next(filter(None, changes), None)
        return reader if change is None else apply_change(reader, change)

    def _find_source(self, ours: str) -> tuple[list[str], WeightSource]:
        """Return all of our weights that are in the same tensor, and the tensor with its exact
        name.
        """
        pattern, end = next(pair for pair in _patterns(ours) if pair[0] in self._keys)
        key, number = self._keys[pattern], LAYER.search(ours)
        layer, source = number[0] if number else "", self._table.names[key]
        together = [name.replace("*", layer) + end for name in key] if pattern != key else [ours]
        if isinstance(source, Computed):
            return together, source
        if isinstance(source, Merged):
            shapes = source.parts.items()
            parts = {self._put_number(name, layer): shape for name, shape in shapes}
            return together, replace(source, parts=parts)
        reference = TensorReference(source) if isinstance(source, str) else source
        return together, self._find_tensor(reference, layer, end)

    def _find_tensor(self, reference: TensorReference, layer: str, end: str) -> TensorReference:
        """Return the reference with the exact name. end: what the table leaves away of the name."""
        names = (reference.name,) if isinstance(reference.name, str) else reference.name
        if end:
            word = reference.words[end == ".bias"]
            names = tuple((n if "{}" in n else f"{n}.{{}}").replace("{}", word) for n in names)
        candidates = [self._put_number(name, layer) for name in names]
        stored = next((name for name in candidates if name in self._tensors), candidates[-1])
        return replace(reference, name=stored)

    def _put_number(self, name: str, layer: str) -> str:
        """Put the number that theirs has in place of the star."""
        return name.replace("*", str(int(layer) + self._table.first_layer) if layer else "")

    def _read_merged(self, merged: Merged) -> WeightReader:
        parts = [self._tensors.take(name, shape) for name, shape in merged.parts.items()]
        return lambda: merged.merge(*(read() for read in parts))

    def _read_part(
        self, reference: TensorReference, index: int, shapes: list[Shape]
    ) -> WeightReader:
        """Cut out one of the weights of these shapes that make up a tensor of theirs."""
        axis, shape = reference.axis, list(shapes[index])
        sizes = [weight_shape[axis] for weight_shape in shapes]
        start = reference.skipped + sum(sizes[:index])
        shape[axis] = reference.skipped + sum(sizes)
        whole = self._read_whole(reference, tuple(shape))
        if tuple(shape) == shapes[index]:
            return whole
        part = (*[slice(None)] * axis, slice(start, start + sizes[index]))
        return apply_change(whole, lambda weight: weight[part], moves_rows=axis == 0)

    def _read_whole(self, reference: TensorReference, shape: Shape) -> WeightReader:
        is_row = self._table.vectors_are_rows and len(shape) == 1
        theirs = (1, *shape) if is_row else shape[::-1] if reference.is_transposed else shape
        reader = self._tensors.take(str(reference.name), reference.shape or theirs)
        if is_row:
            reader = apply_change(reader, np.ravel)
        if reference.is_transposed:
            reader = apply_change(reader, np.transpose)
        if reference.change is None:
            return reader
        return apply_change(reader, reference.change, moves_rows=reference.moves_rows)


def _patterns(ours: str) -> Iterator[tuple[str, str]]:
    """List what a table may know a weight by, the most special first, and what that leaves away."""
    part, _, last = ours.rpartition(".")
    for name, end in ((ours, ""), (part, f".{last}")):
        yield name, end
        yield LAYER.sub("*", name, count=1), end
