"""Puts together what a request's tokens looked at: a matrix for each layer and head.

Events tell it piece by piece as it is found. Tokens are named here as in any report of attention:
their text, empty of special ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from serving.bundle.manifest import AttentionKind, AttentionShape
from serving.request import Attention, FinishedEvent, Look, Seen, TokenEvent


@dataclass(frozen=True, slots=True)
class SeenAttention:
    """Says what tokens looked at.

    row_tokens: who looks. column_tokens: at what.
    weights: f32 [layers, heads, rows, columns]; 0 where a row cannot look. Rows sum to 1, but for
        the first of a memory of earlier positions, which is empty then.
    layers, heads: the numbers of those along the axes; none where it is the mean over some.
    """

    kind: str
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    row_tokens: tuple[str, ...]
    column_tokens: tuple[str, ...]
    weights: Attention = field(compare=False)


@dataclass(frozen=True, slots=True)
class ReadTokens:
    """Names the tokens of one request.

    source: as the encoder read them. given: of the target, those that were not reported.
    reported: the others, without a stop token.
    """

    source: tuple[str, ...]
    given: tuple[str, ...]
    reported: tuple[str, ...]

    @property
    def target(self) -> tuple[str, ...]:
        return self.given + self.reported


@dataclass(frozen=True, slots=True)
class Looks:
    """Holds a request's looks, and what the model has of each kind of attention."""

    asked: tuple[Look, ...]
    shapes: dict[AttentionKind, AttentionShape]

    def seen(
        self, tokens: Sequence[TokenEvent], end: FinishedEvent | None, names: ReadTokens
    ) -> tuple[SeenAttention, ...]:
        """Return what each look saw. end: None if whoever asked ended the request itself."""
        told = end.seen if end and end.seen else Seen()
        return tuple(
            self._seen(look, list(_pieces(number, tokens, told)), names)
            for number, look in enumerate(self.asked)
        )

    def _seen(self, look: Look, pieces: list[Attention], read: ReadTokens) -> SeenAttention:
        kind = AttentionKind(look.kind)
        weights = _joined(pieces)
        num_rows, num_columns = weights.shape[2:]
        # A stop token is reported by no event: of the translation it is the last row.
        rows = {
            AttentionKind.CROSS: (*read.reported, ""),
            AttentionKind.ENCODER: read.source,
            AttentionKind.DECODER: read.target,
            AttentionKind.HOPS: tuple(map(str, range(num_rows))),
        }[kind]
        columns = read.target if kind is AttentionKind.DECODER else read.source
        tokens = rows[:num_rows], columns[:num_columns]
        return SeenAttention(look.kind, *self._numbers(look, kind), *tokens, weights)

    def _numbers(self, look: Look, kind: AttentionKind) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if look.is_mean:
            return (), ()
        shape = self.shapes[kind]
        layers = look.layers or tuple(range(shape.num_layers))
        return layers, look.heads or tuple(range(shape.num_heads))


def _pieces(number: int, tokens: Sequence[TokenEvent], told: Seen) -> Iterator[Attention]:
    """Yield what one look found, in the order of its rows."""
    for looked in (told.source, *(token.looked for token in tokens), told.end):
        yield from looked[number] if looked else ()


def _joined(pieces: Sequence[Attention]) -> Attention:
    """Put pieces [layers, heads, tokens, positions] below each other; later ones may be longer."""
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
