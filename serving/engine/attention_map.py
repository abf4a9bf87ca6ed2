"""Attention weights of the rows in a batch, for requests with attention queries."""

from itertools import chain

import numpy as np

from serving.bundle.manifest import AttentionKind
from serving.engine.arrays import Array
from serving.engine.decoding.scores import Scores
from serving.engine.generation import Generation
from serving.engine.rows import Batch
from serving.engine.runtime.model_runner import StepOutputs
from serving.requests.request import AttentionPieces


def needed_outputs(batch: Batch, needs_logp: bool) -> StepOutputs:
    """Return the outputs that the next run must compute."""
    rows = np.flatnonzero(batch.needs_attention[: batch.num_rows]).tolist()
    kinds = frozenset(kind for row in rows for kind in batch.generations[row].step_attention)
    own = (row for row in rows if AttentionKind.DECODER in batch.generations[row].step_attention)
    longest = max((int(batch.total_lengths[row]) for row in own), default=0)
    return StepOutputs(kinds, longest, needs_logp)


def attention_pieces(batch: Batch, row: int, scores: Scores) -> AttentionPieces:
    """Return a row's attention weights of this step, for the event of its token. The first event
    also contains those of the prompt.
    """
    generation = batch.generations[row]
    pieces = _pieces(batch, row, scores)
    if batch.total_lengths[row] > len(generation.prompt_ids):
        return pieces
    earlier = zip(*generation.prompt_attention, pieces, strict=True)
    return tuple(tuple(chain.from_iterable(each)) for each in earlier)


def store_prompt_step_attention(batch: Batch, scores: Scores) -> None:
    """Store the decoder attention of steps that read a prompt token, because no event reports these
    steps. Cross-attention is not stored: prompt tokens are not translations of the source.
    """
    for row in np.flatnonzero(batch.needs_attention[: batch.num_rows]).tolist():
        generation = batch.generations[row]
        if generation.selections and batch.total_lengths[row] < len(generation.prompt_ids):
            found = zip(generation.selections, _pieces(batch, row, scores), strict=True)
            own = AttentionKind.DECODER
            pieces = tuple(each if selection.kind is own else () for selection, each in found)
            generation.prompt_attention.append(pieces)


def store_prompt_attention(generation: Generation, weights: Array, num_total: int) -> None:
    """Store the attention of one chunk of a prompt, f32 [heads, tokens, positions]."""
    pieces = tuple((each.select(weights[:, :, :num_total]),) for each in generation.selections)
    generation.prompt_attention.append(pieces)


def store_source_attention(generation: Generation, weights: Array) -> None:
    """Store the attention of a source, f32 [heads, span, span], or of its hops, f32 [1, hops,
    span].
    """
    length = generation.num_source_tokens
    kept = {
        AttentionKind.ENCODER: weights[:, :length, :length],
        AttentionKind.HOPS: weights[:, :, :length],
    }
    generation.source_attention = tuple(
        (each.select(kept[each.kind]),) if each.kind in kept else ()
        for each in generation.selections
    )


def _pieces(batch: Batch, row: int, scores: Scores) -> AttentionPieces:
    generation = batch.generations[row]
    lengths = {
        AttentionKind.CROSS: generation.num_source_tokens,
        AttentionKind.DECODER: int(batch.total_lengths[row]),
    }
    return tuple(
        (each.select(scores.attention[each.kind][row, :, None, : lengths[each.kind]]),)
        if each.kind in lengths
        else ()
        for each in generation.selections
    )
