"""Runs bf16 bundles on the CPU, which has no kernels for them: every bfloat16 becomes a float32.

So weights are those of bf16 and graphs are the same, operator by operator; sums are finer.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, TensorProto, numpy_helper

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle, write_manifest


def widened(bundle: Path, folder: Path) -> Path:
    """Write a bf16 bundle as an fp32 one."""
    folder.mkdir()
    opened = open_bundle(bundle)
    for spec in opened.manifest.graphs.values():
        model = onnx.load(bundle / spec.file)
        _widen(model.graph)
        onnx.save(model, folder / spec.file)
    for name in opened.manifest.files:
        if not name.endswith((".onnx", ".bin")):
            (folder / name).write_bytes((bundle / name).read_bytes())
    manifest = opened.manifest
    graphs = {
        name: replace(graph, inputs=_wide(graph.inputs), outputs=_wide(graph.outputs))
        for name, graph in manifest.graphs.items()
    }
    states = _wide(manifest.states)
    write_manifest(
        folder, replace(manifest, precision=Precision.FP32, graphs=graphs, states=states)
    )
    return folder


def _wide(specs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        replace(spec, dtype="float32") if spec.dtype == "bfloat16" else spec for spec in specs
    )


def _widen(graph: GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen(attribute.g)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.BFLOAT16:
        array = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
