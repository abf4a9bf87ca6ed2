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
    kinds: set[AttentionKind] = set()
    longest = 0
    for row in np.flatnonzero(batch.needs_attention[: batch.num_rows]).tolist():
        step_attention = batch.generations[row].step_attention
        kinds |= step_attention
        if AttentionKind.DECODER in step_attention:
            longest = max(longest, int(batch.total_lengths[row]))
    return StepOutputs(frozenset(kinds), longest, needs_logp)


def attention_pieces(batch: Batch, row: int, scores: Scores) -> AttentionPieces:
    """Return a row's attention weights of this step, for the event of its token. The first event
    also contains those of the prompt. Empty without attention queries.
    """
    generation = batch.generations[row]
    if not generation.selections:
        return ()
    pieces = _pieces(batch, row, scores)
    if batch.total_lengths[row] > len(generation.prompt_ids):
        return pieces
    pieces_of_queries = zip(*generation.prompt_attention, pieces, strict=True)
    return tuple(tuple(chain.from_iterable(pieces)) for pieces in pieces_of_queries)


def store_prompt_step_attention(batch: Batch, scores: Scores) -> None:
    """Store the decoder attention of steps that read a prompt token, because no event reports these
    steps. Cross-attention is not stored: prompt tokens are not translations of the source.
    """
    for row in np.flatnonzero(batch.needs_attention[: batch.num_rows]).tolist():
        generation = batch.generations[row]
        if generation.selections and batch.total_lengths[row] < len(generation.prompt_ids):
            pairs = zip(generation.selections, _pieces(batch, row, scores), strict=True)
            generation.prompt_attention.append(
                tuple(
                    pieces if selection.kind is AttentionKind.DECODER else ()
                    for selection, pieces in pairs
                )
            )


def store_prompt_attention(generation: Generation, weights: Array, num_total: int) -> None:
    """Store the attention of one chunk of a prompt, f32 [heads, tokens, positions]."""
    weights = weights[:, :, :num_total]
    pieces = tuple((selection.select(weights),) for selection in generation.selections)
    generation.prompt_attention.append(pieces)


def store_source_attention(generation: Generation, weights: Array) -> None:
    """Store the attention of a source, f32 [heads, span, span], or of its hops, f32 [1, hops,
    span].
    """
    length = generation.num_source_tokens
    weights_of_kinds = {
        AttentionKind.ENCODER: weights[:, :length, :length],
        AttentionKind.HOPS: weights[:, :, :length],
    }
    generation.source_attention = tuple(
        (selection.select(weights_of_kinds[selection.kind]),)
        if selection.kind in weights_of_kinds
        else ()
        for selection in generation.selections
    )


def _pieces(batch: Batch, row: int, scores: Scores) -> AttentionPieces:
    generation = batch.generations[row]
    lengths = {
        AttentionKind.CROSS: generation.num_source_tokens,
        AttentionKind.DECODER: int(batch.total_lengths[row]),
    }
    return tuple(
        (
            selection.select(
                scores.attention[selection.kind][row, :, None, : lengths[selection.kind]]
            ),
        )
        if selection.kind in lengths
        else ()
        for selection in generation.selections
    )
