"""Load the native kernels of int8 linear layers and attention, if they can run here.

Without them the same bundles run on ONNX Runtime's own operators, see `export/graph/functions.py`.
The environment variable ATTENDANT_KERNELS turns them off ("off") or selects a narrower instruction
set than the widest of the processor: "avx512_vnni", "avx_vnni" or "avx2".
"""

import ctypes
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("attendant_kernels.so")
# The functions and structures in abi.h were checked with these versions of ONNX Runtime.
TESTED_VERSIONS = ("1.31",)


@dataclass(frozen=True)
class NativeKernels:
    """path: of the library; None if models run without it.
    description: the instruction set, or why there are no kernels.
    """

    path: Path | None
    description: str


@cache
def native_kernels() -> NativeKernels:
    """Load the library, once. Never raises."""
    return load_kernels(LIBRARY)


def load_kernels(library: Path) -> NativeKernels:
    if os.environ.get("ATTENDANT_KERNELS") == "off":
        return NativeKernels(None, "off, because ATTENDANT_KERNELS says so")
    if not library.is_file():
        return NativeKernels(None, f"none, because they were not built: {_build_problem(library)}")
    installed = onnxruntime_version()
    if not installed.startswith(tuple(f"{tested}." for tested in TESTED_VERSIONS)):
        return NativeKernels(None, f"none for ONNX Runtime {installed}")
    try:
        instruction_set = ctypes.CDLL(str(library)).attendant_kernels
    except (OSError, AttributeError) as error:
        return NativeKernels(None, f"none, because {library.name} cannot be loaded: {error}")
    instruction_set.restype = ctypes.c_char_p
    if (name := instruction_set()) is None:
        return NativeKernels(None, f"none for {_wanted_instructions()}")
    return NativeKernels(library, name.decode())


def why_missing() -> str | None:
    """Return in a few words why there are no kernels here, or None if there are, or if
    ATTENDANT_KERNELS turns them off.
    """
    kernels = native_kernels()
    if kernels.path is not None or os.environ.get("ATTENDANT_KERNELS") == "off":
        return None
    reason = kernels.description.removeprefix("none").removeprefix(", because")
    return reason.strip()


def _wanted_instructions() -> str:
    name = os.environ.get("ATTENDANT_KERNELS")
    if not name:
        return "the instructions of this processor"
    return f"ATTENDANT_KERNELS={name}: they were not built, or the processor lacks them"


def _build_problem(library: Path) -> str:
    """Return what the build has written down of its failure."""
    try:
        return problem_path(library).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return "this was installed without them"


def onnxruntime_version() -> str:
    """Return the version of the installed package, or "" if there is none."""
    for name in ("onnxruntime", "onnxruntime-gpu"):
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def key_path(library: Path) -> Path:
    """Return the file beside the library with the key of what it was built of."""
    return library.with_suffix(".key")


def problem_path(library: Path) -> Path:
    """Return the file beside the library that says why it could not be built."""
    return library.with_suffix(".problem")


def register_kernels(options: Any) -> None:
    """Let a session with these options (onnxruntime.SessionOptions) use the kernels, if there are
    any.
    """
    if (path := native_kernels().path) is not None:
        options.register_custom_ops_library(str(path))
