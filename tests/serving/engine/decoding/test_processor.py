"""Processors are told apart by what the kernel says of them."""

from pathlib import Path

import pytest

from serving.engine.runtime.session import has_vnni


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["fpu avx512_vnni"], True),
        (["fpu avx2 avx_vnni", "avx_vnni"], True),
        (["fpu avx2 avx_vnni", "fpu avx2"], False),
        (["fpu avx2"], False),
        ([], False),
    ],
)
def test_vnni_is_told_by_the_flags_of_all_processors(
    tmp_path: Path, flags: list[str], expected: bool
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "".join(f"processor : 0\nflags\t\t: {flags_of_cpu}\n\n" for flags_of_cpu in flags)
    )
    assert has_vnni(cpuinfo) is expected
    assert not has_vnni(tmp_path / "none")
