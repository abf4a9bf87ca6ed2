"""Runs the graph of a bundle that only encodes on texts side by side: for verification, not for
serving.
"""

import numpy as np

from export.checking.rows import padded
from export.graph.writer import Array
from serving.bundle.manifest import BATCH, SOURCE, SOURCE_TYPES
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.graphs.ort_graph import OrtGraph
from serving.engine.graphs.session import open_session

Ids = list[list[int]]


def encode_rows(
    bundle: Bundle,
    rows: Ids,
    types: Ids,
    *,
    graph: str = "encode",
    span: int = 0,
    threads: int = 1,
) -> dict[str, Array]:
    """Run the graph on texts side by side: its outputs. types: each token's segment. span: what
    texts are padded to; by default the longest.
    """
    manifest = bundle.manifest
    spec, span = manifest.graphs[graph], span or max(map(len, rows))
    given = {
        "source_ids": padded(rows, span, manifest.tokens.pad),
        "source_lengths": np.array([len(ids) for ids in rows], np.int32),
        SOURCE_TYPES: padded(types, span, 0),
    }
    sizes = {BATCH: len(rows), SOURCE: span}
    shapes = {
        each.name: [sizes[axis] if isinstance(axis, str) else axis for axis in each.shape]
        for each in spec.outputs
    }
    outputs = {each.name: np.empty(shapes[each.name], each.dtype) for each in spec.outputs}
    session = open_session(bundle.graph_path(graph), EngineConfig(threads=threads))
    OrtGraph(session).bind({each.name: given[each.name] for each in spec.inputs}, outputs)()
    return outputs
