"""The exported model that the `build` of an architecture returns, its target (device and type of
floats), and the weights of a checkpoint that it is built of.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy as np
import onnx_ir as ir

from export.graph.blocks import NO_OUTLIERS
from export.graph.quantise import ChannelScales
from export.graph.writer import Array, GraphWriter, Store, in_memory
from models.checkpoint import CheckpointError
from models.safetensors import Arrays, Quantised, QuantisedBlocks
from serving.bundle.manifest import AttentionShape, Limits, Precision, StateSpec


@dataclass(frozen=True)
class ExportedModel:
    graphs: tuple[GraphWriter, ...]  # step, encode if there is a source, and others
    states: tuple[StateSpec, ...]
    limits: Limits
    alignment_heads: tuple[int, ...] = ()
    attention: Mapping[str, AttentionShape] = field(default_factory=dict)

    @property
    def window(self) -> int:
        """The number of likeliest tokens that the step graph returns; 0 without one."""
        outputs = (output for graph in self.graphs for output in graph.spec("").outputs)
        return next((int(spec.shape[-1]) for spec in outputs if spec.name == "top_ids"), 0)


class Device(Enum):
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True)
class Target:
    """A device, and the type of floats in graphs for it."""

    device: Device
    dtype: str

    @property
    def is_cuda(self) -> bool:
        return self.device is Device.CUDA

    @property
    def common_dtype(self) -> str:
        """The type for what CUDA cannot do in bfloat16: compare, pad, reverse, convolve, run a GRU
        or an LSTM.
        """
        return "float32" if self.dtype == "bfloat16" else self.dtype


ON_CPU = Target(Device.CPU, "float32")


TARGETS = {
    Precision.FP32: ON_CPU,
    Precision.FP16: Target(Device.CUDA, "float16"),
    Precision.BF16: Target(Device.CUDA, "bfloat16"),
    Precision.INT8: ON_CPU,
    Precision.INT4: ON_CPU,
}


class Weights:
    """Checked access to fp32 arrays by state-dict name.

    quantised: how the source holds some of them in int8.
    outliers: inputs of matrices that int8 and int4 leave in fp32; None: graphs put out how large
    inputs are, for `export.bundling.outliers`.
    cache_dtype: of a language model's keys and values, if not the type of the target's floats.
    store: where graphs keep what they make of weights.
    shared: the tensors that they have in common, so that a matrix is read and quantised once.
    report: called when a weight is taken for the first time.
    """

    def __init__(
        self,
        arrays: Mapping[str, Array],
        quantised: Mapping[str, Quantised] | None = None,
        store: Store = in_memory,
        report: Callable[[], object] = bool,
        outliers: Mapping[str, Array] | None = NO_OUTLIERS,
    ) -> None:
        self._arrays, self._quantised, self.store = arrays, quantised or {}, store
        self._report, self.outliers = report, outliers
        self.cache_dtype: str | None = None
        self.shared: dict[str, Mapping[str, ir.TensorProtocol]] = {}
        self._used: set[str] = set()
        self._problems: dict[str, str] = {}

    def take(self, name: str, *shape: int) -> Array:
        """Return the weight ``name``, which must have ``shape`` and finite values."""
        self._note_use(name)
        array = self._arrays.get(name)
        if array is None:
            self._problems[name] = f"{name}: missing"
        elif array.shape != shape:
            actual, expected = list(array.shape), list(shape)
            self._problems[name] = f"{name}: has shape {actual}, expected {expected}"
        elif not np.isfinite(array).all():
            self._problems[name] = f"{name}: holds values that are not finite"
        else:
            return array
        return np.zeros(shape, np.float32)

    def take_blocks(self, name: str, *shape: int) -> QuantisedBlocks | None:
        """Return the weight ``name`` in the blocks of its source; None if that holds it otherwise,
        or if `take` would say that something is wrong with it.
        """
        if not isinstance(self._arrays, Arrays):
            return None
        blocks = self._arrays.read_blocks(name)
        if blocks is None or blocks.levels.shape != shape:
            return None
        offset = 0 if blocks.offset is None else blocks.offset
        if not (np.isfinite(blocks.scale).all() and np.isfinite(offset).all()):
            return None
        self._note_use(name)
        return blocks

    def _note_use(self, name: str) -> None:
        if name not in self._used:
            self._report()
        self._used.add(name)

    @property
    def are_quantised(self) -> bool:
        """Whether the source holds any in int8, so that the model computes as it was quantised
        there.
        """
        return bool(self._quantised)

    def channels(self, names: Sequence[str], sizes: Iterable[int]) -> ChannelScales | None:
        """Return how the source quantised the weights ``names``, side by side; None if it did not.
        They have one input, whose rows it clipped alike. sizes: output channels of each.
        """
        quantised = [self._quantised.get(name) for name in names]
        parts = [part for part in quantised if part is not None]
        if len(parts) < len(quantised):
            return None
        scales = [np.full(size, q.scale, np.float32) for q, size in zip(parts, sizes, strict=True)]
        ranges = [part.input_range for part in parts if part.input_range is not None]
        return ChannelScales(
            np.concatenate(scales), max(ranges) if len(ranges) == len(parts) else None
        )

    @property
    def have_problems(self) -> bool:
        """Whether anything that was taken so far is wrong."""
        return bool(self._problems)

    def finish(self, folder: Path) -> None:
        """Raise CheckpointError if anything taken was wrong or anything given was not used."""
        unused = sorted(self._arrays.keys() - self._used)
        problems = [*self._problems.values(), *(f"{name}: not expected" for name in unused)]
        if problems:
            raise CheckpointError(folder, problems)
