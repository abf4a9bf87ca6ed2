"""A device for machines that only have a CPU: it calculates there, and mixes with nothing.

    with other_device() as device:
        module.to(device)(batch)      # RuntimeError: mul got a tensor of the CPU

What is on it says that it is on torch's `meta` device, holds numbers all the same, and meets the
rule of every real one: an operation's tensors are all on one device, but for numbers (tensors
without dimensions) and copies.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import optimizer
from torch.utils._python_dispatch import TorchDispatchMode

COPIES = ("aten::copy_", "aten::_to_copy", "aten::to", "aten::_has_compatible_shallow_copy_type")


make_tensor = torch.tensor


def _tensor(data: Any, *, device: torch.device | None = None, **options: Any) -> Tensor:
    """Made on the CPU, then copied; torch's own leaves the numbers out on `meta`."""
    tensor = make_tensor(data, **options)
    return tensor if device is None else tensor.to(device)


class Elsewhere(Tensor):
    """A tensor on `device`, the numbers of which are those of `held`, on the CPU."""

    device_of_all = torch.device("meta")
    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=cls.device_of_all,
        )
        made.held = held
        return made

    def tolist(self) -> list:  # torch's refuses subclasses
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return _run(operation, args, kwargs or {})


class _Watch(TorchDispatchMode):
    """Sees what makes tensors, too: no tensor of ours needs to be among its arguments."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return _run(operation, args, kwargs or {})


@contextmanager
def other_device() -> Iterator[torch.device]:
    """The device, as long as the block lasts."""
    supported = optimizer._get_fused_kernels_supported_devices
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(
            optimizer, "_get_fused_kernels_supported_devices", lambda: [*supported(), "meta"]
        )
        patch.setattr(torch._C, "_InferenceMode", lambda mode: torch.no_grad())  # for subclasses
        patch.setattr(torch, "tensor", _tensor)
        warnings.filterwarnings("ignore", ".*from a non-meta parameter.* no-op")  # here it is none
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            with _Watch():
                yield Elsewhere.device_of_all
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(False)


def _run(operation: Any, args: tuple, kwargs: dict) -> Any:
    tensors = [*_tensors(args), *_tensors(kwargs.values())]
    is_ours = any(isinstance(tensor, Elsewhere) for tensor in tensors)
    name = operation.name().split(".")[0]
    if is_ours and name not in COPIES:
        _refuse_others(name, tensors)
    device = kwargs.get("device")
    if device is not None:
        is_ours = torch.device(device) == Elsewhere.device_of_all
        kwargs = kwargs | {"device": torch.device("cpu")}
    if name == "aten::copy_":  # it stays where it is
        is_ours = isinstance(args[0], Elsewhere)
    kwargs = {name: _each(_held, value) for name, value in kwargs.items()}
    result = operation(*_each(_held, args), **kwargs)
    return _each(_put, result) if is_ours else result


def _refuse_others(name: str, tensors: list[Tensor]) -> None:
    others = [
        tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.dim() > 0
    ]
    if others:
        raise RuntimeError(f"{name} got a tensor of the CPU: {tuple(others[0].shape)}")


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _each(change: Callable[[Tensor], Tensor], x: Any) -> Any:
    """The same with every tensor changed (torch's own such function is slow)."""
    if isinstance(x, Tensor):
        return change(x)
    return type(x)(_each(change, part) for part in x) if isinstance(x, list | tuple) else x


def _held(x: Tensor) -> Tensor:
    return x.held if isinstance(x, Elsewhere) else x


def _put(x: Tensor) -> Tensor:
    return Elsewhere(x)
