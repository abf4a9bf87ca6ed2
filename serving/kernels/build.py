"""Compile the library of native kernels: `python -m serving.kernels.build`.

The compiler is $CXX, c++, g++ or clang++, or else PyPI's `ziglang`. The library needs glibc 2.17 or
newer with ziglang, and that of the machine it was built on otherwise; libstdc++ is linked into it.

It has the kernels of this machine's processor, and those that every processor of its architecture
has: of AVX2, or on aarch64 of NEON. A library for other machines has all kernels of an
architecture, which ATTENDANT_BUILD_KERNELS names: x86_64, aarch64, or "all" for that of this
machine. Zig is preferred for it, because its library runs with older versions of glibc.

What was compiled once is taken from the user's cache folder, $XDG_CACHE_HOME/attendant/kernels, as
long as sources, flags and compiler are the same.
"""

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from serving.kernels.library import LIBRARY, key_path, problem_path

FOLDER = Path(__file__).parent
# Without contraction a multiplication and an addition round as ONNX Runtime's operators do.
FLAGS = "-std=c++17 -O3 -fPIC -ffp-contract=off -fvisibility=hidden -Wall -Wextra"
KERNELS_SOURCE = "kernels"  # compiled once for each instruction set
# The operators, and the choice of kernels by the processor (cpu.cpp), run on every processor.
SOURCES = sorted(path.stem for path in FOLDER.glob("*.cpp") if path.stem != KERNELS_SOURCE)


@dataclass(frozen=True)
class InstructionSet:
    """Kernels that kernels.cpp is compiled to.

    architecture: as `os.uname().machine`. table: the C++ name of the table of functions. flags: of
    the compiler. needs: what a processor that has these instructions says in /proc/cpuinfo.
    """

    architecture: str
    table: str
    flags: str
    needs: str


AVX2 = "-mavx2 -mfma -mf16c"
AVX512 = f"{AVX2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni"
NEEDS_AVX512 = "avx2 fma f16c avx512f avx512bw avx512vl avx512dq avx512_vnni"
# The widest first, as cpu.cpp tries them.
INSTRUCTION_SETS = {
    "amx": InstructionSet(
        "x86_64",
        "kAmx",
        f"{AVX512} -mamx-tile -mamx-int8 -mamx-bf16",
        f"{NEEDS_AVX512} amx_tile amx_int8 amx_bf16",
    ),
    "avx512_vnni": InstructionSet("x86_64", "kAvx512Vnni", AVX512, NEEDS_AVX512),
    "avx_vnni": InstructionSet("x86_64", "kAvxVnni", f"{AVX2} -mavxvnni", "avx2 fma f16c avx_vnni"),
    "avx2": InstructionSet("x86_64", "kAvx2", AVX2, "avx2 fma f16c"),
    "neon_dotprod": InstructionSet(
        "aarch64", "kNeonDotprod", "-march=armv8.2-a+dotprod", "asimd asimddp"
    ),
    "neon": InstructionSet("aarch64", "kNeon", "", "asimd"),
}
ARCHITECTURE = os.uname().machine
ZIG_ARM_FLAG = ("-march=armv8.2-a", "-mcpu=generic+v8_2a")  # and its translation for Zig
# Zig's own C++ library is compiled when something is linked to it, in a minute of processor time.
# Code for it works with this machine's, too, but for two constructors, see library.cpp.
WITH_SYSTEM_LIBRARY = "-DWITH_SYSTEM_LIBRARY"
COST = (
    "int8 models run 2 to 3 times slower. To get them: `apt install g++`, or `pip install ziglang`,"
    " and then `python -m serving.kernels.build` in the source tree."
)


class BuildError(Exception):
    """The library cannot be built."""


def instruction_sets_of(architecture: str) -> list[str]:
    """Return the names of all instruction sets of an architecture, the widest first. All its
    processors have the last one.
    """
    return [name for name, s in INSTRUCTION_SETS.items() if s.architecture == architecture]


def _architecture_of(names: Sequence[str]) -> str:
    return INSTRUCTION_SETS[names[0]].architecture


def compilers() -> list[list[str]]:
    """Return the commands of all compilers that are installed, the preferred one first."""
    names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
    commands = [[path] for name in names if (path := shutil.which(name))]
    for zig in cross_compilers(ARCHITECTURE):
        if _system_library() is not None:
            commands.append([*zig, WITH_SYSTEM_LIBRARY])
        commands.append(zig)
    return commands


def portable_compilers(architecture: str) -> list[list[str]]:
    """Return the commands of the compilers for other machines of an architecture, the preferred one
    first.
    """
    native = compilers() if architecture == ARCHITECTURE else []
    commands = [command for command in native if WITH_SYSTEM_LIBRARY not in command]
    return [*cross_compilers(architecture), *commands]


def cross_compilers(architecture: str) -> list[list[str]]:
    """Return the command of Zig's compiler for Linux on an architecture, if it is installed."""
    if importlib.util.find_spec("ziglang") is None:
        return []
    target = f"{architecture}-linux-gnu.2.17"
    return [[sys.executable, "-m", "ziglang", "c++", "-target", target]]


def _system_library() -> str | None:
    """Return the path of this machine's libstdc++, which ONNX Runtime needs, too."""
    with suppress(OSError):
        ctypes.CDLL("libstdc++.so.6")
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            if "/libstdc++.so.6" in line:
                return line[line.index("/") :]
    return None


def may_be_built() -> bool:
    """Return whether there are kernels for machines of this kind."""
    return sys.platform == "linux" and bool(instruction_sets_of(ARCHITECTURE))


def processor_instruction_sets() -> list[str]:
    """Return the names of the instruction sets that this machine has, the widest first."""
    features: set[str] = set()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):  # of x86-64, of aarch64
                features = set(value.split())
                break
    names = [
        name
        for name in instruction_sets_of(ARCHITECTURE)
        if features.issuperset(INSTRUCTION_SETS[name].needs.split())
    ]
    return [name for name in names if name != "amx" or _may_use_tiles()]


def _may_use_tiles() -> bool:
    """Ask the operating system for the tile registers of AMX, as cpu.cpp does."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


def instruction_sets_to_build() -> list[str]:
    """Return the names of what a build compiles by default, the widest first."""
    if (architecture := architecture_of_other_machines()) is not None:
        return instruction_sets_of(architecture)
    every = instruction_sets_of(ARCHITECTURE)
    return [*dict.fromkeys([*processor_instruction_sets()[:1], *every[-1:]])]


def architecture_of_other_machines() -> str | None:
    """Return the architecture of the machines that the library is to run on, or None if it is for
    this machine alone.
    """
    choice = os.environ.get("ATTENDANT_BUILD_KERNELS", "")
    architectures = sorted({chosen.architecture for chosen in INSTRUCTION_SETS.values()})
    if choice not in ("", "all", *architectures):
        allowed = ", ".join(["all", *architectures])
        raise BuildError(f"ATTENDANT_BUILD_KERNELS must be {allowed} or unset, it is {choice!r}")
    return ARCHITECTURE if choice == "all" else choice or None


def build(
    target: Path = LIBRARY,
    flags: tuple[str, ...] = (),
    instruction_sets: Sequence[str] | None = None,
    is_portable: bool = False,
) -> Path:
    """Build the library, unless it is up to date, and return its path. Raises BuildError with the
    compiler's message, which is also written beside the library.

    instruction_sets: names, the widest first, of one architecture: if it is not this machine's, Zig
    compiles for it. By default `instruction_sets_to_build()`.
    is_portable: whether the library is for other machines, as it is where ATTENDANT_BUILD_KERNELS
    says so and nothing else is asked for.
    """
    try:
        if instruction_sets is None:
            instruction_sets = instruction_sets_to_build()
            is_portable = architecture_of_other_machines() is not None
        _build_with_any_compiler(target, flags, instruction_sets, is_portable)
    except BuildError as error:
        with suppress(OSError):
            problem_path(target).write_text(f"{error}\n", encoding="utf-8")
        raise
    problem_path(target).unlink(missing_ok=True)
    return target


def _build_with_any_compiler(
    target: Path, flags: tuple[str, ...], names: Sequence[str], is_portable: bool
) -> None:
    if not names or sys.platform != "linux":
        raise BuildError("there are kernels for x86-64 and aarch64 under Linux only")
    problem = "no C++ compiler is installed"
    architecture = _architecture_of(names)
    is_for_others = is_portable or architecture != ARCHITECTURE
    commands = portable_compilers(architecture) if is_for_others else compilers()
    for compiler in dict.fromkeys(map(tuple, commands)):
        try:
            _build_with(compiler, target, flags, names)
            return
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or "").strip().splitlines()
            problem = f"{' '.join(compiler)} failed: {lines[-1] if lines else error}"
    raise BuildError(problem)


def _build_with(
    compiler: tuple[str, ...], target: Path, flags: tuple[str, ...], names: Sequence[str]
) -> None:
    """Raises CalledProcessError where the compiler does not work."""
    key = _key(compiler, flags, names)
    if _is_current(target, key):
        return
    cached = cache_folder() / "kernels" / f"{key}.so"
    if _is_current(cached, key):
        _install(cached, target, key)
        return
    with tempfile.TemporaryDirectory() as folder:
        library = _link(compiler, Path(folder), flags, names)
        _install(library, target, key)
        with suppress(OSError):  # nothing can be kept in a folder that cannot be written to
            cached.parent.mkdir(parents=True, exist_ok=True)
            _install(library, cached, key)


def cache_folder() -> Path:
    """Return this user's cache folder: $XDG_CACHE_HOME/attendant (XDG Base Directory
    Specification).
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "attendant"


def _key(compiler: Iterable[str], flags: Iterable[str], names: Iterable[str]) -> str:
    """Return the hash of everything that the library depends on."""
    version = _run([*compiler, "--version"])
    state = hashlib.sha256(repr([*compiler, version, FLAGS, *flags]).encode())
    state.update(repr([(name, INSTRUCTION_SETS[name]) for name in names]).encode())
    # A library that was linked to a newer C library is not loaded with an older one.
    state.update(repr(os.confstr("CS_GNU_LIBC_VERSION")).encode())
    for path in sorted([*FOLDER.rglob("*.cpp"), *FOLDER.rglob("*.h")]):
        state.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return state.hexdigest()


def _is_current(library: Path, key: str) -> bool:
    """Return whether the library was built with this key."""
    try:
        return library.is_file() and key_path(library).read_text(encoding="ascii") == key
    except (OSError, ValueError):
        return False


def _install(library: Path, target: Path, key: str) -> None:
    """Copy the library, so that others never see half of it; its key comes last."""
    for path, data in ((target, library.read_bytes()), (key_path(target), key.encode())):
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.chmod(file.name, 0o755 if path == target else 0o644)
        os.replace(file.name, path)


def compile_sources(
    compiler: Sequence[str], folder: Path, flags: Sequence[str], names: Sequence[str]
) -> list[str]:
    """Compile everything into the folder and return the paths of the objects. Raise
    CalledProcessError with what the compiler says.

    The kernels come first: their compilation takes five times as long as that of a source besides.
    """
    tables = ",".join(f"&{INSTRUCTION_SETS[name].table}" for name in names)
    units = [
        (KERNELS_SOURCE, name, f'{chosen.flags} -DKERNELS={chosen.table} -DKERNELS_NAME="{name}"')
        for name, chosen in ((name, INSTRUCTION_SETS[name]) for name in names)
    ]
    if "ziglang" in compiler:
        units = [(source, name, options.replace(*ZIG_ARM_FLAG)) for source, name, options in units]
    units += [(name, name, f"-DKERNELS_TABLES={tables}") for name in SOURCES]

    def compile_unit(unit: tuple[str, str, str]) -> str:
        source, name, options = unit
        target = str(folder / f"{name}.o")
        command = [*compiler, *FLAGS.split(), *flags, *options.split()]
        _run([*command, "-c", str(FOLDER / f"{source}.cpp"), "-o", target])
        return target

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return list(threads.map(compile_unit, units))


def _link(
    compiler: tuple[str, ...], folder: Path, flags: tuple[str, ...], names: Sequence[str]
) -> Path:
    """Compile everything into the folder, and return the path of the library."""
    objects = compile_sources(compiler, folder, flags, names)
    library = folder / LIBRARY.name
    if WITH_SYSTEM_LIBRARY in compiler:
        objects += ["-nostdlib++", _system_library() or ""]
    static = [] if flags or "ziglang" in compiler else ["-static-libstdc++", "-static-libgcc"]
    static += [] if flags else ["-s"]
    _run([*compiler, "-shared", *flags, *static, "-o", str(library), *objects])
    if not flags and _architecture_of(names) == ARCHITECTURE:
        _load(library)  # one with sanitizers is loaded after theirs
    return library


def oldest_glibc(library: Path) -> str:
    """Return the oldest version of glibc that has all functions which the library needs, but not
    less than "2.17": index and installers know no tag of wheels for versions before it on aarch64.
    """
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", library.read_bytes())
    newest = max([(2, 17), *((int(major), int(minor)) for major, minor in versions)])
    return "{}.{}".format(*newest)


def _load(library: Path) -> None:
    """Load the library in a process of its own, as a check. Raises CalledProcessError."""
    code = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
    _run([sys.executable, "-c", code, str(library)])


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    try:
        print(build())
    except BuildError as error:
        sys.exit(f"The native kernels cannot be built: {error}. Models run without them.")
