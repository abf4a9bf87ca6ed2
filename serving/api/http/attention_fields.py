"""Request fields that ask for attention maps, and the maps in answers, in every protocol."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.errors import RequestError
from serving.pipelines.attention_maps import AttentionMap
from serving.request import AttentionQuery

MAX_NUMBERS = 2**21  # in one answer, which are about 20 MB of JSON
DIGITS = 6


class AttentionQueryFields(BaseModel):
    """Attention weights that are wanted. kind: "cross", "encoder" or "decoder". layers and heads,
    from 0: without any all of them. mean: over those, not each by itself.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: str
    layers: list[int] = Field(default_factory=list)
    heads: list[int] = Field(default_factory=list)
    mean: bool = False

    def query(self) -> AttentionQuery:
        return AttentionQuery(self.kind, tuple(self.layers), tuple(self.heads), self.mean)


class AttentionMapBody(TypedDict):
    """Attention weights. layers, heads: the numbers of those along the axes of the weights,
    [layers][heads][rows][columns]; empty if it is the mean over them. row_tokens attend to
    column_tokens; special tokens have no text.
    """

    kind: str
    layers: list[int]
    heads: list[int]
    row_tokens: list[str]
    column_tokens: list[str]
    weights: list[list[list[list[float]]]]


def queries_of(asked: bool | Iterable[str | AttentionQueryFields]) -> tuple[AttentionQuery, ...]:
    """Read a field: a kind by its name means the mean over all its layers and heads. True, where
    it may be said, asks for another report.
    """
    if isinstance(asked, bool):
        return ()
    return tuple(
        AttentionQuery(each, is_mean=True) if isinstance(each, str) else each.query()
        for each in asked
    )


def check_size(maps: Iterable[AttentionMap]) -> None:
    """Refuse to write more than a client can want to read. Raises RequestError."""
    count = sum(each.weights.size for each in maps)
    if count > MAX_NUMBERS:
        message = (
            f"an answer may have {MAX_NUMBERS} weights; ask for the mean, for fewer layers and "
            "heads, or for less text"
        )
        raise RequestError("return_attention", f"{count} weights", message)


def described_maps(maps: Sequence[AttentionMap]) -> list[dict[str, Any]]:
    """Return the JSON of maps; see `AttentionMapBody`."""
    return [
        {
            "kind": each.kind,
            "layers": each.layers,
            "heads": each.heads,
            "row_tokens": each.row_tokens,
            "column_tokens": each.column_tokens,
            "weights": each.weights.astype(np.float64).round(DIGITS).tolist(),
        }
        for each in maps
    ]
