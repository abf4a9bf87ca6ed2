"""The kernels of 64-bit Arm, under qemu-user: `pytest -m arm`, which takes minutes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from serving.kernels import build
from serving.kernels.library import LIBRARY, native_kernels
from tests.serving.kernels import aarch64

pytestmark = [pytest.mark.arm, pytest.mark.timeout(3600)]

FOLDER = Path(__file__).parent
# These compile, or measure the memory of the process, which is the emulator's.
LEFT_OUT = {"test_arm", "test_cross_compilation", "test_library", "test_packed_weights"}
TESTS = sorted(path for path in FOLDER.glob("test_*.py") if path.stem not in LEFT_OUT)
RUN_TESTS = (
    "import sys, pathlib, pytest\n"
    "from serving.kernels import library\n"
    "library.LIBRARY = pathlib.Path(sys.argv[1])\n"
    "print(library.native_kernels().description)\n"
    "options = ['-q', '-x', '-p', 'no:cacheprovider', '--noconftest', '--timeout=3000']\n"
    "sys.exit(pytest.main([*options, *sys.argv[2:]]))\n"
)
CPUS = {"max": "neon_dotprod", "cortex-a72": "neon"}  # of qemu


@pytest.fixture(scope="session")
def python() -> Path:
    try:
        return aarch64.prepare_python()
    except aarch64.Unavailable as error:
        pytest.skip(f"no Python for Arm: {error}")


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not build.cross_compilers("aarch64"):
        pytest.skip("ziglang is not installed")
    target = tmp_path_factory.mktemp("arm") / LIBRARY.name
    return build.build(target, instruction_sets=build.instruction_sets_of("aarch64"))


def run(python: Path, *arguments: str, cpu: str, **environment: str) -> str:
    result = aarch64.run_python(python, arguments, cpu, environment)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("tests", TESTS, ids=lambda path: path.stem)
def test_kernels_pass_their_tests(python: Path, kernels: Path, tests: Path, cpu: str) -> None:
    printed = run(python, "-c", RUN_TESTS, str(kernels), str(tests), cpu=cpu)
    assert printed.startswith(CPUS[cpu]) and " passed" in printed


@pytest.mark.parametrize("cpu", CPUS)
def test_results_have_the_bits_of_avx2(
    python: Path, kernels: Path, cpu: str, tmp_path: Path
) -> None:
    if native_kernels().path is None or "avx2" not in build.processor_instruction_sets():
        pytest.skip("this machine does not run the kernels of AVX2")
    program = ["-m", "tests.serving.kernels.results"]
    files = [tmp_path / "x86.npz", tmp_path / "arm.npz"]
    subprocess.run(
        [sys.executable, *program, str(LIBRARY), str(files[0])],
        env={**os.environ, "ATTENDANT_KERNELS": "avx2"},
        check=True,
    )
    run(python, *program, str(kernels), str(files[1]), cpu=cpu)
    expected, actual = map(np.load, files)
    assert set(actual) == set(expected)
    assert [name for name in expected if not np.array_equal(actual[name], expected[name])] == []
