"""Outputs of a step graph by which tokens are chosen: the likeliest, and how likely they are.

The likeliest are found from the logits, whether or not a row of the batch wants log-probabilities:
so what a row gets does not depend on the others. If no row wants them, the engine feeds that and
they are not computed. With 32 rows and 32,000 tokens they take 4 % of a step of a Transformer-base.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from export.graph.value import Value
from export.graph.writer import Array, GraphWriter
from serving.bundle.manifest import BATCH, WANTS_LOGP

WINDOW = 20  # likeliest tokens that the step graph returns: the most that OpenAI's API allows
BLOCK = 64
# Below, ranking all tokens takes no longer than finding the blocks of the best: 0.1 ms for 32 rows
# of 4,096; of 32,000 it takes 0.5 ms, and 0.25 by blocks.
LEAST_IN_BLOCKS = 8_192


@dataclass(frozen=True)
class Columns:
    """What the columns of logits stand for: the vocabulary, then up to `width` tokens that never
    occur, or candidates, whose ids `token_ids` computes. rows: the name of the other axis.
    """

    vocab_size: int
    width: int | str
    token_ids: Callable[[Value], Value] | None = None
    rows: str = BATCH

    @property
    def window(self) -> int:
        return min(WINDOW, self.vocab_size)

    @property
    def num_scored(self) -> int | str:
        """The number of log-probabilities that are put out."""
        return self.width if self.token_ids else self.vocab_size


def choose(graph: GraphWriter, logits: Value, columns: Columns) -> None:
    """Write the outputs, given f32 logits [batch, columns]."""
    op = graph.op
    best, places = _likeliest(graph, logits, columns)

    def scored() -> list[Value]:
        is_whole = columns.width == columns.num_scored
        own = logits if is_whole else logits[:, : columns.vocab_size]
        logp, normaliser = _log_probabilities(graph, own)
        return [logp, op.GatherElements(logp, places, axis=1), normaliser]

    def unscored() -> list[Value]:
        nothing = graph.constant(np.zeros((1, 1)), "float32")
        normaliser = best[:, 0]
        return [op.Identity(nothing), op.Identity(best), normaliser]

    wanted = graph.switch(WANTS_LOGP)
    logp, top_logp, normaliser = graph.branch(wanted, "float32", scored, unscored, 3)
    _write(graph, columns, (logp, normaliser, top_logp, places))


def choose_on_device(graph: GraphWriter, logits: Value, columns: Columns) -> None:
    """Write the outputs for devices, without branches, as their runs are recorded."""
    logp, normaliser = _log_probabilities(graph, logits)
    window = graph.ints(columns.window)
    top_logp, places = graph.op.TopK(logp, window, axis=-1, _outputs=2)
    _write(graph, columns, (logp, normaliser, top_logp, places))


def _write(graph: GraphWriter, columns: Columns, found: tuple[Value, ...]) -> None:
    logp, normaliser, top_logp, places = found
    top_ids = columns.token_ids(places) if columns.token_ids else places
    rows = columns.rows
    graph.output("logp", logp, "float32", (columns.num_scored,), rows=rows)
    graph.output("log_normaliser", normaliser, "float32", (), rows=rows)
    graph.output("top_logp", top_logp, "float32", (columns.window,), rows=rows)
    graph.output("top_ids", top_ids, "int64", (columns.window,), rows=rows)


def filled_up(weight: Array, bias: Array | None) -> tuple[Array, Array | None]:
    """Return an output layer, weight [vocab, dim] and bias [vocab], filled up to whole blocks with
    tokens that never occur. A layer without a bias stays as it is, as adding one takes longer.
    """
    missing = -len(weight) % BLOCK
    if bias is None or not missing or len(weight) < LEAST_IN_BLOCKS:
        return weight, bias
    never = np.full(missing, -np.inf, bias.dtype)
    return np.pad(weight, ((0, missing), (0, 0))), np.concatenate([bias, never])


def _log_probabilities(graph: GraphWriter, logits: Value) -> tuple[Value, Value]:
    """Return log-probabilities [batch, scored], and what was subtracted from the logits [batch]."""
    op, first = graph.op, graph.ints(0)
    logp = op.LogSoftmax(logits, axis=-1)
    shift = op.Gather(logits, first, axis=1) - op.Gather(logp, first, axis=1)
    return logp, shift.squeeze(1)


def _likeliest(graph: GraphWriter, logits: Value, columns: Columns) -> tuple[Value, Value]:
    """Return the greatest logits and their columns [batch, window], of equals the first."""
    width = columns.width
    if isinstance(width, str) or width < LEAST_IN_BLOCKS or width % BLOCK:
        window = graph.ints(columns.window)
        best, places = graph.op.TopK(logits, window, axis=-1, _outputs=2)
        return best, places
    return _likeliest_of_blocks(graph, logits, width // BLOCK)


def _likeliest_of_blocks(graph: GraphWriter, logits: Value, num_blocks: int) -> tuple[Value, Value]:
    """Search only the blocks with the greatest maxima, as many blocks as tokens are wanted. TopK
    takes the first of equals; so does this, because the blocks are put in order first.
    """
    op, count, size = graph.op, graph.ints(WINDOW), graph.constant(BLOCK, "int64")
    blocks = logits.reshape(0, num_blocks, BLOCK)
    greatest = blocks.max(-1, keepdims=False)
    _, found = op.TopK(greatest, count, axis=-1, _outputs=2)
    order, _ = op.TopK(found, count, axis=-1, largest=0, _outputs=2)
    chosen = op.GatherND(blocks, order.unsqueeze(-1), batch_dims=1)
    flat = chosen.reshape(0, WINDOW * BLOCK)
    best, places = op.TopK(flat, count, axis=-1, _outputs=2)
    block = places / size
    moved = op.GatherElements(order, block, axis=1) - block
    return best, places + moved * size
