"""How far rounding moves log-probabilities: torch's own model, with the inputs and the weights of
every matrix product rounded as the exported graph rounds them.

Low precision is held to this, not to a number that was seen somewhere. Whether a value next to the
middle of two levels is rounded up or down depends on the last bits of fp32, which differ from
processor to processor, so both sides are as far from the truth, not in the same place. Their mean
errors differ by less than half here; a product that saturates is off by an order of magnitude.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from export.bundling.running import GraphRows
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import Examples, torch_log_probabilities

LUCK = 2.0  # how many times as far as the other one a side may be


class Rounded(TorchFunctionMode):
    """Inside, matrix products are of rounded numbers."""

    def __init__(self, rounded: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._rounded = rounded

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is linear:
            x, weight, *bias = args
            args = self._rounded(x), self._rounded(weight), *bias
        return func(*args, **(kwargs or {}))


def in_int8(x: torch.Tensor) -> torch.Tensor:
    """Each row to 127 levels on either side of 0."""
    step = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return (x / step).round() * step


ROUNDED = {
    Precision.INT8: in_int8,
    Precision.FP16: lambda x: x.half().float(),
    Precision.BF16: lambda x: x.bfloat16().float(),
}


def assert_errs_by_rounding(
    bundle: Path, checkpoint: Path, examples: Examples, precision: Precision | None = None
) -> None:
    """That the bundle is as near to torch as its precision, or that given, allows."""
    opened = open_bundle(bundle)
    exact = torch_log_probabilities(checkpoint, examples)
    with Rounded(ROUNDED[precision or opened.manifest.precision]):
        rounded = torch_log_probabilities(checkpoint, examples)
    actual = GraphRows(opened, examples.sources).score(examples.targets)
    ours, theirs = (float(np.abs(each - exact).mean()) for each in (actual, rounded))
    assert 0 < ours < LUCK * theirs, (ours, theirs)
