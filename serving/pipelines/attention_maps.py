"""Assemble attention maps from what a request reported: weights with the tokens' texts.

The text of a special token is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from serving.bundle.manifest import AttentionKind, AttentionShape
from serving.requests.request import (
    AttentionPieces,
    AttentionQuery,
    AttentionWeights,
    FinishedEvent,
)

Shapes = dict[AttentionKind, AttentionShape]  # `Manifest.attention_shapes`


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """The result of one attention query.

    row_tokens: the tokens that attend.
    column_tokens: the tokens that they attend to.
    weights: f32 [layers, heads, rows, columns]; 0 where a row cannot attend. Rows sum to 1, except
        the first row of a memory of earlier positions, which is empty.
    layers, heads: their numbers along the axes; empty if the weights are a mean.
    """

    kind: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    row_tokens: tuple[str, ...]
    column_tokens: tuple[str, ...]
    weights: AttentionWeights = field(compare=False)


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """The texts of the tokens of one request.

    source: as the encoder read them.
    unreported: tokens of the target that the engine did not report.
    reported: the other tokens of the target, without a stop token.
    """

    source: tuple[str, ...]
    unreported: tuple[str, ...]
    reported: tuple[str, ...]

    @property
    def target(self) -> tuple[str, ...]:
        return self.unreported + self.reported


def attention_maps(
    queries: Sequence[AttentionQuery],
    shapes: Shapes,
    of_tokens: Sequence[AttentionPieces],
    end: FinishedEvent | None,
    texts: TokenTexts,
) -> tuple[AttentionMap, ...]:
    """Return one map for each query of a request.

    of_tokens: the weights that were reported with the request's tokens.
    end: its final event; None if the caller ended the request itself.
    """
    pieces = [*of_tokens, end.attention_pieces if end is not None else ()]
    by_query = zip(*filter(None, pieces), strict=True)
    weights = [list(chain.from_iterable(pieces_of_query)) for pieces_of_query in by_query]
    return tuple(
        _map(query, _concatenate(weights[number] if weights else []), shapes, texts)
        for number, query in enumerate(queries)
    )


def _map(
    query: AttentionQuery,
    weights: AttentionWeights,
    shapes: Shapes,
    texts: TokenTexts,
) -> AttentionMap:
    kind = AttentionKind(query.kind)
    num_rows, num_columns = weights.shape[2:]
    # Stop tokens are not reported: they are the last row of a translation.
    rows = {
        AttentionKind.CROSS: (*texts.reported, ""),
        AttentionKind.ENCODER: texts.source,
        AttentionKind.DECODER: texts.target,
        AttentionKind.HOPS: tuple(map(str, range(num_rows))),
    }[kind]
    columns = texts.target if kind is AttentionKind.DECODER else texts.source
    layers, heads = _numbers(query, shapes[kind])
    return AttentionMap(query.kind, layers, heads, rows[:num_rows], columns[:num_columns], weights)


def _numbers(
    query: AttentionQuery, shape: AttentionShape
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if query.is_mean:
        return (), ()
    layers = query.layers or tuple(range(shape.num_layers))
    return layers, query.heads or tuple(range(shape.num_heads))


def _concatenate(pieces: Sequence[AttentionWeights]) -> AttentionWeights:
    """Join pieces [layers, heads, tokens, positions] by tokens; later ones may be longer."""
    if not pieces:
        return np.zeros((1, 1, 0, 0), np.float32)
    widest = max(piece.shape[-1] for piece in pieces)
    num_rows = sum(piece.shape[2] for piece in pieces)
    whole = np.zeros((*pieces[0].shape[:2], num_rows, widest), np.float32)
    row = 0
    for piece in pieces:
        whole[:, :, row : row + piece.shape[2], : piece.shape[3]] = piece
        row += piece.shape[2]
    return whole
