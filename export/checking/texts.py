"""Runs a graph of a bundle that only encodes on texts side by side: for verification, not for
serving.
"""

import numpy as np

from export.checking.rows import padded
from export.graph.writer import Array
from serving.bundle.manifest import BATCH, SOURCE, SOURCE_TYPES
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import OrtGraph
from serving.engine.runtime.session import open_session

ROWS = 16  # side by side
Ids = list[list[int]]


class TextGraph:
    """Is one graph of a bundle, opened to run on texts."""

    def __init__(self, bundle: Bundle, name: str = "encode", threads: int = 1) -> None:
        self._manifest, self._spec = bundle.manifest, bundle.manifest.graphs[name]
        path, config = bundle.graph_path(name), EngineConfig(threads=threads)
        self._graph = OrtGraph(open_session(path, config))

    def run(self, rows: Ids, types: Ids, span: int = 0) -> dict[str, Array]:
        """Encode texts: all outputs, by name. types: each token's segment. span: what texts are
        padded to; by default the longest.
        """
        span = span or max(map(len, rows))
        given = {
            "source_ids": padded(rows, span, self._manifest.tokens.pad),
            "source_lengths": np.array([len(ids) for ids in rows], np.int32),
            SOURCE_TYPES: padded(types, span, 0),
        }
        sizes = {BATCH: len(rows), SOURCE: span}
        shapes = {
            each.name: [sizes[axis] if isinstance(axis, str) else axis for axis in each.shape]
            for each in self._spec.outputs
        }
        outputs = {
            each.name: np.empty(shapes[each.name], each.dtype) for each in self._spec.outputs
        }
        inputs = {each.name: given[each.name] for each in self._spec.inputs}
        self._graph.bind(inputs, outputs)()
        return outputs
