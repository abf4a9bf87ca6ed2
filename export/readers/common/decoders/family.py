"""What a family of language models says of itself, and what all read alike.

A family is two functions: `configure` makes our options of those in `config.json`, `table` says
which tensor of the file is which weight.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from export.readers.common.language_model_shapes import language_model_shapes
from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.shapes import read_activation
from export.readers.common.weights import (
    StoredTensors,
    Table,
    TensorReference,
    WeightReader,
    read_weights,
)

QUERY_KEY_VALUE = tuple(f"layers.*.attention.{part}" for part in ("query", "key", "value"))
IGNORED = (r"(.*\.)?rotary_emb\.inv_freq",)


class LanguageFamily(NamedTuple):
    """configure: returns the values of our configuration from `config.json`.
    table: returns which tensor of the file is which weight, from `config.json` and our
        configuration.
    context_length: the default length for models that read texts of any length; None: the file says
        it.
    """

    configure: Callable[[Options], dict[str, Any]]
    table: Callable[[Options, Any], Table]
    context_length: int | None = None

    def has_own_output(self, options: Options, config: Any, tensors: StoredTensors) -> bool:
        """Return whether the output layer has a table of its own, with other numbers than the
        embedding.
        """
        table = self.table(options, config)
        tensors.prefix = table.prefix
        return tensors.differ(*(f"{name}.weight" for name in _vocabulary(table)))

    def weights(
        self, options: Options, config: Any, tensors: StoredTensors
    ) -> dict[str, WeightReader]:
        """Return readers of all weights. Problems are collected."""
        table = self.table(options, config)
        if config.tied_embeddings:  # under either name
            embedding, output = _vocabulary(table)
            names = {**table.names, "embedding": TensorReference((embedding, output, embedding))}
            table = replace(table, names=names)
        return read_weights(language_model_shapes(config), table, tensors)


def _vocabulary(table: Table) -> tuple[str, str]:
    """Return the names of the tensors of the embedding and the output layer."""
    return str(table.names["embedding"]), str(table.names["output"])


def num_layers(config: Options, name: str = "num_hidden_layers") -> int:
    """Read the number of layers, within a sane limit."""
    return config.integer(name, at_most=MOST_LAYERS)


def special_ids(config: Options) -> dict[str, int]:
    """Return the ids of our special tokens. A token that a model does not have gets the id of its
    end token.
    """
    ids_by_role = {name: config.ids(f"{name}_token_id") for name in ("eos", "bos", "pad")}
    ids_by_role = {name: tuple(i for i in ids if i >= 0) for name, ids in ids_by_role.items()}
    (end, *_) = (*ids_by_role["eos"], *ids_by_role["bos"], *ids_by_role["pad"], 0)
    return {f"{name}_id": next(iter(ids), end) for name, ids in ids_by_role.items()}


def head_size(config: Options) -> int:
    whole = config.integer("hidden_size") // max(config.integer("num_attention_heads"), 1)
    return config.integer("head_dim", whole)


def rename(config: Options, **names: str) -> None:
    """Give options of a family the names that most families use: theirs="usual"."""
    for theirs, usual in names.items():
        if theirs in config:
            config.values[usual] = config.get(theirs)


def sizes(
    config: Options,
    act: str,
    *,
    width: int | None = None,
    epsilon: str | None = "layer_norm_eps",
    is_tied: bool = False,
    act_name: str = "hidden_act",
) -> dict[str, Any]:
    """Read what language models write alike.

    act, width, is_tied: where the file does not say; width is that of the feed-forward network, in
        hidden sizes. epsilon, act_name: names in the file; epsilon may be none.
    """
    d_model = config.integer("hidden_size")
    return {
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": d_model,
        "num_layers": num_layers(config),
        "num_heads": config.integer("num_attention_heads"),
        "head_dim": config.integer("head_dim") if "head_dim" in config else None,
        "ffn_dim": config.integer("intermediate_size", width and width * d_model),
        "norm_epsilon": 1e-5 if epsilon is None else config.number(epsilon, 1e-5),
        "activation": read_activation(config, act_name, act),
        "tied_embeddings": config.flag("tie_word_embeddings", is_tied),
        **special_ids(config),
    }
