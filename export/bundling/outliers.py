"""The inputs of matrices that are far larger than the others, found by running a model's parts.

int8 and int4 leave them in fp32 (`export/graph/blocks.py`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
from tqdm import tqdm

from export.graph.blocks import OBSERVED
from export.graph.writer import Array, GraphWriter
from models.configs.transformer import DecoderOnlyConfig
from serving.bundle.manifest import BATCH, LENGTH, Shape
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import OrtGraph
from serving.engine.runtime.session import open_session
from serving.engine.states.memory import HostMemory

OUTLIER_ROWS = 8  # random texts
OUTLIER_TOKENS = 24  # of each: some ten of 576 features were 5 to 25 times the median on all
# Above three times the median, at most 32, errors of SmolLM2 were larger: 0.035 nats of a token.
OUTLIER_FACTOR = 2.0  # of the median
MOST_OUTLIERS = 64  # columns of a matrix
EVEN_INPUTS = "attention.output"  # whose inputs are even enough: outliers made no difference
GRAPH_FILE = "observed.onnx"


def find_outliers(
    graphs: Sequence[GraphWriter], config: DecoderOnlyConfig, folder: Path
) -> Mapping[str, Array]:
    """Return the indices of each matrix's outlying inputs, by the matrix's name.

    graphs: the parts of a step, each of which reads the output of the one before it, and tells how
        large inputs are. Their weights are in a file in ``folder``. One is in memory at a time.
    """
    num_tokens = min(OUTLIER_TOKENS, config.context_length)
    ids = np.random.default_rng(0).integers(config.vocab_size, size=(num_tokens, OUTLIER_ROWS)).T
    texts = [_Text(row_ids[None], config.context_length) for row_ids in np.ascontiguousarray(ids)]
    largest: dict[str, Array] = {}
    for graph in tqdm(graphs, desc="largest inputs", leave=False, disable=None):
        path = folder / GRAPH_FILE
        ir.save(graph.model, path)
        runner = OrtGraph(open_session(path, EngineConfig()))
        for text in texts:
            for name, inputs in text.run(graph, runner).items():
                largest[name] = np.maximum(largest.get(name, inputs), inputs)
        path.unlink()
    return {
        name: _outlying_columns(inputs)
        for name, inputs in largest.items()
        if not name.endswith(EVEN_INPUTS)
    }


class _Text:
    """What the parts of a step compute on one text. ids: [1, tokens]."""

    def __init__(self, ids: Array, context_length: int) -> None:
        self._context_length, self._num_tokens = context_length, ids.shape[1]
        self._inputs_by_name = {
            "ids": ids,
            "past_lengths": np.zeros(1, np.int32),
            "total_lengths": np.full(1, self._num_tokens, np.int32),
        }

    def run(self, graph: GraphWriter, runner: OrtGraph) -> dict[str, Array]:
        """Run the next part. Return how large the inputs of its matrices are, by name."""
        spec = graph.spec("")
        states = {
            tensor.name: HostMemory().zeros(self._shape(tensor.shape), tensor.dtype)
            for tensor in spec.inputs
            if tensor.name not in ("x", *self._inputs_by_name)
        }
        outputs = {
            tensor.name: np.empty(self._shape(tensor.shape), tensor.dtype)
            for tensor in spec.outputs
            if tensor.name.removesuffix(".next") not in states
        }
        names = {tensor.name for tensor in spec.inputs}
        inputs = {name: self._inputs_by_name[name] for name in names & self._inputs_by_name.keys()}
        next_states = {f"{name}.next": state for name, state in states.items()}
        runner.bind(inputs | states, outputs | next_states)()
        if "next_x" in outputs:
            self._inputs_by_name["x"] = outputs["next_x"]
        return {
            name.removeprefix(OBSERVED): output[0]
            for name, output in outputs.items()
            if name.startswith(OBSERVED)
        }

    def _shape(self, shape: Shape) -> tuple[int, ...]:
        sizes = {BATCH: 1, "tokens": self._num_tokens, LENGTH: self._context_length}
        return tuple(sizes[axis] if isinstance(axis, str) else axis for axis in shape)


def _outlying_columns(largest: Array) -> Array:
    """Number those of ``largest``, which is what each input came to at most."""
    order = np.argsort(-largest, kind="stable")[:MOST_OUTLIERS]
    return np.sort(order[largest[order] > OUTLIER_FACTOR * np.median(largest)])
