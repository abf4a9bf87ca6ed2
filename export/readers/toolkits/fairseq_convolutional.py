"""Convolutional models of fairseq: models/fconv.py.

How large layers are, and which of them attend, is read from the tensors. A matrix is stored as the
directions and the lengths of its rows (weight normalisation, Salimans and Kingma 2016).
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from export.readers.common.shapes import STACKS, Shapes, linear_shapes
from export.readers.common.weights import Merged, Names, Shape, TensorReference, WeightSource
from export.readers.toolkits.fairseq_lstm import ADAPTIVE_SOFTMAX
from export.readers.toolkits.fairseq_transformer import FIRST_POSITION, SOURCE, TARGET
from export.readers.toolkits.toolkit import ToolkitModel, ToolkitReader
from models.architectures.fconv.config import FConvConfig
from models.safetensors import Array

OTHER_RESIDUAL = re.compile(r"\(\s*\d+\s*,\s*\d+\s*,\s*(?!1\s*,?\s*\))")  # of (dim, kernel, 2)


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    _refuse_what_differs(reader)
    positions = reader.matrix_shapes(*(f"{stack}.embed_positions.weight" for stack in STACKS))
    longest = [max(rows - FIRST_POSITION, 0) for rows, _ in positions]
    counts = {stack: reader.count_layers(f"{stack}.convolutions.{{}}.bias") for stack in STACKS}
    return {
        "architecture": "fconv",
        "tied_embeddings": False,
        "embedding_dim": reader.dim,
        "readout_dim": _weight_shape(reader, "decoder.fc2", 2)[0],
        "encoder": [_read_layer(reader, "encoder", n) for n in range(counts["encoder"])],
        "decoder": [
            {
                **_read_layer(reader, "decoder", n),
                "attends": f"decoder.attention.{n}.in_projection.bias" in reader.tensors,
            }
            for n in range(counts["decoder"])
        ],
        "max_source_tokens": longest[0],
        "max_target_tokens": longest[1],
    }


def _refuse_what_differs(reader: ToolkitReader) -> None:
    for stack in STACKS:
        if OTHER_RESIDUAL.search(reader.options.word(f"{stack}_layers", "")):
            reader.options.refuse(f"{stack}_layers", "must add what the layer before has made")
    if ADAPTIVE_SOFTMAX in reader.tensors:
        reader.options.refuse("adaptive_softmax_cutoff")


def _read_layer(reader: ToolkitReader, stack: str, number: int) -> dict[str, Any]:
    """Return the output size of a layer and its number of words, from its convolution."""
    kernel, _, channels = _weight_shape(reader, f"{stack}.convolutions.{number}", 3)
    return {"dim": channels // 2, "kernel_size": kernel}


def _weight_shape(reader: ToolkitReader, name: str, num_dims: int) -> Shape:
    """Return the shape of a weight, normalised or not. Raises CheckpointError."""
    names = f"{name}.weight_v", f"{name}.weight"
    stored = next((n for n in names if n in reader.tensors), None)
    shape = reader.tensors.stored[stored].shape if stored else ()
    if len(shape) == num_dims:
        return shape
    problem = f"{stored} has shape {shape}" if stored else f"{names[0]} is missing"
    reader.problems.append(problem)
    raise reader.error()


def list_names(reader: ToolkitReader, config: FConvConfig) -> Names:
    names: dict[Any, str | WeightSource] = {
        "source_embedding.weight": SOURCE,
        "target_embedding.weight": TARGET,
        "output_bias": "decoder.fc3.bias",
    }
    for stack in STACKS:
        positions = f"{stack}.embed_positions.weight"
        names[f"{stack}.positions"] = TensorReference(positions, skipped=FIRST_POSITION)
    if reader.options.flag("share_input_output_embed", False):
        reader.tensors.ignore(r"decoder\.fc3\.weight")
        names["output.weight"] = TARGET
    else:
        shape = (config.vocab_size, config.readout_dim)
        names["output.weight"] = _linear_weight(reader, "decoder.fc3", shape)
    shapes = fconv_shapes(config)
    for ours, theirs in _list_linears(config):
        names[f"{ours}.weight"] = _linear_weight(reader, theirs, shapes[f"{ours}.weight"])
        names[f"{ours}.bias"] = f"{theirs}.bias"
    for stack, number, *_ in _list_layers(config):
        ours = f"{stack}.layers.{number}.convolution.linear"
        theirs = f"{stack}.convolutions.{number}"
        names[f"{ours}.weight"] = _convolution_weight(reader, theirs)
        names[f"{ours}.bias"] = f"{theirs}.bias"
    return names


def _linear_weight(reader: ToolkitReader, name: str, shape: Shape) -> str | Merged:
    if f"{name}.weight" in reader.tensors:
        return f"{name}.weight"
    parts = {f"{name}.weight_g": (shape[0], 1), f"{name}.weight_v": shape}
    return Merged(parts, scale_directions)


def _convolution_weight(reader: ToolkitReader, name: str) -> Merged:
    """Turn [kernel, in, out] to [out, kernel * in]. Lengths are those of channels, in versions
    before the second those of places.
    """
    tensors, shape = reader.tensors, _weight_shape(reader, name, 3)
    if f"{name}.weight" in tensors:
        return Merged({f"{name}.weight": shape}, _flatten_kernel)
    lengths, places = f"{name}.weight_g", (shape[0], 1, 1)
    is_old = lengths in tensors and tensors.stored[lengths].shape == places
    parts = {lengths: places if is_old else (1, 1, shape[2]), f"{name}.weight_v": shape}
    return Merged(parts, lambda g, v: _flatten_kernel(scale_directions(g, v)))


def scale_directions(lengths: Array, directions: Array) -> Array:
    """Return the weight whose vectors have these directions and lengths (weight normalisation).

    lengths: with a size of 1 for the axes of a vector.
    """
    axes = tuple(axis for axis, size in enumerate(lengths.shape) if size == 1)
    squares = np.square(directions, dtype=np.float64).sum(axes, keepdims=True)
    return (directions * (lengths / np.sqrt(squares))).astype(np.float32)


def _flatten_kernel(weight: Array) -> Array:
    return weight.transpose(2, 0, 1).reshape(weight.shape[2], -1)


def _list_linears(config: FConvConfig) -> Iterator[tuple[str, str]]:
    """List linear layers, by our name and theirs."""
    for stack in STACKS:
        yield f"{stack}.input", f"{stack}.fc1"
        yield f"{stack}.output", f"{stack}.fc2"
    for stack, number, _, in_dim, dim in _list_layers(config):
        if in_dim != dim:
            yield f"{stack}.layers.{number}.projection", f"{stack}.projections.{number}"
    for number, layer in enumerate(config.decoder):
        if layer.attends:
            ours, theirs = f"decoder.layers.{number}", f"decoder.attention.{number}"
            yield f"{ours}.query", f"{theirs}.in_projection"
            yield f"{ours}.output", f"{theirs}.out_projection"


def _list_layers(config: FConvConfig) -> Iterator[tuple[str, int, int, int, int]]:
    """List layers: stack, number, kernel, and how many numbers go in and come out."""
    for stack, layers in (("encoder", config.encoder), ("decoder", config.decoder)):
        in_dim = layers[0].dim
        for number, layer in enumerate(layers):
            yield stack, number, layer.kernel_size, in_dim, layer.dim
            in_dim = layer.dim


def fconv_shapes(config: FConvConfig) -> Shapes:
    """Return the shapes of all weights of models without tied tables."""
    dim = config.embedding_dim
    shapes: Shapes = {
        "source_embedding.weight": (config.source_vocabulary, dim),
        "target_embedding.weight": (config.vocab_size, dim),
        "output.weight": (config.vocab_size, config.readout_dim),
        "output_bias": (config.vocab_size,),
        "encoder.positions": (config.max_source_tokens, dim),
        "decoder.positions": (config.max_target_tokens, dim),
    }
    matrices = {
        "encoder.input": (config.encoder[0].dim, dim),
        "encoder.output": (dim, config.encoder[-1].dim),
        "decoder.input": (config.decoder[0].dim, dim),
        "decoder.output": (config.readout_dim, config.decoder[-1].dim),
    }
    for stack, number, kernel, in_dim, size in _list_layers(config):
        name = f"{stack}.layers.{number}"
        matrices[f"{name}.convolution.linear"] = (2 * size, kernel * in_dim)
        if in_dim != size:
            matrices[f"{name}.projection"] = (size, in_dim)
    for number, layer in enumerate(config.decoder):
        if layer.attends:
            matrices[f"decoder.layers.{number}.query"] = (dim, layer.dim)
            matrices[f"decoder.layers.{number}.output"] = (layer.dim, dim)
    return shapes | linear_shapes(matrices, bias=True)


CONVOLUTIONAL = ToolkitModel(
    {},
    read_options,
    fconv_shapes,
    list_names,
    ignored=(r"decoder\.version", r".*\._linearized_weight"),
)
