"""What a bundle is made for: where its graphs run, and in which floats."""

from dataclasses import dataclass
from enum import Enum

from serving.bundle.manifest import Precision


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
        """The type where bfloat16 will not do: CUDA compares, pads, reverses and convolves none,
        and has no GRU and no LSTM in it.
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
