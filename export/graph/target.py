"""Names what a bundle is made for: where its graphs run, and in which floats."""

from dataclasses import dataclass
from enum import Enum

from serving.bundle.manifest import Precision


class Device(Enum):
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True)
class Target:
    """Joins a device and the type of floats in graphs for it."""

    device: Device
    dtype: str

    @property
    def is_cuda(self) -> bool:
        return self.device is Device.CUDA

    @property
    def common_dtype(self) -> str:
        """Give the type for what CUDA cannot do in bfloat16: compare, pad, reverse, convolve, run a
        GRU or an LSTM.
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
