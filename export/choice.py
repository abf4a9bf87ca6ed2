"""The outputs of a step graph by which tokens are chosen: the likeliest, and how likely they are.

The likeliest are read off the logits, whether or not a row of the batch wants log-probabilities:
so what a row gets does not depend on the others. Where none wants them, the engine says so and
they are not computed; with 32 rows and 32,000 tokens that is 4 % of a step of a Transformer-base.
"""

from collections.abc import Callable

import numpy as np

from export.graph import Array, Value
from export.layers import Layers
from serving.bundle.manifest import WANTS_LOGP

WINDOW = 20  # the best tokens that the step graph returns: what OpenAI's top_logprobs may ask
BLOCK = 64
# Below, ranking all tokens takes no longer than finding the blocks of the best: 0.1 ms for 32 rows
# of 4,096; of 32,000 it takes 0.5 ms, and 0.25 by blocks.
LEAST_IN_BLOCKS = 8_192


def choose(
    layers: Layers,
    logits: Value,
    vocab_size: int,
    width: int | str | None = None,
    token_ids: Callable[[Value], Value] | None = None,
) -> None:
    """Write the outputs, from logits [batch, width].

    width: if it is not the vocabulary's; columns behind it are -inf.
    token_ids: says which tokens stand in columns of logits that are not the vocabulary.
    """
    graph, op = layers.graph, layers.op
    width, window = width or vocab_size, min(WINDOW, vocab_size)
    is_scored = width if token_ids else vocab_size
    if layers.dtype != "float32":  # for devices, whose recorded runs have no branches
        logp, normaliser = _log_probabilities(layers, op.Cast(logits, to=1))
        top_logp, columns = op.TopK(logp, graph.ints(window), axis=-1, _outputs=2)
    else:
        best, columns = _likeliest(layers, logits, width, window)

        def scored() -> list[Value]:
            own = logits if width == is_scored else _first(layers, logits, vocab_size)
            logp, normaliser = _log_probabilities(layers, own)
            return [logp, op.GatherElements(logp, columns, axis=1), normaliser]

        def unscored() -> list[Value]:
            nothing = graph.constant(np.zeros((1, 1)), "float32")
            normaliser = op.Gather(best, graph.constant(0, "int64"), axis=1)
            return [op.Identity(nothing), op.Identity(best), normaliser]

        wanted = graph.switch(WANTS_LOGP)
        logp, top_logp, normaliser = graph.branch(wanted, "float32", scored, unscored, 3)
    top_ids = token_ids(columns) if token_ids else columns
    graph.output("logp", logp, "float32", (is_scored,))
    graph.output("log_normaliser", normaliser, "float32", ())
    graph.output("top_logp", top_logp, "float32", (window,))
    graph.output("top_ids", top_ids, "int64", (window,))


def filled_up(weight: Array, bias: Array | None) -> tuple[Array, Array | None]:
    """Give an output layer, weight [vocab, dim] and bias [vocab], more tokens, which never come, up
    to whole blocks; where there is no bias it stays as it is, as adding one takes longer.
    """
    missing = -len(weight) % BLOCK
    if bias is None or not missing or len(weight) < LEAST_IN_BLOCKS:
        return weight, bias
    never = np.full(missing, -np.inf, bias.dtype)
    return np.pad(weight, ((0, missing), (0, 0))), np.concatenate([bias, never])


def _log_probabilities(layers: Layers, logits: Value) -> tuple[Value, Value]:
    """-> [batch, scored], and what they are less than the logits [batch]."""
    graph, op = layers.graph, layers.op
    logp, first = op.LogSoftmax(logits, axis=-1), graph.ints(0)
    shift = op.Sub(op.Gather(logits, first, axis=1), op.Gather(logp, first, axis=1))
    return logp, op.Squeeze(shift, graph.ints(1))


def _first(layers: Layers, logits: Value, count: int) -> Value:
    graph = layers.graph
    return layers.op.Slice(logits, graph.ints(0), graph.ints(count), graph.ints(1))


def _likeliest(
    layers: Layers, logits: Value, width: int | str, window: int
) -> tuple[Value, Value]:
    """The greatest logits and their columns [batch, window], best first; of equals the first."""
    graph, op = layers.graph, layers.op
    if isinstance(width, str) or width < LEAST_IN_BLOCKS or width % BLOCK:
        best, columns = op.TopK(logits, graph.ints(window), axis=-1, _outputs=2)
        return best, columns
    return _likeliest_of_blocks(layers, logits, width // BLOCK, window)


def _likeliest_of_blocks(
    layers: Layers, logits: Value, num_blocks: int, window: int
) -> tuple[Value, Value]:
    """As many tokens lie in at most as many blocks, those of the greatest maxima. TopK takes the
    first of equals: so it does here, as the blocks found are put in order first.
    """
    graph, op = layers.graph, layers.op
    count, size = graph.ints(window), graph.constant(BLOCK, "int64")
    blocks = op.Reshape(logits, graph.ints(0, num_blocks, BLOCK))
    greatest = op.ReduceMax(blocks, graph.ints(-1), keepdims=0)
    _, found = op.TopK(greatest, count, axis=-1, _outputs=2)
    places, _ = op.TopK(found, count, axis=-1, largest=0, _outputs=2)
    chosen = op.GatherND(blocks, op.Unsqueeze(places, graph.ints(-1)), batch_dims=1)
    best, columns = op.TopK(
        op.Reshape(chosen, graph.ints(0, window * BLOCK)), count, axis=-1, _outputs=2
    )
    block = op.Div(columns, size)
    moved = op.Sub(op.GatherElements(places, block, axis=1), block)
    return best, op.Add(columns, op.Mul(moved, size))
