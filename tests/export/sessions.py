"""Opens a graph in the making as bundles are opened to be served."""

from typing import Any

import onnx_ir as ir

from export.graph.writer import GraphWriter
from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_session


def session_of(graph: GraphWriter) -> Any:
    return open_session(ir.to_proto(graph.model).SerializeToString(), EngineConfig())
