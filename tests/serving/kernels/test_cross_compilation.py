"""The kernels are compiled for 64-bit Arm on any machine that has Zig's compiler."""

import subprocess
from pathlib import Path

import pytest

from serving.kernels import build


def test_all_sources_compile_for_arm_without_a_warning(tmp_path: Path) -> None:
    if not (compilers := build.cross_compilers("aarch64")):
        pytest.skip("ziglang is not installed")
    names = build.instruction_sets_of("aarch64")
    try:
        objects = build.compile_sources(compilers[0], tmp_path, ["-O0", "-Werror"], names)
    except subprocess.CalledProcessError as error:
        pytest.fail(error.stderr)
    assert len(objects) == len(names) + len(build.SOURCES)
    of_aarch64 = b"\xb7\x00"  # e_machine of ELF
    assert all(Path(path).read_bytes()[18:20] == of_aarch64 for path in objects)
