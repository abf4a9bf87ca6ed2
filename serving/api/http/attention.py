"""Attention queries in request bodies, and attention maps in answers."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.errors import RequestError
from serving.pipelines.attention_maps import AttentionMap
from serving.requests.request import AttentionQuery

MAX_ATTENTION_WEIGHTS = 2**21  # of one answer: about 20 MB of JSON
DIGITS = 6  # of a weight: 32-bit floats have seven


class AttentionQueryFields(BaseModel):
    """Which attention weights are returned. kind: "cross", "encoder" or "decoder". layers, heads:
    from 0; empty for all. mean: return the mean over these layers and heads.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str
    layers: list[int] = Field(default_factory=list)
    heads: list[int] = Field(default_factory=list)
    mean: bool = False

    def query(self) -> AttentionQuery:
        return AttentionQuery(self.kind, tuple(self.layers), tuple(self.heads), self.mean)


class AttentionMapBody(TypedDict):
    """Attention weights [layers][heads][rows][columns].

    layers, heads: their numbers; empty for the mean. row_tokens attend to column_tokens; special
    tokens have no text.
    """

    kind: str
    layers: list[int]
    heads: list[int]
    row_tokens: list[str]
    column_tokens: list[str]
    weights: list[list[list[list[float]]]]


def parse_queries(field: bool | Iterable[str | AttentionQueryFields]) -> tuple[AttentionQuery, ...]:
    """Return the queries of a field. The name of a kind asks for the mean over all layers and
    heads.

    A boolean field asks for no maps of this form.
    """
    if isinstance(field, bool):
        return ()
    return tuple(
        AttentionQuery(query, is_mean=True) if isinstance(query, str) else query.query()
        for query in field
    )


def check_size(maps: Iterable[AttentionMap]) -> None:
    """Raise RequestError for more weights than an answer may have."""
    count = sum(attention_map.weights.size for attention_map in maps)
    if count > MAX_ATTENTION_WEIGHTS:
        message = (
            f"an answer may have {MAX_ATTENTION_WEIGHTS} weights; ask for the mean, for fewer "
            "layers and heads, or for less text"
        )
        raise RequestError("return_attention", f"{count} weights", message)


def describe_maps(maps: Sequence[AttentionMap]) -> list[dict[str, Any]]:
    """Return the JSON of maps; see `AttentionMapBody`."""
    return [
        {
            "kind": attention_map.kind,
            "layers": attention_map.layers,
            "heads": attention_map.heads,
            "row_tokens": attention_map.row_tokens,
            "column_tokens": attention_map.column_tokens,
            "weights": attention_map.weights.astype(np.float64).round(DIGITS).tolist(),
        }
        for attention_map in maps
    ]
