"""Describes language models of one stack, as the readers of their families share it.

A family says how its `config.json` reads as a configuration of ours, and which tensor is which
weight. Neither needs a folder: GGUF files become the same names.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from export.readers.common.language_models.shapes import shapes_of
from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.tables import Held, Table, read_weights
from export.readers.common.weights import Tensors, WeightReader

QUERY_KEY_VALUE = tuple(f"layers.*.attention.{part}" for part in ("query", "key", "value"))


class LanguageFamily(NamedTuple):
    """configure: the values of our configuration, from `config.json`. table: which tensor of theirs
    is which weight of ours, from `config.json` and our configuration. context_length: of models
    that read texts of any length, how much of one is taken where nobody says; None: the file does.
    """

    configure: Callable[[Options], dict[str, Any]]
    table: Callable[[Options, Any], Table]
    context_length: int | None = None

    def has_own_output(self, options: Options, config: Any, tensors: Tensors) -> bool:
        """Return whether the output has a table of its own, with other numbers than the input's."""
        table = self.table(options, config)
        tensors.prefix = table.prefix
        return tensors.differ(*(f"{name}.weight" for name in _vocabulary(table)))

    def weights(self, options: Options, config: Any, tensors: Tensors) -> dict[str, WeightReader]:
        """Find all weights of ours; what is wrong with them is noted."""
        table = self.table(options, config)
        if config.tied_embeddings:  # under either name
            embedding, output = _vocabulary(table)
            names = {**table.names, "embedding": Held((embedding, output, embedding))}
            table = replace(table, names=names)
        return read_weights(shapes_of(config), table, tensors)


def _vocabulary(table: Table) -> tuple[str, str]:
    """Return the names of the input's and the output's table of words."""
    return str(table.names["embedding"]), str(table.names["output"])


def num_layers(config: Options, name: str = "num_hidden_layers") -> int:
    """Read how many layers there are, within reason."""
    return config.integer(name, at_most=MOST_LAYERS)


def special_ids(config: Options) -> dict[str, int]:
    """Ours must be there: one that a model does not have is its end of text."""
    known = {name: config.ids(f"{name}_token_id") for name in ("eos", "bos", "pad")}
    known = {name: tuple(i for i in ids if i >= 0) for name, ids in known.items()}
    (end, *_) = (*known["eos"], *known["bos"], *known["pad"], 0)
    return {f"{name}_id": next(iter(ids), end) for name, ids in known.items()}
