"""What an architecture's `build` returns, and what it is built for: device and type of floats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from export.graph.writer import GraphWriter
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
