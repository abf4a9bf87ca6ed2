"""Imported models that write about pictures compute what `transformers` computes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from export.bundling.running import Rows
from export.bundling.verify import Verifier
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.parameters import BeamParams
from serving.request import FinishedEvent, GenerationRequest, Picture
from tests.export.readers.hugging_face.captioners import (
    FAMILIES,
    NUM_PICTURES,
    PROCESSOR,
    VOCABULARY,
    random_pixels,
    save,
)
from tests.serving.engine.driving import run_all

NEW_TOKENS = 12


@dataclass(frozen=True)
class Imported:
    model: PreTrainedModel
    bundle: Bundle
    pixels: np.ndarray

    @property
    def pictures(self) -> list[Picture]:
        length = self.bundle.manifest.limits.max_source_tokens
        assert length is not None
        return [Picture(each.tobytes(), length) for each in self.pixels]

    @property
    def theirs(self) -> torch.Tensor:
        """What their encoder reads, by their processor's arithmetic."""
        mean, deviation = (np.array(PROCESSOR[name]) for name in ("image_mean", "image_std"))
        values = (self.pixels / 255 - mean) / deviation
        return torch.tensor(values.transpose(0, 3, 1, 2), dtype=torch.float32)


@pytest.fixture(params=FAMILIES, scope="module")
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = tmp_path_factory.mktemp("captioner")
    model = save(request.param, folder / "theirs")
    export_checkpoint(read_model(folder / "theirs"), folder / "ours", Precision.FP32)
    return Imported(model, open_bundle(folder / "ours"), random_pixels())


@torch.inference_mode()
def test_log_probabilities_are_those_of_transformers(imported: Imported) -> None:
    random = np.random.default_rng(1)
    targets = [[2, *random.integers(4, VOCABULARY, NEW_TOKENS)] for _ in range(NUM_PICTURES)]
    found = Rows(imported.bundle, imported.pictures).score(targets)
    logits = imported.model(imported.theirs, decoder_input_ids=torch.tensor(targets)).logits
    assert np.abs(found - logits.log_softmax(-1).numpy()).max() < 1e-4


@pytest.mark.parametrize("num_beams", [1, 4])
def test_texts_are_those_of_generate(imported: Imported, num_beams: int) -> None:
    search: dict[str, Any] = {"num_beams": num_beams}
    ours, theirs = _ours(imported, search), _theirs(imported, search)
    assert ours == theirs
    assert len({tuple(row) for row in ours}) > 4


def _ours(imported: Imported, search: dict[str, Any]) -> list[list[int]]:
    beam = BeamParams(**search) if search["num_beams"] > 1 else None
    requests = [
        GenerationRequest(str(i), picture=picture, beam=beam, max_new_tokens=NEW_TOKENS)
        for i, picture in enumerate(imported.pictures)
    ]
    stories = run_all(Engine(imported.bundle, EngineConfig(slots=24, threads=1)), requests)
    finals = [stories[request.request_id].final for request in requests]
    return [final.best.tokens.ids for final in finals if isinstance(final, FinishedEvent)]


def _theirs(imported: Imported, search: dict[str, Any]) -> list[list[int]]:
    found = imported.model.generate(
        imported.theirs, do_sample=False, max_length=1 + NEW_TOKENS, **search
    )
    return [row[: row.index(2)] if 2 in row else row for row in found[:, 1:].tolist()]


@pytest.mark.parametrize("name", ["captioning of unequal sizes", "trocr"])
def test_int8_is_near(name: str, tmp_path: Path) -> None:
    save(name, tmp_path / "theirs")
    checkpoint = read_model(tmp_path / "theirs")
    export_checkpoint(checkpoint, tmp_path / "ours", Precision.INT8)
    parity = Verifier(checkpoint, open_bundle(tmp_path / "ours")).compare(None, 0)
    print(name, parity.as_markdown())
    assert parity.random_ids.mean < 0.1
