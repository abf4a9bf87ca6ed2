"""Reads all families in one way: by a table from our names to theirs, and what differs.

    names = {
        "embedding": "model.embed_tokens",
        "layers.*.attention_norm": "model.layers.*.input_layernorm",
        "layers.*.attention.output": Held("model.layers.*.o_proj", is_transposed=True),
        ("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "model.layers.*.gate_up_proj",
        "positions.weight": Made(sinusoids),
    }
    table = Table(names, changes={"norm": plus_one}, needless=(r"lm_head\\.weight",))
    weights = read_weights(shapes_of(config), table, tensors)

The architecture says which weights there are, by name and shape; the table says what each of them
is called in the file. A name without its last part means the weight and the bias, as far as there
are any; `*` is the number of a layer. Several names of ours lie one below the other in a single
tensor of theirs. The most special name counts, and of two entries for the same the later one.
`changes` are made to a weight of ours once it is turned and cut out.

Every tensor of the file must be asked for, or be needless; whatever does not fit is a problem.
Files may repeat a vocabulary's table that is shared.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.weights import Shape, Tensors, WeightReader
from models.arrays import Array

Change = Callable[[Array], Array]
VOCABULARY = ("source_embedding.weight", "target_embedding.weight", "output.weight")
LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")  # its number


@dataclass(frozen=True)
class Held:
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
class Made:
    """Computes a weight from its shape, whatever the file holds."""

    make: Callable[[Shape], Array]


@dataclass(frozen=True)
class Joined:
    """Makes one weight of ours of several tensors of theirs, by their very names and shapes; with
    `*` for the number of a layer. `join` gets them in this order.
    """

    parts: Mapping[str, Shape]
    join: Callable[..., Array]


Entry = Held | Made | Joined
Names = Mapping[Any, str | Entry]  # by a name of ours, or by several


@dataclass(frozen=True)
class Table:
    """changes: by names of ours. needless: names of theirs, as regular expressions.

    prefix: what base models are saved without. first_layer: the number that theirs has.
    vectors_are_rows: they lie as [1, n].
    """

    names: Names
    changes: Mapping[str, Change] = field(default_factory=dict)
    needless: tuple[str, ...] = ()
    prefix: str = ""
    first_layer: int = 0
    vectors_are_rows: bool = False


def read_weights(
    shapes: Mapping[str, Shape], table: Table, tensors: Tensors
) -> dict[str, WeightReader]:
    """Find each weight of ours and check its shape; it is read when it is needed."""
    tensors.prefix = table.prefix
    lookup = _Lookup(table, tensors)
    weights = {ours: lookup.reader(ours, shapes) for ours in shapes}
    shared = [name for name in VOCABULARY if name not in shapes and lookup.knows(name)]
    for pattern in (*table.needless, *(re.escape(lookup.their_name(name)) for name in shared)):
        tensors.drop(pattern)
    return weights


def held_names(shapes: Mapping[str, Shape], table: Table, tensors: Tensors) -> dict[str, str]:
    """Find what the file calls each weight of ours that it holds."""
    lookup = _Lookup(table, tensors)
    names = {ours: lookup.their_name(ours) for ours in shapes}
    return {ours: name for ours, name in names.items() if name}


def then(reader: WeightReader, change: Change) -> WeightReader:
    """Change the weight when it is read."""
    return lambda: change(reader())


def times(factor: float) -> Change:
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
        return str(entry.name) if isinstance(entry, Held) else ""

    def find(self, ours: str) -> tuple[list[str], Entry]:
        """Give all weights of ours in the same tensor, and that, under the very name it has."""
        known, end = next(pattern for pattern in _patterns(ours) if pattern[0] in self._keys)
        key, number = self._keys[known], LAYER.search(ours)
        layer, entry = number[0] if number else "", self._table.names[key]
        together = [name.replace("*", layer) + end for name in key] if known != key else [ours]
        if isinstance(entry, Made):
            return together, entry
        if isinstance(entry, Joined):
            parts = {self._numbered(name, layer): each for name, each in entry.parts.items()}
            return together, replace(entry, parts=parts)
        return together, self._named(Held(entry) if isinstance(entry, str) else entry, layer, end)

    def _named(self, entry: Held, layer: str, end: str) -> Held:
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
        if isinstance(entry, Made):
            found: WeightReader = partial(entry.make, shapes[ours])
        elif isinstance(entry, Joined):
            found = self._joined(entry)
        else:
            found = self._cut(entry, together.index(ours), [shapes[name] for name in together])
        changes = [self._table.changes.get(name) for name, _ in _patterns(ours)]
        change = next(filter(None, changes), None)
        return found if change is None else then(found, change)

    def _joined(self, entry: Joined) -> WeightReader:
        parts = [self._tensors.take(name, shape) for name, shape in entry.parts.items()]
        return lambda: entry.join(*(read() for read in parts))

    def _cut(self, entry: Held, index: int, shapes: list[Shape]) -> WeightReader:
        """Cut out one of the weights of these shapes that make up a tensor of theirs."""
        sizes, shape = [each[entry.axis] for each in shapes], list(shapes[index])
        start = entry.skipped + sum(sizes[:index])
        shape[entry.axis] = entry.skipped + sum(sizes)
        whole = self._whole(entry, tuple(shape))
        part = (*[slice(None)] * entry.axis, slice(start, start + sizes[index]))
        return whole if tuple(shape) == shapes[index] else then(whole, lambda weight: weight[part])

    def _whole(self, entry: Held, shape: Shape) -> WeightReader:
        is_row = self._table.vectors_are_rows and len(shape) == 1
        theirs = (1, *shape) if is_row else shape[::-1] if entry.is_transposed else shape
        found = self._tensors.take(str(entry.name), entry.shape or theirs)
        if is_row:
            found = then(found, np.ravel)
        if entry.is_transposed:
            found = then(found, np.transpose)
        return found if entry.change is None else then(found, entry.change)


def _patterns(ours: str) -> Iterator[tuple[str, str]]:
    """List what a table may know a weight by, the most special first, and what that leaves away."""
    part, _, last = ours.rpartition(".")
    for name, end in ((ours, ""), (part, f".{last}")):
        yield name, end
        yield LAYER.sub("*", name, count=1), end
