"""Outputs of a step graph that choose tokens: the likeliest ones with their log-probabilities, and
the graph that samples on a GPU.

The likeliest are found from the logits, whether or not a row of the batch wants log-probabilities:
so what a row gets does not depend on the others. If no row wants them, the engine feeds that and
the logits are not normalised. Log-probabilities of other tokens are computed by the engine, from
the logits, in the few rows that need them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from export.graph.functions import parse_function, token_choice
from export.graph.matrix import Matrix
from export.graph.model import TARGETS, ExportedModel
from export.graph.writer import Array, GraphWriter, Value
from serving.bundle.manifest import (
    EDITS,
    LOGITS,
    LOGP,
    MAX_TOP_K,
    SELECT,
    WANTS_LOGP,
    Precision,
)

WINDOW = 20  # likeliest tokens that the step graph returns: the most that OpenAI's API allows
BLOCK = 64  # tokens of which the best one is found first
# Below, ranking all tokens takes no longer than finding the blocks of the best: 0.1 ms for 32 rows
# of 4,096; of 32,000 it takes 0.5 ms, and 0.25 by blocks.
LEAST_IN_BLOCKS = 8_192
SCAN_BLOCK = 256  # tokens whose weights the search for a drawn token sums up first
LEAST_LOG = -32.0  # lighter tokens add up to less than rounding errors
NUM_HALVINGS = 32  # to 8e-9: finer than fp32 scores, at temperatures up to 5
ALMOST_ONE = 1 - 1e-12  # of a total: rounding finds no token behind the last one


@dataclass(frozen=True)
class Columns:
    """The meaning of the columns of logits: the vocabulary, then up to `width` tokens that never
    occur; or candidates, whose ids `token_ids` computes.
    """

    vocab_size: int
    width: int | str
    token_ids: Callable[[Value], Value] | None = None

    @property
    def window(self) -> int:
        return min(WINDOW, self.vocab_size)


def choose(graph: GraphWriter, logits: Value, columns: Columns) -> None:
    """Write the outputs, given f32 logits [batch, columns]."""
    width, window = columns.width, columns.window
    in_blocks = isinstance(width, int) and width >= LEAST_IN_BLOCKS and width % BLOCK == 0
    num_blocks = width // BLOCK if isinstance(width, int) and in_blocks else None
    function = parse_function(token_choice(window, num_blocks, BLOCK))
    types = ("float32", "int64", "float32")
    top_logp, places, normaliser = graph.call(
        function, logits, graph.switch(WANTS_LOGP), types=types, number=window
    )
    _write(graph, columns, {LOGITS: logits}, (normaliser, top_logp, places))


def choose_on_device(graph: GraphWriter, logits: Value, columns: Columns) -> None:
    """Write the outputs for devices, without branches, as their runs are recorded."""
    logp = graph.op.LogSoftmax(logits, axis=-1)
    window = graph.ints(columns.window)
    top_logp, places = graph.op.TopK(logp, window, axis=-1, _outputs=2)
    best = graph.op.GatherElements(logits, places[:, :1], axis=1)
    normaliser = (best - top_logp[:, :1]).squeeze(1)
    _write(graph, columns, {LOGP: logp}, (normaliser, top_logp, places))


def _write(
    graph: GraphWriter, columns: Columns, scores: Mapping[str, Value], best: tuple[Value, ...]
) -> None:
    normaliser, top_logp, places = best
    top_ids = columns.token_ids(places) if columns.token_ids else places
    for name, value in scores.items():
        graph.output(name, value, "float32", (columns.width,))
    graph.output("log_normaliser", normaliser, "float32", ())
    graph.output("top_logp", top_logp, "float32", (columns.window,))
    graph.output("top_ids", top_ids, "int64", (columns.window,))


def filled_up(weight: Matrix, bias: Array | None) -> tuple[Matrix, Array | None]:
    """Return an output layer, weight [vocab, dim] and bias [vocab], filled up to whole blocks with
    tokens that never occur. A layer without a bias stays as it is, as adding one takes longer.
    """
    vocab_size, dim = weight.shape
    missing = -vocab_size % BLOCK
    if bias is None or not missing or vocab_size < LEAST_IN_BLOCKS:
        return weight, bias
    never = np.full(missing, -np.inf, bias.dtype)
    filled = replace(
        weight,
        shape=(vocab_size + missing, dim),
        read_parts=lambda: [*weight.read_parts(), np.zeros((missing, dim), np.float32)],
    )
    return filled, np.concatenate([bias, never])


def with_select(model: ExportedModel, precision: Precision) -> ExportedModel:
    """Return the model with the graph added, for devices, unless it only scores shortlists or has
    no tokens to choose.
    """
    steps = [graph.spec("") for graph in model.graphs if graph.name == "step"]
    widths = [spec.shape[1] for step in steps for spec in step.outputs if spec.name == LOGP]
    width = widths[0] if TARGETS[precision].is_cuda and widths else None
    if not isinstance(width, int):
        return model
    return replace(model, graphs=(*model.graphs, select_graph(width)))


def select_graph(vocab_size: int) -> GraphWriter:
    graph = GraphWriter(SELECT)
    logp = graph.input("logp", "float32", (vocab_size,))
    token_ids, is_dead = _Selection(graph, vocab_size).draw(_edit_scores(graph, logp, vocab_size))
    chosen = graph.op.GatherElements(logp, token_ids, axis=1)
    for name, value, dtype in (
        ("token_ids", token_ids, "int64"),
        ("token_logp", chosen, "float32"),
        ("is_dead", is_dead, "bool"),
    ):
        graph.output(name, value.squeeze(1), dtype, ())
    return graph


def _edit_scores(graph: GraphWriter, logp: Value, vocab_size: int) -> Value:
    """Change single scores as `serving.engine.decoding.logit_edits.change` does, in double
    precision. A bias of -inf is a ban. [batch, vocab] -> [batch, vocab].
    """
    op = graph.op
    normaliser = graph.input("log_normaliser", "float32", ())
    is_excluded = graph.input("is_excluded", "bool", (vocab_size,), per_row=False)
    token_ids = graph.input("edit_ids", "int64", (EDITS,))
    bias, penalty, toll = (
        graph.input(f"edit_{name}", "float64", (EDITS,)) for name in ("bias", "penalty", "toll")
    )
    shift = normaliser.unsqueeze(1).cast("float64")
    before = op.GatherElements(logp, token_ids, axis=1).cast("float64")
    score = before + shift + bias
    is_negative = score < 0
    score = (score * penalty).where(is_negative, score / penalty) - toll
    after = (score - shift).cast("float32")
    choosable = op.Where(is_excluded, graph.constant(float("-inf"), "float32"), logp)
    return op.ScatterElements(choosable, token_ids, after, axis=1)


class _Selection:
    """Filters and draws. Parameters are columns [batch, 1]. Logarithms and weights of tokens are
    relative to those of the likeliest.
    """

    def __init__(self, graph: GraphWriter, vocab_size: int) -> None:
        self._graph, self._op, self._vocab_size = graph, graph.op, vocab_size
        self._params: dict[str, Value] = {}

    def draw(self, scores: Value) -> tuple[Value, Value]:
        """Draw one token per row of [batch, vocab]. Return the columns of token ids, and of whether
        no token is allowed.
        """
        op, graph = self._op, self._graph
        window = graph.ints(min(MAX_TOP_K, self._vocab_size))
        likeliest, _ = op.TopK(scores, window, axis=-1, _outputs=2)
        most = op.Gather(likeliest, graph.ints(0), axis=1)
        is_dead = op.Equal(most, self._float(float("-inf")))
        most = op.Where(is_dead, self._float(0), most)
        exponent = self._param("exponent", "float32")
        logs = (scores - most) * exponent
        ranked = (likeliest - most) * exponent
        weights = self._cut_top_k(logs, ranked)
        return self._draw_of_nucleus(logs, weights), is_dead

    def _cut_top_k(self, logs: Value, ranked: Value) -> Value:
        """Return weights of the tokens, 0 below the last of the k."""
        op, one = self._op, self._graph.constant(1, "int64")
        top_k = self._param("top_k", "int64")
        last = op.GatherElements(ranked, top_k.maximum(one) - one, axis=1)
        least = op.Where(top_k < one, self._float(float("-inf")), last)
        return self._above(logs, least, logs.exp())

    def _draw_of_nucleus(self, logs: Value, weights: Value) -> Value:
        """Draw from the tokens that top-p and then min-p leave. Tokens above the border of top-p
        come first, then as many of those at the border as are needed; both ordered by id.
        """
        top_p = self._param("top_p", "float64")
        limit = self._blocks(weights).total * top_p
        is_cut = top_p < self._double(1)
        low, high = (
            end.where(is_cut, self._float(float("-inf")))
            for end in self._border(logs, weights, limit)
        )
        above = self._above(logs, high, weights)
        up_to = self._above(logs, low, weights)
        missing = limit - self._blocks(above).total
        heavy = self._blocks(self._cut_min_p(above))
        border = self._blocks(self._cut_min_p(up_to - above))
        _, border_total = border.find(missing)
        total = heavy.total + border_total
        target = total * self._param("uniform", "float64")
        target = target.minimum(total * self._double(ALMOST_ONE))
        is_heavy = target < heavy.total
        in_heavy, _ = heavy.find(target)
        on_border, _ = border.find(target - heavy.total)
        return in_heavy.where(is_heavy, on_border)

    def _border(self, logs: Value, weights: Value, limit: Value) -> tuple[Value, Value]:
        """Find the border of top-p by bisection of an interval of logarithms. Tokens down to its
        lower end have at least the limit's weight, those down to its upper end less.
        """
        op = self._op
        low, high = self._float(LEAST_LOG), self._float(1)
        for _ in range(NUM_HALVINGS):
            middle = (low + high) * self._float(0.5)
            mass = op.ReduceSum(self._above(logs, middle, weights), self._graph.ints(1))
            is_enough = mass.cast("float64") >= limit
            low = middle.where(is_enough, low)
            high = high.where(is_enough, middle)
        return low, high

    def _cut_min_p(self, weights: Value) -> Value:
        least = self._param("min_p", "float32")
        return self._op.Where(weights < least, self._float(0), weights)

    def _above(self, logs: Value, least: Value, weights: Value) -> Value:
        return self._op.Where(logs < least, self._float(0), weights)

    def _blocks(self, weights: Value) -> "_Blocks":
        return _Blocks(self._graph, weights, self._vocab_size)

    def _param(self, name: str, dtype: str) -> Value:
        """Declare an input with one number for each row."""
        if name not in self._params:
            value = self._graph.input(name, dtype, ())
            self._params[name] = value.unsqueeze(1)
        return self._params[name]

    def _float(self, value: float) -> Value:
        return self._graph.constant([[value]], "float32")

    def _double(self, value: float) -> Value:
        return self._graph.constant([[value]], "float64")


class _Blocks:
    """Weights in blocks, so that a token is found by short sums: ONNX Runtime's `CumSum` on CUDA
    takes time that grows with the square of the length.

    total: the column of each row's sum of weights, in double precision.
    """

    def __init__(self, graph: GraphWriter, weights: Value, vocab_size: int) -> None:
        """Cut weights [batch, vocab] into blocks."""
        self._graph, self._op, self._vocab_size = graph, graph.op, vocab_size
        self._num_blocks = -(-vocab_size // SCAN_BLOCK)
        zero, padding = graph.constant(0, "float32"), self._num_blocks * SCAN_BLOCK - vocab_size
        padded = self._op.Pad(weights, graph.ints(0, padding), zero, graph.ints(-1))
        self._blocks = padded.reshape(-1, self._num_blocks, SCAN_BLOCK)
        self._block_sums = self._blocks.sum(-1).cast("float64")
        self._sums = self._op.CumSum(self._block_sums, graph.constant(1, "int64"))
        self.total = self._op.Gather(self._sums, graph.ints(self._num_blocks - 1), axis=1)

    def find(self, target: Value) -> tuple[Value, Value]:
        """Return the ids of the tokens at which the running sums pass a column of targets, and the
        sums then. If they never do: the last token with any weight.
        """
        op, graph = self._op, self._graph
        target = self._limit_to_total(target, self.total)
        block = self._num_passed(self._sums, target, self._num_blocks)
        sum_then = op.GatherElements(self._sums, block, axis=1)
        before = sum_then - op.GatherElements(self._block_sums, block, axis=1)
        weights = op.GatherND(self._blocks, block, batch_dims=1).cast("float64")
        sums = op.CumSum(weights, graph.constant(1, "int64"))
        inner = self._limit_to_total(
            target - before, op.Gather(sums, graph.ints(SCAN_BLOCK - 1), axis=1)
        )
        place = self._num_passed(sums, inner, SCAN_BLOCK)
        sum_then = (before + op.GatherElements(sums, place, axis=1)).minimum(sum_then)
        token_ids = block * SCAN_BLOCK + place
        return token_ids.minimum(self._vocab_size - 1), sum_then

    def _limit_to_total(self, target: Value, total: Value) -> Value:
        """Prevent that rounding finds a token without weight."""
        target = target.maximum(self._graph.constant([[0]], "float64"))
        return target.minimum(total * self._graph.constant([[ALMOST_ONE]], "float64"))

    def _num_passed(self, sums: Value, target: Value, num_sums: int) -> Value:
        """Return the number of sums up to the target, leaving at least one: a column of int64."""
        is_passed = (sums <= target).cast("float32")
        count = self._op.ReduceSum(is_passed, self._graph.ints(1)).cast("int64")
        return count.minimum(num_sums - 1)
