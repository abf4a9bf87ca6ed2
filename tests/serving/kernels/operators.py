"""Models of a few nodes, for operators that have no function in `export.graph.functions` yet."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_session
from tests.serving.kernels.models import Array

TYPES = {
    np.dtype(np.float32): onnx.TensorProto.FLOAT,
    np.dtype(np.int32): onnx.TensorProto.INT32,
    np.dtype(np.int64): onnx.TensorProto.INT64,
    np.dtype(np.bool_): onnx.TensorProto.BOOL,
}


def run_nodes(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    outputs: Sequence[str],
    threads: int = 1,
) -> list[Array]:
    """Run nodes of the domains "", "com.microsoft" and "attendant"."""
    inputs = [
        helper.make_tensor_value_info(name, TYPES[value.dtype], [None] * value.ndim)
        for name, value in feeds.items()
    ]
    graph = helper.make_graph(
        nodes, "nodes", inputs, [onnx.ValueInfoProto(name=n) for n in outputs]
    )
    opsets = [helper.make_opsetid(*e) for e in (("", 23), ("com.microsoft", 1), ("attendant", 1))]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    opened = open_session(model.SerializeToString(), EngineConfig(threads=threads, device="cpu"))
    return list(opened.run(None, dict(feeds)))
