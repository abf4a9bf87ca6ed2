"""What `attendant serve` says where native kernels are missing."""

from pathlib import Path

import pytest

from serving.commands.serve import note_on_kernels
from serving.engine.runtime import machine
from serving.kernels import library


@pytest.mark.parametrize(
    ("reason", "instructions", "is_built", "note"),
    [
        (None, ("avx2",), True, None),
        (
            "no compiler",
            ("avx2", "fma"),
            False,
            "No native kernels, models take 2 to 3 times as long on the CPU: no compiler;"
            " `python -m serving.kernels.build` builds them",
        ),
        (
            "for ONNX Runtime 2.0",
            ("avx2",),
            True,
            "No native kernels, models take 2 to 3 times as long on the CPU: for ONNX Runtime 2.0",
        ),
        (
            "no compiler",
            ("sse4_1",),
            False,
            "No native kernels: there are some for x86-64 with AVX2 and for 64-bit Arm only",
        ),
    ],
)
def test_it_says_what_that_costs_and_only_what_helps(
    reason: str | None,
    instructions: tuple[str, ...],
    is_built: bool,
    note: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "built.so").touch()
    monkeypatch.setattr(library, "why_missing", lambda: reason)
    monkeypatch.setattr(library, "LIBRARY", tmp_path / ("built.so" if is_built else "none.so"))
    monkeypatch.setattr(machine, "instruction_sets", lambda: instructions)

    assert note_on_kernels() == note
