"""Says which of the attention that graphs tell of a request wants to see, and how much of it.

Whose layers and heads they are is the manifest's to say; here they are numbers along an axis.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import AttentionKind, AttentionShape, Manifest
from serving.errors import RequestError
from serving.request import Attention, Look

# Numbers that one request may have, and that one run may compute for a row: 64 MiB.
MAX_NUMBERS = 2**24


@dataclass(frozen=True, slots=True)
class Sight:
    """Picks what one look wants of the heads of all layers.

    maps: their places on that axis. shape: of these, layers and heads.
    """

    kind: AttentionKind
    maps: tuple[int, ...]
    shape: tuple[int, int]
    is_mean: bool

    @property
    def num_told(self) -> int:
        return 1 if self.is_mean else len(self.maps)

    def of(self, weights: Array) -> Attention:
        """Take of weights f32 [all heads, rows, columns] a copy: [layers, heads, rows, columns]."""
        chosen = weights[list(self.maps)]
        if self.is_mean:
            mean: Attention = chosen.mean(axis=0, dtype=np.float32)[None, None]
            return mean
        return chosen.reshape(*self.shape, *weights.shape[1:])


def sights_of(looks: tuple[Look, ...], manifest: Manifest) -> tuple[Sight, ...]:
    """Find what a request's looks mean for a bundle. Raises RequestError for what it has not."""
    return tuple(_sight(look, manifest) for look in looks)


def _sight(look: Look, manifest: Manifest) -> Sight:
    told = manifest.told_attention
    if look.kind not in told:
        known = f"it has {', '.join(told)}" if told else "it has none"
        message = f"model {manifest.name} tells of no such attention: {known}"
        raise RequestError("looks", look.kind, message)
    kind = AttentionKind(look.kind)
    shape = told[kind]
    layers = _numbers(look.kind, "layer", look.layers, shape.num_layers)
    heads = _numbers(look.kind, "head", look.heads, shape.num_heads)
    maps = tuple(layer * shape.num_heads + head for layer in layers for head in heads)
    return Sight(kind, maps, (len(layers), len(heads)), look.is_mean)


def _numbers(kind: str, name: str, asked: tuple[int, ...], count: int) -> tuple[int, ...]:
    for number in asked:
        if not 0 <= number < count:
            message = f"no such {name} of {kind} attention: they go from 0 to {count - 1}"
            raise RequestError("looks", number, message)
    if len(set(asked)) < len(asked):  # a few thousand twice over would be millions of maps
        message = f"names a {name} of {kind} attention more than once; name each once"
        raise RequestError("looks", asked, message)
    return asked or tuple(range(count))


@dataclass(frozen=True, slots=True)
class Extent:
    """Says how much text a request has: tokens of its source, the most that its target may get, and
    how many of these are read at once.
    """

    num_source: int
    num_target: int
    num_at_once: int

    def check(self, sights: tuple[Sight, ...], shapes: dict[AttentionKind, AttentionShape]) -> None:
        """Raises RequestError where a request looks at more than is kept for one, or computed for
        one at a time.
        """
        at_once = {each.kind: self._at_once(each.kind, shapes[each.kind]) for each in sights}
        most = max(self._told(sights), *at_once.values(), 0)
        if most > MAX_NUMBERS:
            message = (
                f"for up to {max(self.num_source, self.num_target)} tokens these are {most} "
                f"numbers, more than {MAX_NUMBERS}: allow for fewer tokens, or for fewer heads"
            )
            raise RequestError("looks", ", ".join(at_once), message)

    def _told(self, sights: tuple[Sight, ...]) -> int:
        return sum(each.num_told * prod(self._size(each.kind)) for each in sights)

    def _at_once(self, kind: AttentionKind, shape: AttentionShape) -> int:
        """Count what a run computes: a source whole, a target by as many tokens as are read."""
        rows, columns = self._size(kind)
        is_source = kind is AttentionKind.ENCODER
        return shape.num_maps * columns * (rows if is_source else min(self.num_at_once, rows))

    def _size(self, kind: AttentionKind) -> tuple[int, int]:
        columns = self.num_target if kind is AttentionKind.DECODER else self.num_source
        rows = self.num_source if kind is AttentionKind.ENCODER else self.num_target
        return rows, columns


def tokens_at_once(manifest: Manifest, prefill_chunk: int) -> int:
    """Count the tokens of a prompt that the step graph reads in one run."""
    if "encode" in manifest.graphs:
        return 1
    ids = next(spec for spec in manifest.graphs["step"].inputs if spec.name == "ids")
    return 1 if ids.shape[1] == 1 else prefill_chunk
