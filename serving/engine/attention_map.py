"""Collect attention weights from the scores of a step, for the requests that ask for them."""

from itertools import chain

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import AttentionKind
from serving.engine.decoding.scores import Scores
from serving.engine.generation import Generation
from serving.engine.rows import Batch
from serving.engine.runtime.runner import Wants
from serving.request import Looked


def wanted_attention(batch: Batch, needs_logp: bool) -> Wants:
    """Say what the next run must tell."""
    rows = np.flatnonzero(batch.needs_attention[: batch.num_rows]).tolist()
    kinds = frozenset(kind for row in rows for kind in batch.generations[row].told_kinds)
    looking = (row for row in rows if AttentionKind.DECODER in batch.generations[row].told_kinds)
    longest = max((int(batch.total_lengths[row]) for row in looking), default=0)
    return Wants(kinds, longest, needs_logp)


def looked_of(batch: Batch, row: int, scores: Scores) -> Looked:
    """Return what a row has looked at to find its next token, which is reported; with the first of
    these comes what its prompt has looked at.
    """
    generation = batch.generations[row]
    looked = _looked(batch, row, scores)
    if batch.total_lengths[row] > len(generation.prompt_ids):
        return looked
    pieces = zip(*generation.given_looked, looked, strict=True)
    return tuple(tuple(chain.from_iterable(each)) for each in pieces)


def note_given(batch: Batch, scores: Scores) -> None:
    """Keep what rows have looked at to find tokens of their prompts, which no event reports."""
    for row in np.flatnonzero(batch.needs_attention[: batch.num_rows]).tolist():
        generation = batch.generations[row]
        if generation.sights and batch.total_lengths[row] < len(generation.prompt_ids):
            found = zip(generation.sights, _looked(batch, row, scores), strict=True)
            is_own = AttentionKind.DECODER  # of the source: a prompt is no translation of it
            looked = tuple(each if sight.kind is is_own else () for sight, each in found)
            generation.given_looked.append(looked)


def note_prompt(generation: Generation, told: Array, num_total: int) -> None:
    """Keep what a piece of a prompt looks at, f32 [heads, tokens, positions]."""
    looked = tuple((each.of(told[:, :, :num_total]),) for each in generation.sights)
    generation.given_looked.append(looked)


def note_source(generation: Generation, told: Array) -> None:
    """Keep what a source's tokens look at, f32 [heads, span, span], or its hops, f32 [1, hops,
    span].
    """
    length = generation.num_source_tokens
    kept = {
        AttentionKind.ENCODER: told[:, :length, :length],
        AttentionKind.HOPS: told[:, :, :length],
    }
    generation.source_looked = tuple(
        (each.of(kept[each.kind]),) if each.kind in kept else () for each in generation.sights
    )


def _looked(batch: Batch, row: int, scores: Scores) -> Looked:
    generation = batch.generations[row]
    lengths = {
        AttentionKind.CROSS: generation.num_source_tokens,
        AttentionKind.DECODER: int(batch.total_lengths[row]),
    }
    return tuple(
        (each.of(scores.attention[each.kind][row, :, None, : lengths[each.kind]]),)
        if each.kind in lengths
        else ()
        for each in generation.sights
    )
