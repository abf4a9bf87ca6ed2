"""The one idiom of all readers: a family is a table from our names to theirs, and what differs.

    names = {
        "embedding": "model.embed_tokens",
        "layers.*.attention_norm": "model.layers.*.input_layernorm",
        "layers.*.attention.output": Held("model.layers.*.o_proj", is_transposed=True),
        ("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "model.layers.*.gate_up_proj",
        "positions.weight": Made(lambda: sinusoids(512, 64)),
    }
    table = Table(names, changes={"norm": plus_one}, needless=(r"lm_head\\.weight",))
    weights = read_weights(shapes(config), table, tensors)

The architecture says which weights there are, by name and shape; the table says what each of them
is called in the file. A name without its last part means the weight and the bias, as far as there
are any. `*` is the number of a layer. Several names of ours lie one below the other in a single
tensor of theirs. `changes` are made to a weight of ours once it is turned and cut out.

Every tensor of the file must be asked for, or be needless; whatever does not fit is a problem.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from export.readers.common.weights import Shape, Tensors, WeightReader
from models.arrays import Array

Change = Callable[[Array], Array]
LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")  # its number


@dataclass(frozen=True)
class Held:
    """A tensor of theirs that is more than one of ours by another name.

    name: of several, the first that the file has, else the last. `{}` stands for "weight" or
        "bias", or what `words` has in their place; it is added to names that have none.
    is_transposed: it is [in, out]. shape: theirs, if it is neither ours nor that transposed.
    change: of the whole tensor, before ours are cut out of it along `axis`.
    has_bias: else the bias is made up of zeros.
    """

    name: str | tuple[str, ...]
    words: tuple[str, str] = ("weight", "bias")
    is_transposed: bool = False
    shape: Shape | None = None
    change: Change | None = None
    axis: int = 0
    has_bias: bool = True


@dataclass(frozen=True)
class Made:
    """A weight that is computed, whatever the file holds."""

    make: WeightReader


Names = Mapping[str | tuple[str, ...], str | Held | Made]


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
    lookup = _Lookup(table, shapes, tensors)
    weights = {ours: lookup.reader(ours) for ours in shapes}
    for pattern in table.needless:
        tensors.drop(pattern)
    return weights


def held_names(shapes: Mapping[str, Shape], table: Table, tensors: Tensors) -> dict[str, str]:
    """Find what the file calls each weight of ours that it holds."""
    lookup = _Lookup(table, shapes, tensors)
    entries = {ours: lookup.entry(ours) for ours in shapes}
    return {
        ours: lookup.their_name(ours, entry)
        for ours, entry in entries.items()
        if isinstance(entry, Held)
    }


def then(reader: WeightReader, change: Change) -> WeightReader:
    """Change the weight when it is read."""
    return lambda: change(reader())


def times(factor: float) -> Change:
    """Multiply by a number, in single precision."""
    return lambda weight: weight * np.float32(factor)


class _Lookup:
    """A table, asked for the weights of one model."""

    def __init__(self, table: Table, shapes: Mapping[str, Shape], tensors: Tensors) -> None:
        self._table, self._shapes, self._tensors = table, shapes, tensors
        self._keys = {
            name: key for key in table.names for name in ((key,) if isinstance(key, str) else key)
        }

    def entry(self, ours: str) -> Held | Made:
        value = self._table.names[self._keys[self._known(ours)]]
        return Held(value) if isinstance(value, str) else value

    def reader(self, ours: str) -> WeightReader:
        entry = self.entry(ours)
        if isinstance(entry, Made):
            found = entry.make
        elif ours.endswith(".bias") and not entry.has_bias:
            found = partial(np.zeros, self._shapes[ours], np.float32)
        else:
            found = self._cut(ours, entry)
        change = next((name for name in _patterns(ours) if name in self._table.changes), None)
        return found if change is None else then(found, self._table.changes[change])

    def their_name(self, ours: str, entry: Held) -> str:
        names = (entry.name,) if isinstance(entry.name, str) else entry.name
        if self._last_part(ours):
            word = entry.words[ours.endswith(".bias")]
            names = tuple((n if "{}" in n else f"{n}.{{}}").replace("{}", word) for n in names)
        layer = LAYER.search(ours)
        number = str(int(layer[0]) + self._table.first_layer) if layer else ""
        found = [name.replace("*", number) for name in names]
        return next((name for name in found if name in self._tensors), found[-1])

    def _known(self, ours: str) -> str:
        """The name that the table has it by."""
        found = next((name for name in _patterns(ours) if name in self._keys), None)
        assert found is not None, f"the table of this family lacks {ours}"
        return found

    def _last_part(self, ours: str) -> str:
        """What the table leaves away of the name."""
        is_whole = self._known(ours) in (ours, _starred(ours))
        return "" if is_whole else "." + ours.rpartition(".")[2]

    def _cut(self, ours: str, entry: Held) -> WeightReader:
        """Its part of a tensor of theirs, or all of that."""
        shapes = {name: self._shapes[name] for name in self._in_one(ours)}
        axis, shape = entry.axis, list(self._shapes[ours])
        shape[axis] = sum(each[axis] for each in shapes.values())
        whole = self._whole(self.their_name(ours, entry), entry, tuple(shape))
        if len(shapes) == 1:
            return whole
        start = sum(each[axis] for each in list(shapes.values())[: list(shapes).index(ours)])
        part = slice(start, start + self._shapes[ours][axis])
        return then(whole, lambda weight: weight[(*[slice(None)] * axis, part)])

    def _in_one(self, ours: str) -> list[str]:
        """The names of all weights of ours in the same tensor of theirs."""
        key = self._keys[self._known(ours)]
        if isinstance(key, str):
            return [ours]
        layer, end = LAYER.search(ours), self._last_part(ours)
        return [name.replace("*", layer[0] if layer else "") + end for name in key]

    def _whole(self, name: str, entry: Held, shape: Shape) -> WeightReader:
        is_row = self._table.vectors_are_rows and len(shape) == 1
        theirs = (1, *shape) if is_row else shape[::-1] if entry.is_transposed else shape
        found = self._tensors.take(name, entry.shape or theirs)
        if is_row:
            found = then(found, np.ravel)
        if entry.is_transposed:
            found = then(found, np.transpose)
        return found if entry.change is None else then(found, entry.change)


def _patterns(ours: str) -> Iterator[str]:
    """What a table may know a weight by, the most special name first."""
    for name in (ours, ours.rpartition(".")[0]):
        yield name
        yield _starred(name)


def _starred(name: str) -> str:
    return LAYER.sub("*", name, count=1)
