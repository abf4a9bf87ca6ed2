"""Convolutional models of fairseq: models/fconv.py.

How large layers are, and which of them attend, is read from the tensors. A matrix is stored as the
directions and the lengths of its rows (weight normalisation, Salimans and Kingma 2016).
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from export.readers.common.shapes import Shapes, linear_shapes
from export.readers.common.weights import (
    Merged,
    Shape,
    Table,
    TensorReference,
    WeightReader,
    WeightSource,
    read_weights,
)
from export.readers.toolkits.fairseq_models import FIRST_POSITION, SOURCE, TARGET, FairseqReader
from models.architectures.fconv.config import FConvConfig
from models.safetensors import Array

OTHER_RESIDUAL = re.compile(r"\(\s*\d+\s*,\s*\d+\s*,\s*(?!1\s*,?\s*\))")  # of (dim, kernel, 2)
IGNORED = (r"decoder\.version", r".*\._linearized_weight")


class FairseqConvolutional(FairseqReader):
    """Reads configuration and weights of one checkpoint."""

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        positions = self.model.dims(
            *(f"{s}.embed_positions.weight" for s in ("encoder", "decoder"))
        )
        longest = [max(rows - FIRST_POSITION, 0) for rows, _ in positions]
        return {
            "architecture": "fconv",
            "vocab_size": self.target_words,
            "source_vocab_size": self.source_words,
            "tied_embeddings": False,
            "embedding_dim": self.dim,
            "readout_dim": self._rows("decoder.fc2"),
            "encoder": [self._layer("encoder", n) for n in range(self._count("encoder"))],
            "decoder": [self._decoder_layer(n) for n in range(self._count("decoder"))],
            "max_source_tokens": longest[0],
            "max_target_tokens": longest[1],
        }

    def _refuse_what_differs(self) -> None:
        for stack in ("encoder", "decoder"):
            if OTHER_RESIDUAL.search(self.options.word(f"{stack}_layers", "")):
                self.options.refuse(f"{stack}_layers", "must add what the layer before has made")
        if "decoder.adaptive_softmax.head.weight" in self.tensors:
            self.options.refuse("adaptive_softmax_cutoff")

    def _count(self, stack: str) -> int:
        return self.model.count(f"{stack}.convolutions.{{}}.bias")

    def _layer(self, stack: str, number: int) -> dict[str, Any]:
        """Return the output size of a layer and its number of words, from its convolution."""
        kernel, _, channels = self._shape(f"{stack}.convolutions.{number}", 3)
        return {"dim": channels // 2, "kernel_size": kernel}

    def _decoder_layer(self, number: int) -> dict[str, Any]:
        attends = f"decoder.attention.{number}.in_projection.bias" in self.tensors
        return self._layer("decoder", number) | {"attends": attends}

    def _rows(self, name: str) -> int:
        return self._shape(name, 2)[0]

    def _shape(self, name: str, num_dims: int) -> Shape:
        """Take the shape of a weight, normalised or not. Raises CheckpointError."""
        names = f"{name}.weight_v", f"{name}.weight"
        found = next((n for n in names if n in self.tensors), None)
        shape = self.tensors.stored[found].shape if found else ()
        if len(shape) == num_dims:
            return shape
        self.model.problems.append(
            f"{found} has shape {shape}" if found else f"{names[0]} is missing"
        )
        raise self.model.error()

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Return readers of all weights by our names."""
        names: dict[Any, str | WeightSource] = {
            "source_embedding.weight": SOURCE,
            "target_embedding.weight": TARGET,
            "output.weight": self._output(config),
            "output_bias": "decoder.fc3.bias",
        }
        for stack in ("encoder", "decoder"):
            positions = f"{stack}.embed_positions.weight"
            names[f"{stack}.positions"] = TensorReference(positions, skipped=FIRST_POSITION)
        shapes = fconv_shapes(config)
        for ours, theirs in _linears(config):
            names |= self._linear(ours, theirs, shapes[f"{ours}.weight"])
        for ours, theirs in _convolutions(config):
            names |= self._convolution(ours, theirs)
        return read_weights(shapes, Table(names, {}, IGNORED), self.tensors)

    def _output(self, config: FConvConfig) -> str | WeightSource:
        """Take the target's table for a shared output."""
        if self.options.flag("share_input_output_embed", False):
            self.tensors.drop(r"decoder\.fc3\.weight")
            return TARGET
        shape = (config.vocab_size, config.readout_dim)
        return self._linear("output", "decoder.fc3", shape)["output.weight"]

    def _linear(self, ours: str, theirs: str, shape: Shape) -> dict[Any, str | WeightSource]:
        weight, bias = f"{ours}.weight", {f"{ours}.bias": f"{theirs}.bias"}
        if f"{theirs}.weight" in self.tensors:
            return {weight: f"{theirs}.weight", **bias}
        parts = {f"{theirs}.weight_g": (shape[0], 1), f"{theirs}.weight_v": shape}
        return {weight: Merged(parts, normalised), **bias}

    def _convolution(self, ours: str, theirs: str) -> dict[Any, str | WeightSource]:
        """Turn [kernel, in, out] to [out, kernel * in]. Lengths are those of channels, in versions
        before the second those of places.
        """
        shape = self._shape(theirs, 3)
        weight, bias = f"{ours}.weight", {f"{ours}.bias": f"{theirs}.bias"}
        if f"{theirs}.weight" in self.tensors:
            return {weight: Merged({f"{theirs}.weight": shape}, _side_by_side), **bias}
        lengths, places = f"{theirs}.weight_g", (shape[0], 1, 1)
        is_old = lengths in self.tensors and self.tensors.stored[lengths].shape == places
        parts = {lengths: places if is_old else (1, 1, shape[2]), f"{theirs}.weight_v": shape}
        return {weight: Merged(parts, lambda g, v: _side_by_side(normalised(g, v))), **bias}


def normalised(lengths: Array, directions: Array) -> Array:
    """Return a weight with vectors of the given lengths along an axis, if there are lengths (weight
    normalisation).
    """
    axes = tuple(axis for axis, size in enumerate(lengths.shape) if size == 1)
    squares = np.square(directions, dtype=np.float64).sum(axes, keepdims=True)
    return (directions * (lengths / np.sqrt(squares))).astype(np.float32)


def _side_by_side(weight: Array) -> Array:
    return weight.transpose(2, 0, 1).reshape(weight.shape[2], -1)


def _linears(config: FConvConfig) -> Iterator[tuple[str, str]]:
    """List linear layers, by our name and theirs."""
    for stack in ("encoder", "decoder"):
        yield f"{stack}.input", f"{stack}.fc1"
        yield f"{stack}.output", f"{stack}.fc2"
    for stack, number, _, in_dim, dim in _layers(config):
        if in_dim != dim:
            yield f"{stack}.layers.{number}.projection", f"{stack}.projections.{number}"
    for number, layer in enumerate(config.decoder):
        if layer.attends:
            ours, theirs = f"decoder.layers.{number}", f"decoder.attention.{number}"
            yield f"{ours}.query", f"{theirs}.in_projection"
            yield f"{ours}.output", f"{theirs}.out_projection"


def _convolutions(config: FConvConfig) -> Iterator[tuple[str, str]]:
    for stack, number, *_ in _layers(config):
        yield f"{stack}.layers.{number}.convolution.linear", f"{stack}.convolutions.{number}"


def _layers(config: FConvConfig) -> Iterator[tuple[str, int, int, int, int]]:
    """List layers: stack, number, kernel, and how many numbers go in and come out."""
    for stack, layers in (("encoder", config.encoder), ("decoder", config.decoder)):
        in_dim = layers[0].dim
        for number, layer in enumerate(layers):
            yield stack, number, layer.kernel_size, in_dim, layer.dim
            in_dim = layer.dim


def fconv_shapes(config: FConvConfig) -> Shapes:
    """Return the shapes of all weights of models without tied tables."""
    dim = config.embedding_dim
    found: Shapes = {
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
    for stack, number, kernel, in_dim, size in _layers(config):
        name = f"{stack}.layers.{number}"
        matrices[f"{name}.convolution.linear"] = (2 * size, kernel * in_dim)
        if in_dim != size:
            matrices[f"{name}.projection"] = (size, in_dim)
    for number, layer in enumerate(config.decoder):
        if layer.attends:
            matrices[f"decoder.layers.{number}.query"] = (dim, layer.dim)
            matrices[f"decoder.layers.{number}.output"] = (layer.dim, dim)
    return found | linear_shapes(matrices, bias=True)
