"""The library of native kernels: where it cannot be used, models run without it and say why."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving.kernels import build, library
from serving.kernels.library import (
    LIBRARY,
    NativeKernels,
    checksum_path,
    load_kernels,
    native_kernels,
)

needs_kernels = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)
NAMES = ("linear", "attention", "attention_options", "choice", "recurrent")
TESTS = [str(Path(__file__).with_name(f"test_{name}.py")) for name in NAMES]


def test_the_kernels_are_used_on_this_machine() -> None:
    """A machine that has a compiler, and a processor with AVX2, has them."""
    flags = Path("/proc/cpuinfo").read_text().split()
    if not build.compilers() or not {"avx2", "fma"} <= set(flags):
        pytest.skip("no C++ compiler, or a processor without AVX2")
    assert native_kernels().path == LIBRARY
    assert native_kernels().description in {"amx", "avx512_vnni", "avx_vnni", "avx2"}


@needs_kernels
def test_a_library_that_cannot_be_loaded_is_left_out(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.so"
    shutil.copy(checksum_path(LIBRARY), checksum_path(damaged))
    for content in (LIBRARY.read_bytes()[:2000], b"", LIBRARY.read_bytes() + b" "):
        damaged.write_bytes(content)
        text = "none, because damaged.so is damaged; install anew"
        assert load_kernels(damaged) == NativeKernels(None, text)
    assert load_kernels(tmp_path / "none.so") == NativeKernels(
        None, "none, because they were not built when this was installed"
    )


@needs_kernels
def test_a_library_of_something_else_is_left_out(tmp_path: Path) -> None:
    source, other = tmp_path / "other.cpp", tmp_path / "other.so"
    source.write_text("int nothing() { return 0; }")
    compiler = build.compilers()[0]
    subprocess.run([*compiler, "-shared", "-fPIC", str(source), "-o", str(other)], check=True)
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    checksum_path(other).write_text(digest)
    assert "attendant_kernels" in load_kernels(other).description


@needs_kernels
def test_an_untested_onnx_runtime_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "onnxruntime_version", lambda: "1.99.0")
    assert load_kernels(LIBRARY) == NativeKernels(None, "none for ONNX Runtime 1.99.0")


def test_the_environment_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTENDANT_KERNELS", "off")
    assert load_kernels(LIBRARY) == NativeKernels(None, "off, because ATTENDANT_KERNELS says so")


def test_without_a_compiler_the_build_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "compilers", list)
    with pytest.raises(build.BuildError, match=r"no C\+\+ compiler is installed"):
        build.build(tmp_path / "made.so")
    monkeypatch.setattr(build, "compilers", lambda: [["false"]])
    with pytest.raises(build.BuildError, match="false failed"):
        build.build(tmp_path / "made.so")
    assert not [*tmp_path.iterdir()]


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
        timeout=250,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert " passed" in result.stdout


@needs_kernels
@pytest.mark.full
@pytest.mark.parametrize("name", ["avx2", "avx_vnni", "avx512_vnni"])
def test_narrower_instruction_sets_have_the_same_bits(name: str) -> None:
    code = "from serving.kernels.library import native_kernels; print(native_kernels().description)"
    if name == native_kernels().description:
        pytest.skip(f"the other tests run {name}")
    environment = {**os.environ, "ATTENDANT_KERNELS": name}
    used = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    if used.stdout.decode().strip() != name:
        pytest.skip(f"this processor has no {name}")
    run_tests(LIBRARY, ATTENDANT_KERNELS=name)


@needs_kernels
@pytest.mark.full
def test_sanitizers_find_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses outside of arrays, and what C++ leaves undefined, where this processor computes."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    # ASan intercepts exceptions only if their library is loaded with it.
    found = [
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    if not all(map(os.path.isabs, found)):
        pytest.skip("the address sanitizer of g++ is not installed")
    flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    used = f'"{native_kernels().description}"'
    own = next(name for _, name, options in build.UNITS if used in options)
    idle = [unit for unit in build.UNITS if unit[0] == "kernels" and unit[1] != own]
    flags += [f"-Wl,--defsym={name}={own}" for _, name, _ in idle]  # compiling them takes minutes
    monkeypatch.setattr(build, "UNITS", [unit for unit in build.UNITS if unit not in idle])
    checked = build.build(tmp_path / "checked.so", tuple(flags))
    options = "detect_leaks=0:detect_odr_violation=0"  # Python itself never frees all it has
    run_tests(checked, LD_PRELOAD=" ".join(found), ASAN_OPTIONS=options)
