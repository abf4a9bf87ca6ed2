"""Compile the library of native kernels: `python -m serving.kernels.build`.

The compiler is $CXX, c++, g++ or clang++, or else PyPI's `ziglang`. The library needs glibc 2.17 or
newer with ziglang, and that of the machine it was built on otherwise; libstdc++ is linked into it.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "attendant_kernels.so"
# Without contraction a multiplication and an addition round as ONNX Runtime's operators do.
FLAGS = "-std=c++17 -O3 -fPIC -ffp-contract=off -fvisibility=hidden -Wall -Wextra"
AVX2 = "-mavx2 -mfma"
AVX512 = "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni"
# Source, name of the object, and flags: kernels.cpp is compiled for each instruction set.
UNITS = (
    ("library", "library", ""),
    ("linear", "linear", ""),
    ("block_linear", "block_linear", ""),
    ("attention", "attention", ""),
    ("encoder", "encoder", ""),
    ("choice", "choice", ""),
    ("recurrent", "recurrent", ""),
    ("cpu", "cpu", ""),
    ("kernels", "kAvx2", f'{AVX2} -DKERNELS_NAME="avx2"'),
    ("kernels", "kAvxVnni", f'{AVX2} -mavxvnni -DKERNELS_NAME="avx_vnni"'),
    ("kernels", "kAvx512Vnni", f'{AVX2} {AVX512} -DKERNELS_NAME="avx512_vnni"'),
    ("kernels", "kAmx", f'{AVX2} {AVX512} -mamx-tile -mamx-int8 -DKERNELS_NAME="amx"'),
)


class BuildError(Exception):
    """The library cannot be built."""


def compilers() -> list[list[str]]:
    """Return the commands of all compilers that are installed, the preferred one first."""
    names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
    found = [[path] for name in names if (path := shutil.which(name))]
    if importlib.util.find_spec("ziglang") is not None:
        found.append([sys.executable, "-m", "ziglang", "c++", "-target", "x86_64-linux-gnu.2.17"])
    return found


def build(target: Path = LIBRARY, flags: tuple[str, ...] = ()) -> Path:
    """Compile the library and return its path. Raises BuildError with the compiler's message."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        raise BuildError("there are kernels for x86-64 processors under Linux only")
    problem = "no C++ compiler is installed"
    for compiler in dict.fromkeys(map(tuple, compilers())):
        try:
            return _build_with(list(compiler), target, flags)
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or "").strip().splitlines()
            problem = f"{' '.join(compiler)} failed: {lines[-1] if lines else error}"
    raise BuildError(problem)


def _build_with(compiler: list[str], target: Path, flags: tuple[str, ...]) -> Path:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:

        def compile_unit(unit: tuple[str, str, str]) -> str:
            source, name, own = unit
            made = str(Path(folder) / f"{name}.o")
            defined = [f"-DKERNELS={name}"] if source == "kernels" else []
            _run(
                [*compiler, *FLAGS.split(), *flags, *own.split(), *defined, "-c"],
                FOLDER / f"{source}.cpp",
                made,
            )
            return made

        objects = list(threads.map(compile_unit, UNITS))
        static = [] if flags or "ziglang" in compiler else ["-static-libstdc++", "-static-libgcc"]
        static += [] if flags else ["-s"]
        temporary = target.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [*compiler, "-shared", *flags, *static, "-o", str(temporary), *objects],
            check=True,
            capture_output=True,
            text=True,
        )
        digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        temporary.replace(target)
        target.with_suffix(".sha256").write_text(f"{digest}\n", encoding="ascii")
    return target


def _run(command: list[str], source: Path, made: str) -> None:
    subprocess.run([*command, str(source), "-o", made], check=True, capture_output=True, text=True)


if __name__ == "__main__":
    try:
        print(build())
    except BuildError as error:
        sys.exit(f"The native kernels cannot be built: {error}. Models run without them.")
