"""Load the native kernels of int8 linear layers and attention, if they can run here.

Without them the same bundles run on ONNX Runtime's own operators, see `export/graph/functions.py`.
The environment variable ATTENDANT_KERNELS turns them off ("off") or selects a narrower instruction
set than the widest of the processor: "avx512_vnni", "avx_vnni" or "avx2", and on aarch64
"neon_dotprod" or "neon".
"""

import ctypes
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("attendant_kernels.so")


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
    try:
        loaded = ctypes.CDLL(str(library))
        instruction_set, api_version = loaded.attendant_kernels, loaded.attendant_api_version
    except (OSError, AttributeError) as error:
        return NativeKernels(None, f"none, because {library.name} cannot be loaded: {error}")
    # ONNX Runtime 1.N has versions 1 to N of its C interface.
    if not _is_at_least(installed := onnxruntime_version(), (1, api_version())):
        return NativeKernels(None, f"none for ONNX Runtime {installed}")
    instruction_set.restype = ctypes.c_char_p
    if (name := instruction_set()) is None:
        return NativeKernels(None, f"none for {_wanted_instructions()}")
    return NativeKernels(library, name.decode())


def _is_at_least(version: str, needed: tuple[int, int]) -> bool:
    """Return whether a version such as "1.31.1" has at least these first two numbers. Without
    ONNX Runtime the version is "", and too old.
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= needed


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
