"""The library of native kernels: where it cannot be used, models run without it and say why."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving.kernels import build, library
from serving.kernels.library import (
    LIBRARY,
    NativeKernels,
    key_path,
    load_kernels,
    native_kernels,
    problem_path,
    why_missing,
)
from tests.docs.pages import missing_links, missing_paths

needs_kernels = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)
ALL = build.instruction_sets_of(build.ARCHITECTURE)
BASELINE = ALL[-1]
# All tests that run kernels, which is what other libraries are tested with.
OTHER_TESTS = (Path(__file__).name, "test_cross_compilation.py")
TESTS = sorted(
    str(path) for path in Path(__file__).parent.glob("test_*.py") if path.name not in OTHER_TESTS
)


def test_the_kernels_are_used_on_this_machine() -> None:
    """A machine that has a compiler, and a processor with AVX2 or NEON, has them."""
    if not build.compilers() or not build.processor_instruction_sets():
        pytest.skip("no C++ compiler, or a processor without AVX2")
    assert native_kernels().path == LIBRARY
    assert native_kernels().description in ALL


@needs_kernels
def test_a_library_that_cannot_be_loaded_is_left_out(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.so"
    for content in (b"", b"no library"):
        damaged.write_bytes(content)
        kernels = load_kernels(damaged)
        assert kernels.path is None
        assert kernels.description.startswith("none, because damaged.so cannot be loaded: ")


def test_where_none_were_built_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "none.so"
    reason = "they were not built: this was installed without them"
    assert load_kernels(missing) == NativeKernels(None, f"none, because {reason}")
    problem_path(missing).write_text("no C++ compiler is installed\n")
    reason = "they were not built: no C++ compiler is installed"
    monkeypatch.setattr(library, "native_kernels", lambda: load_kernels(missing))
    assert why_missing() == reason


@pytest.mark.parametrize(
    ("kernels", "reason"),
    [
        (NativeKernels(LIBRARY, "avx2"), None),
        (NativeKernels(None, "none for ONNX Runtime 1.99.0"), "for ONNX Runtime 1.99.0"),
    ],
)
def test_what_is_missing_is_said_in_a_few_words(
    kernels: NativeKernels, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "native_kernels", lambda: kernels)
    assert why_missing() == reason


@needs_kernels
def test_a_library_of_something_else_is_left_out(tmp_path: Path) -> None:
    source, other = tmp_path / "other.cpp", tmp_path / "other.so"
    source.write_text("int nothing() { return 0; }")
    compiler = build.compilers()[0]
    subprocess.run([*compiler, "-shared", "-fPIC", str(source), "-o", str(other)], check=True)
    assert "attendant_kernels" in load_kernels(other).description


@needs_kernels
@pytest.mark.parametrize(
    ("version", "is_enough"),
    [("1.20.1", False), ("1.21.0", True), ("1.99.0.dev20261129", True), ("2.0.0", True)],
)
def test_an_older_onnx_runtime_runs_without_kernels(
    version: str, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "onnxruntime_version", lambda: version)
    kernels = load_kernels(LIBRARY)
    if is_enough:
        assert kernels == native_kernels()
    else:
        assert kernels == NativeKernels(None, f"none for ONNX Runtime {version}")


@needs_kernels
def test_an_onnx_runtime_without_the_interface_gets_an_error() -> None:
    """The library is registered by an ONNX Runtime with version 1 of its C interface alone."""
    code = (
        "import ctypes, sys\n"
        "Create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)\n"
        "create = Create(lambda code, text: print(code, text.decode()) or 99)\n"
        "api = (ctypes.c_void_p * 1)(ctypes.cast(create, ctypes.c_void_p))\n"
        "Get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)\n"
        "get = Get(lambda version: ctypes.addressof(api) if version == 1 else None)\n"
        "base = (ctypes.c_void_p * 2)(ctypes.cast(get, ctypes.c_void_p))\n"
        "register = ctypes.CDLL(sys.argv[1]).RegisterCustomOps\n"
        "register.restype = ctypes.c_void_p\n"
        "print(register(None, base))\n"
    )
    command = [sys.executable, "-c", code, str(LIBRARY)]
    printed = subprocess.check_output(command, text=True, timeout=60)
    not_implemented = 9  # ORT_NOT_IMPLEMENTED
    error = "Attendant's kernels need a newer ONNX Runtime"
    assert printed == f"{not_implemented} {error}\n99\n"


def test_the_page_on_the_kernels_names_every_file() -> None:
    page = build.FOLDER / "README.md"
    text = page.read_text(encoding="utf-8")
    patterns = re.findall(r"`([\w*/.]+)`", text.partition("## Words")[0])
    files = {*build.FOLDER.glob("*.cpp"), *build.FOLDER.glob("*.h")}
    named = {path for pattern in patterns for path in build.FOLDER.glob(pattern)}
    headers = {path.with_suffix(".h") for path in named if path.suffix == ".cpp"}
    sources = {path.with_suffix(".cpp") for path in named if path.suffix == ".h"}
    assert files <= named | headers | sources
    assert not [*missing_links(page, text), *missing_paths(text)]


def test_the_environment_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTENDANT_KERNELS", "off")
    assert load_kernels(LIBRARY) == NativeKernels(None, "off, because ATTENDANT_KERNELS says so")
    monkeypatch.setattr(library, "native_kernels", lambda: load_kernels(LIBRARY))
    assert why_missing() is None


def test_without_a_compiler_the_build_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "compilers", list)
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler is installed"):
        build.build(tmp_path / "made.so")
    monkeypatch.setattr(build, "compilers", lambda: [["false"]])
    with pytest.raises(build.BuildError, match="false failed"):
        build.build(tmp_path / "made.so")
    assert [path.name for path in tmp_path.iterdir()] == ["made.problem"]
    assert "false failed" in (tmp_path / "made.problem").read_text()


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes down its calls, whose libraries are its command line, and an empty
    cache. The path is of the calls.
    """
    calls, compiler = tmp_path / "calls", tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >>{calls}\n'
        'if [ "$1" = --version ]; then echo 1.0; exit; fi\n'
        'while [ "$1" != -o ]; do shift; done\n'
        'echo "$@" >"$2"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setattr(build, "compilers", lambda: [[str(compiler)]])
    monkeypatch.setattr(build, "_load", lambda library: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


def num_compiled(calls: Path) -> int:
    lines = calls.read_text().splitlines()
    calls.unlink()
    return sum(" -c " in line for line in lines)


def test_what_was_compiled_once_is_not_compiled_again(calls: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.so", tmp_path / "second.so"
    build.build(first, instruction_sets=[BASELINE])
    assert num_compiled(calls) == len(build.SOURCES) + 1
    build.build(first, instruction_sets=[BASELINE])
    build.build(second, instruction_sets=[BASELINE])
    assert num_compiled(calls) == 0
    assert second.read_bytes() == first.read_bytes()
    assert key_path(second).read_text() == key_path(first).read_text()


def test_a_library_without_its_key_is_installed_anew(calls: Path, tmp_path: Path) -> None:
    """A build that was killed between the library and its key."""
    target = tmp_path / "made.so"
    build.build(target, instruction_sets=[BASELINE])
    expected = target.read_bytes()
    target.write_bytes(b"other")
    key_path(target).unlink()
    build.build(target, instruction_sets=[BASELINE])
    assert target.read_bytes() == expected and num_compiled(calls) == len(build.SOURCES) + 1


def test_other_sources_flags_or_compilers_are_compiled_anew(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "made.so"
    build.build(target, instruction_sets=[BASELINE])
    build.build(target, instruction_sets=ALL[-2:])
    build.build(target, ("-g",), [BASELINE])
    assert num_compiled(calls) == 3 * len(build.SOURCES) + 4
    compiler = Path(build.compilers()[0][0])
    compiler.write_text(compiler.read_text().replace("1.0", "1.1"))
    build.build(target, instruction_sets=[BASELINE])
    assert num_compiled(calls) == len(build.SOURCES) + 1
    monkeypatch.setattr(build, "FOLDER", tmp_path / "sources")
    shutil.copytree(LIBRARY.parent, build.FOLDER)
    (build.FOLDER / "vectors.h").write_text("// other")
    build.build(target, instruction_sets=[BASELINE])
    assert num_compiled(calls) == len(build.SOURCES) + 1


def test_a_cache_that_cannot_be_written_to_costs_nothing_but_time(
    calls: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("no folder")
    made = build.build(tmp_path / "made.so", instruction_sets=[BASELINE])
    assert key_path(made).is_file() and num_compiled(calls) == len(build.SOURCES) + 1


def test_a_build_is_for_this_processor_or_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ARCHITECTURE", "x86_64")
    monkeypatch.setattr(build, "processor_instruction_sets", lambda: ["avx512_vnni", "avx2"])
    monkeypatch.delenv("ATTENDANT_BUILD_KERNELS", raising=False)
    assert build.instruction_sets_to_build() == ["avx512_vnni", "avx2"]
    monkeypatch.setattr(build, "processor_instruction_sets", list)
    assert build.instruction_sets_to_build() == ["avx2"]
    monkeypatch.setenv("ATTENDANT_BUILD_KERNELS", "all")
    assert build.instruction_sets_to_build() == ["amx", "avx512_vnni", "avx_vnni", "avx2"]
    monkeypatch.setenv("ATTENDANT_BUILD_KERNELS", "aarch64")
    assert build.instruction_sets_to_build() == ["neon_dotprod", "neon"]
    monkeypatch.setenv("ATTENDANT_BUILD_KERNELS", "avx3")
    with pytest.raises(build.BuildError, match="avx3"):
        build.instruction_sets_to_build()


@needs_kernels
def test_the_processor_is_judged_as_the_library_does() -> None:
    if "ATTENDANT_KERNELS" in os.environ:
        pytest.skip("ATTENDANT_KERNELS selects another")
    assert native_kernels().description == build.processor_instruction_sets()[0]


@pytest.mark.parametrize("name", ["operator", "memory"])
def test_parts_of_the_library_alone(name: str, tmp_path: Path) -> None:
    """Programs of C++, which say at each check what it is of."""
    if not build.compilers():
        pytest.skip("no C++ compiler")
    program, folder = tmp_path / name, Path(__file__).with_name("programs")
    sources = [folder / f"{name}_test.cpp", *build.FOLDER.glob("memory.cpp")]
    command = [*build.compilers()[0], "-std=c++17", "-g", "-Wall", "-Wextra", "-Werror"]
    command += ["-pthread", f"-I{build.FOLDER}", "-o", str(program), *map(str, sources)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", build.instruction_sets_of(build.ARCHITECTURE))
def test_kernels_share_no_function_with_another_instruction_set(name: str, tmp_path: Path) -> None:
    """The linker keeps one of all functions of a name, perhaps with instructions that a processor
    lacks. Without optimisation none is inlined but those that have to be.
    """
    compiler, nm = shutil.which("g++"), shutil.which("nm")
    if compiler is None or nm is None:
        pytest.skip("g++ and nm are not installed")
    chosen, target = build.INSTRUCTION_SETS[name], tmp_path / "kernels.o"
    options = [*build.FLAGS.replace("-O3", "-O0").split(), *chosen.flags.split()]
    options.append("-fno-exceptions")  # else some pass through functions that throw none
    options += [f"-DKERNELS={chosen.table}", f'-DKERNELS_NAME="{name}"', "-c"]
    source = str(build.FOLDER / f"{build.KERNELS_SOURCE}.cpp")
    subprocess.run([compiler, *options, source, "-o", str(target)], check=True)
    lines = subprocess.check_output([nm, "--demangle", str(target)], text=True).splitlines()
    symbols = [line.split(maxsplit=2) for line in lines if line[:1] != " "]
    shared = [name for _, kind, name in symbols if not kind.islower()]
    assert shared == [chosen.table]
    missing = {line.split()[1] for line in lines if line.split()[0] == "U"}
    assert missing <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}


def run_tests(loaded: Path, **environment: str) -> None:
    """Run the tests of the kernels in a process of their own, with another library."""
    code = (
        "import sys, pathlib, pytest\n"
        "from serving.kernels import library\n"
        "library.LIBRARY = pathlib.Path(sys.argv[1])\n"
        "sys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', *sys.argv[2:]]))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(loaded), *TESTS],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert " passed" in result.stdout


@needs_kernels
@pytest.mark.full
@pytest.mark.timeout(1800)  # the tests of all operators, beside other work
@pytest.mark.parametrize("name", ALL)
def test_narrower_instruction_sets_have_the_same_bits(name: str, tmp_path: Path) -> None:
    if name == native_kernels().description:
        pytest.skip(f"the other tests run {name}")
    if name not in build.processor_instruction_sets():
        pytest.skip(f"this processor has no {name}")
    every = build.build(tmp_path / "every.so", instruction_sets=ALL)
    run_tests(every, ATTENDANT_KERNELS=name)


@needs_kernels
@pytest.mark.full
@pytest.mark.timeout(1800)  # the tests of all operators, beside other work
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Addresses outside of arrays, and what C++ leaves undefined, where this processor computes."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    # ASan intercepts exceptions only if their library is loaded with it.
    actual = [
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    if not all(map(os.path.isabs, actual)):
        pytest.skip("the address sanitizer of g++ is not installed")
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    used = [native_kernels().description]  # compiling the others takes minutes
    checked = build.build(tmp_path / "checked.so", tuple(flags), used)
    options = "detect_leaks=0:detect_odr_violation=0"  # Python itself never frees all it has
    run_tests(checked, LD_PRELOAD=" ".join(actual), ASAN_OPTIONS=options)
