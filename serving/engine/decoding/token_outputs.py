"""What requests ask of their tokens besides ids: log-probabilities, likeliest tokens, attention."""

from collections.abc import Mapping

import numpy as np

from serving.bundle.manifest import AttentionKind
from serving.engine.arrays import Array
from serving.engine.attention_map import attention_pieces
from serving.engine.decoding.scores import Scores
from serving.engine.generation import Generation
from serving.engine.rows import Batch, Decision
from serving.requests.request import AttentionWeights, TokenEvent, TokenLogprob


def add_token_outputs(decision: Decision, batch: Batch, logprobs: Array, scores: Scores) -> None:
    """Add what requests ask of the reported tokens of a decision, and the events to send now.

    logprobs: f32 [rows], 0 where a request does not ask for them.
    """
    rows = decision.reported_rows
    for row in rows:
        if batch.needs_token_outputs[row]:
            token_id, logprob = int(decision.token_ids[row]), float(logprobs[row])
            event = token_event(batch, row, token_id, logprob, scores)
            decision.token_outputs[row] = event
            if batch.generations[row].request.streams:
                decision.events.append(event)
    if scores.attention:
        others = {row: batch.generations[row] for row in rows if row not in decision.token_outputs}
        decision.alignments = _alignments(others, scores)


def token_event(
    batch: Batch, row: int, token_id: int, logprob: float, scores: Scores
) -> TokenEvent:
    """Return all that a request asks of a row's token."""
    generation = batch.generations[row]
    count = generation.request.logprobs
    top: tuple[TokenLogprob, ...] = ()
    if count:
        ids, top_logprobs = scores.likeliest_ids[row, :count], scores.likeliest_logp[row, :count]
        top = tuple(map(TokenLogprob, ids.tolist(), top_logprobs.tolist()))
    alignment = _alignments({row: generation}, scores).get(row)
    pieces = attention_pieces(batch, row, scores)
    return TokenEvent(generation.request_id, token_id, logprob, top, alignment, pieces)


def _alignments(
    generations: Mapping[int, Generation], scores: Scores
) -> dict[int, AttentionWeights]:
    """Return the mean of the alignment heads, f32 [source tokens], of the rows whose requests ask
    for it. Rows with the same heads are averaged in one call.
    """
    rows_of_heads: dict[tuple[int, ...], list[int]] = {}
    for row, generation in generations.items():
        if generation.alignment is not None:
            rows_of_heads.setdefault(generation.alignment.heads, []).append(row)
    alignments: dict[int, AttentionWeights] = {}
    for heads, rows in rows_of_heads.items():
        weights = scores.attention[AttentionKind.CROSS][np.ix_(rows, heads)]
        means = weights.mean(axis=1, dtype=np.float32)
        for row, mean in zip(rows, means, strict=True):
            alignments[row] = mean[: generations[row].num_source_tokens].copy()
    return alignments
