"""fp16 bundles are for CUDA; here their graphs are built, loaded and run on the CPU's kernels."""

from pathlib import Path

import pytest

from export.exporting import BUILDERS
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.export.parity import examples_of
from tests.export.rounding import assert_errs_by_rounding
from tests.tiny import tiny_bundle


@pytest.mark.parametrize("architecture", sorted(BUILDERS))
def test_log_probabilities_are_near_those_of_torch(tmp_path: Path, architecture: str) -> None:
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP16)
    states = open_bundle(bundle).manifest.states
    assert {state.dtype for state in states} == {"float16"}
    assert_errs_by_rounding(bundle, tmp_path / architecture, examples_of(architecture))
