"""Whisper's graphs against its torch module, on random spectrograms."""

from pathlib import Path

import pytest

from export.bundling.parity import Parity
from export.bundling.verify import TranslationVerifier
from export.bundling.writer import export_checkpoint
from serving.bundle.manifest import Precision
from tests.tiny import SOUND_READER, tiny_checkpoint


@pytest.mark.parametrize(("precision", "most"), [(Precision.FP32, 1e-5), (Precision.INT8, 0.15)])
def test_log_probabilities_are_those_of_torch(
    tmp_path: Path, precision: Precision, most: float
) -> None:
    checkpoint = tiny_checkpoint(SOUND_READER, tmp_path / "checkpoint")

    def verify(checkpoint, bundle):
        return TranslationVerifier(checkpoint, bundle).compare(None, 0)

    parity = export_checkpoint(checkpoint, tmp_path / "bundle", precision, verify=verify)
    assert isinstance(parity, Parity)
    assert parity.random_ids.largest < most
