"""Models of one function of `export.graph.functions`, and sessions with and without the kernels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.graph.functions import DOMAIN
from serving.engine.config import EngineConfig
from serving.engine.runtime import session

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[Mapping[str, Array]], list[Array]]
Port = tuple[str, int, list[Any]]  # name, type and shape

FLOAT, INT8, INT32 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT32
FLOAT16 = TensorProto.FLOAT16


def model_of(
    text: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    weights: Mapping[str, Array] | None = None,
    **attributes: Any,
) -> bytes:
    """Return a model with one call of the function; its inputs are named as in the text. Those that
    are not given are optional.
    """
    function = onnx.parser.parse_function(text)
    given = {name for name, *_ in inputs}.union(weights or ())
    names = [name if name in given else "" for name in function.input]
    node = helper.make_node(
        function.name, names, [name for name, *_ in outputs], domain=DOMAIN, **attributes
    )
    return model_of_nodes([node], inputs, outputs, weights, [function])


def model_of_nodes(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    weights: Mapping[str, Array] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> bytes:
    """Return a model of nodes of the domains "", "com.microsoft" and "attendant"."""
    graph = helper.make_graph(
        nodes,
        "nodes",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid(*each) for each in (("", 23), ("com.microsoft", 1), (DOMAIN, 1))]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=11)
    return bytes(model.SerializeToString())


def native(model: bytes, threads: int = 1) -> Run:
    opened = session.open_session(model, EngineConfig(threads=threads, device="cpu"))
    return lambda feeds: list(opened.run(None, dict(feeds)))


def portable(model: bytes, threads: int = 1) -> Run:
    """Run ONNX Runtime's own operators, the function's body."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "register_kernels", lambda options: None)
        return native(model, threads)
