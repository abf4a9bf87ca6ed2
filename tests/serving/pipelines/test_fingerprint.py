"""Tests that what decides the bytes of an answer changes the fingerprint; nothing else does."""

from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle.manifest import Task
from serving.engine.runtime.machine import instruction_sets
from serving.pipelines import loading
from serving.pipelines.loading import fingerprint_of
from tests.serving.pipelines.fakes import manifest


def test_the_bundle_and_the_device_decide() -> None:
    first = manifest(Task.GENERATE)
    other = replace(first, files={"step.onnx": "0" * 64})
    found = [fingerprint_of(each, "cpu") for each in (first, first, other)]

    assert found[0] == found[1] and found[0].startswith("fp_")
    assert len({*found, fingerprint_of(first, "cuda")}) == 3


@pytest.mark.parametrize("package", ["attendant", "onnxruntime"])
def test_versions_decide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    before = fingerprint_of(manifest(Task.GENERATE), "cpu")
    real = loading.version
    monkeypatch.setattr(loading, "version", lambda name: "9.9" if name == package else real(name))

    assert fingerprint_of(manifest(Task.GENERATE), "cpu") != before


def test_instructions_of_a_processor(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("model name : X\nflags\t\t: fpu vme avx2 sse4_1 avx512_vnni\n\nflags: none\n")

    assert instruction_sets(told) == ("avx2", "avx512_vnni", "sse4_1")
    assert instruction_sets(tmp_path / "missing") == ()
