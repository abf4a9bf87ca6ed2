"""Imported models that write about pictures compute what `transformers` computes."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from export.bundling.running import GraphRows
from export.bundling.verify import TranslationVerifier
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import PictureSpec, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.errors import RequestError
from serving.requests.parameters import BeamParams
from serving.requests.request import FinishedEvent, GenerationRequest, Picture
from tests.export.readers.hugging_face.captioners import (
    FAMILIES,
    NUM_PICTURES,
    OLDER_SIDE,
    PROCESSOR,
    SIDE,
    VOCABULARY,
    random_pixels,
    save,
)
from tests.export.readers.hugging_face.changing import change, change_weights, problems_of
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
    found = GraphRows(imported.bundle, imported.pictures).score(targets)
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
    parity = TranslationVerifier(checkpoint, open_bundle(tmp_path / "ours")).compare(None, 0)
    print(name, parity.as_markdown())
    assert parity.random_ids.mean < 0.1


def test_what_transformers_writes_is_known(tmp_path: Path) -> None:
    for name in FAMILIES:
        save(name, tmp_path / name)
        assert read_model(tmp_path / name).notes == ()


@pytest.mark.parametrize("name", FAMILIES)
def test_published_folders_say_it_all_in_one_file(name: str, tmp_path: Path) -> None:
    """The decoder's section has special tokens and defaults of generation, too; pictures have a
    feature extractor.
    """
    save(name, tmp_path)
    expected = read_model(tmp_path).config
    (tmp_path / "generation_config.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    sides = {side: OLDER_SIDE | config[side] for side in ("encoder", "decoder")}
    sides["decoder"]["decoder_start_token_id"] = 2
    moved = dict.fromkeys(("decoder_start_token_id", "eos_token_id", "pad_token_id"))
    changed = {"processor_class": "TrOCRProcessor", "num_beams": 2}
    change(tmp_path / "config.json", **sides, **moved, **changed)
    change(tmp_path / "tokenizer_config.json", unk_token={"content": "<unk>", "lstrip": False})
    changed = {"feature_extractor_type": "ViTFeatureExtractor", "image_processor_type": None}
    change(tmp_path / "preprocessor_config.json", size=SIDE, do_rescale=None, **changed)
    change_weights(
        tmp_path,
        decoder__transformer__h__0__crossattention__masked_bias=np.array(-1e4),
        decoder__model__decoder__embed_positions___float_tensor=np.zeros(1),
    )
    found = read_model(tmp_path)
    assert (found.config, found.notes) == (expected, ())
    generation = found.conventions.generation
    assert (generation["num_beams"], generation["max_new_tokens"]) == (2, 19)
    assert (found.conventions.prompt_prefix, found.conventions.unk) == ((2,), 3)


def test_deit_cuts_out_the_middle(tmp_path: Path) -> None:
    kind = {"image_processor_type": "DeiTImageProcessor", "do_center_crop": True}
    size, crop = {"height": 36, "width": 36}, {"height": SIDE, "width": SIDE}
    save("captioning by deit", tmp_path / "theirs", **kind, size=size, crop_size=crop, resample=3)
    export_checkpoint(read_model(tmp_path / "theirs"), tmp_path / "ours", Precision.FP32)
    picture = open_bundle(tmp_path / "ours").manifest.picture
    assert picture == PictureSpec(SIDE, 36, "bicubic", num_class_tokens=2)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("encoder", {"num_channels": 1}, "num_channels 1 is not supported"),
    ("encoder", {"hidden_act": "mish"}, "hidden_act 'mish' is not supported"),
    ("encoder", {"patch_size": 7}, "patches of 7 do not fill a side of 30"),
    ("encoder", {"pruned_heads": {"0": [1]}}, "pruned_heads {'0': [1]} is not supported"),
    ("decoder", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx True"),
    ("processor", {"do_resize": False}, "do_resize False is not supported"),
    ("processor", {"resample": 9}, "resample 9 must be one of 0 to 5"),
    ("processor", {"size": {"shortest_edge": 30}}, "shortest_edge 30 is not supported"),
    ("processor", {"size": {"height": 30, "width": 40}}, "is no square"),
    ("processor", {"size": 32}, "size 32 must be image_size 30"),
    ("processor", {"image_mean": [0.5]}, "image_mean [0.5] must be three numbers"),
    ("processor", {"image_processor_type": "DonutImageProcessor"}, "is none of ViTImageProcessor"),
]


@pytest.mark.parametrize(("section", "values", "problem"), REFUSED, ids=str)
def test_what_would_compute_another_model_is_refused(
    section: str, values: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    save("captioning", tmp_path)
    if section == "processor":
        change(tmp_path / "preprocessor_config.json", **values)
    else:
        config = json.loads((tmp_path / "config.json").read_text())
        change(tmp_path / "config.json", **{section: config[section] | values})
    assert any(problem in each for each in problems_of(tmp_path))


@pytest.mark.parametrize(
    ("side", "name"),
    [("encoder", name) for name in ("beit", "donut-swin", "swin", "swinv2")]
    + [("decoder", name) for name in ("bert", "mbart", "roberta")],
)
def test_other_families_are_refused_in_one_sentence(side: str, name: str, tmp_path: Path) -> None:
    save("captioning", tmp_path)
    change(tmp_path / "config.json", **{side: {"model_type": name}})
    known = {"encoder": "deit, vit", "decoder": "gpt2, trocr"}[side]
    expected = f"config.json: {side}: model_type '{name}' is none of {known}"
    assert problems_of(tmp_path) == [expected]


def test_a_folder_without_its_processor_is_refused(tmp_path: Path) -> None:
    save("trocr", tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    assert "preprocessor_config.json is missing" in problems_of(tmp_path)


def test_newer_folders_have_the_processor_in_a_section(tmp_path: Path) -> None:
    save("trocr", tmp_path)
    expected = read_model(tmp_path).config
    old = tmp_path / "preprocessor_config.json"
    change(tmp_path / "processor_config.json", image_processor=json.loads(old.read_text()))
    old.unlink()
    assert read_model(tmp_path).config == expected


def test_equal_pictures_are_encoded_once(imported: Imported) -> None:
    engine = Engine(imported.bundle, EngineConfig(slots=4, threads=1))
    picture = imported.pictures[0]
    found = []
    for number in range(2):
        request = GenerationRequest(str(number), picture=picture, max_new_tokens=4)
        engine.submit(request)
        engine.step()
        found.append(engine.step_stats.num_source_tokens)
        while engine.has_work:
            engine.step()
    assert found == [len(picture), 0]


def test_the_engine_refuses_what_is_no_picture_of_the_model(imported: Imported) -> None:
    engine, [picture] = Engine(imported.bundle, EngineConfig(slots=4)), imported.pictures[:1]
    for fields, words in (
        ({"source_ids": (4, 5)}, "needs a picture"),
        ({"picture": replace(picture, pixels=picture.pixels[:-1])}, "30 x 30 x 3 pixels"),
        ({"picture": replace(picture, num_positions=3)}, "positions"),
    ):
        with pytest.raises(RequestError, match=words):
            engine.submit(GenerationRequest("a", **fields))
