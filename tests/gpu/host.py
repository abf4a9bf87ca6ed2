"""Tells what machine this is, and whether it has a GPU that can be used."""

import ctypes
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from serving.bundle.manifest import Precision
from serving.engine.config import Device
from serving.engine.runtime.machine import available_cpus
from serving.engine.runtime.session import check_device
from serving.errors import DeviceError

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("onnxruntime-gpu", "onnxruntime", "torch", "transformers", "numpy")


def missing_gpu() -> str | None:
    """One line that says what a run on a GPU lacks here."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no GPU here: the NVIDIA driver (libcuda.so.1) is not installed"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        return f"there is no GPU here: the NVIDIA driver finds none (error {status})"
    load_cuda_libraries()
    try:
        check_device("cuda", Precision.FP16)
    except DeviceError as error:
        return str(error)
    return None


def load_cuda_libraries() -> None:
    """Where CUDA's libraries came with torch, importing it lets ONNX Runtime find them."""
    with suppress(ImportError):
        import torch

        torch.cuda.is_available()


def describe(device: Device) -> dict[str, Any]:
    return {
        "device": _gpu() if device == "cuda" else f"CPU ({platform.machine()})",
        "cpus": available_cpus(),
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": _output("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"),
    }


def _gpu() -> str:
    query = "--query-gpu=name,memory.total,driver_version,power.limit"
    return _output("nvidia-smi", query, "--format=csv,noheader")


def _output(*command: str) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, env=os.environ)
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
