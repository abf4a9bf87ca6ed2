"""Tests that what would keep a server from starting is found before Ray starts, all of it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle, write_manifest
from serving.deployments.start_checks import choices, problems_at_start, problems_of, resolve_groups
from serving.engine.runtime import session
from serving.server_config import ServerConfig, WorkerGroup
from tests.devices.fake_cuda import FakeCuda
from tests.tiny import tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("bahdanau", tmp_path_factory.mktemp("bundle"), Precision.INT8)


def config_of(*bundles: Path, **options: object) -> ServerConfig:
    group = WorkerGroup.model_validate({"bundles": bundles, **options})
    return ServerConfig(groups=(group,))


def test_a_good_bundle_has_no_problems(bundle: Path) -> None:
    assert problems_of(config_of(bundle)) == []


def test_every_bundle_is_checked(bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for path in bundle.iterdir():
        (damaged / path.name).write_bytes(path.read_bytes())
    (damaged / "step.onnx").write_bytes(b"?")
    (damaged / "tokenizer.json").unlink()

    problems = problems_of(config_of(tmp_path / "none", damaged, bundle))

    assert problems[0] == f"{tmp_path / 'none'}: no such folder"
    assert sorted(problems[1:]) == [
        problem
        for problem in sorted(problems[1:])
        if problem.startswith((f"{damaged}: step.onnx: SHA", f"{damaged}: tokenizer.json: missing"))
    ]
    assert len(problems) == 3


def test_a_model_that_transcribes_needs_the_libraries_that_read_recordings(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whisper = tiny_bundle("whisper", tmp_path, Precision.FP32)
    assert problems_at_start(config_of(bundle, whisper)) == []
    monkeypatch.setattr("serving.audio.decoding._LIBRARIES", ("no_such_library",))
    assert problems_at_start(config_of(bundle, whisper)) == [
        f"{whisper}: recordings need no_such_library: pip install 'attendant-server[speech]'"
    ]


def test_the_tokenizer_of_the_target_is_checked_too(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "two")
    (tmp_path / "two" / "target_tokenizer.json").write_text("{}")
    write_manifest(tmp_path / "two", open_bundle(bundle).manifest)
    [problem] = problems_of(config_of(tmp_path / "two"))
    assert problem.startswith(f"{tmp_path / 'two' / 'target_tokenizer.json'}: not a tokenizer")
    assert problems_at_start(config_of(tmp_path / "two")) == []  # its replicas say so


def test_defaults_are_checked_too(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "wide")
    manifest = replace(open_bundle(bundle).manifest, generation={"num_beams": 1000})
    write_manifest(tmp_path / "wide", manifest)
    [problem] = problems_of(config_of(tmp_path / "wide"))
    assert problem.startswith(f"{tmp_path / 'wide'}: generation.num_beams")


def test_a_name_is_served_once(bundle: Path) -> None:
    assert problems_of(config_of(bundle, bundle)) == ["model bahdanau: served 2 times"]


def test_a_device_must_be_there_and_fit(bundle: Path) -> None:
    [problem] = problems_of(config_of(bundle, device="cuda"))

    assert "cuda" in problem


@pytest.mark.parametrize(
    ("devices", "has_gpu", "expected"),
    [
        (["fp16"], True, "cuda"),
        (["fp16"], False, "cpu"),
        (["fp16", "int8"], True, "cpu"),
        (["int8"], True, "cpu"),
    ],
)
def test_an_open_device_is_that_which_all_bundles_of_a_group_can_run_on(
    devices: list[str],
    has_gpu: bool,
    expected: str,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    providers = ["CUDAExecutionProvider"] if has_gpu else []
    monkeypatch.setattr(session.ort, "get_available_providers", lambda: providers)
    monkeypatch.setattr(session, "load_library", FakeCuda)
    folders = [tmp_path / str(i) for i in range(len(devices))]
    for folder, precision in zip(folders, devices, strict=True):
        folder.mkdir()
        document = json.loads((bundle / "bundle.json").read_text()) | {"precision": precision}
        (folder / "bundle.json").write_text(json.dumps(document))
    [group] = resolve_groups(config_of(*folders)).groups
    assert group.device == expected
    [told] = resolve_groups(config_of(*folders, device="cpu")).groups
    assert told.device == "cpu"


def copies(bundle: Path, folder: Path, **chrf: float | None) -> list[Path]:
    """Copies of a bundle, named as the arguments, with these scores on one test."""
    folders = []
    for name, score in chrf.items():
        shutil.copytree(bundle, folder / name)
        scores = [] if score is None else [{"origin": "captions", "chrf": score}]
        manifest = replace(open_bundle(bundle).manifest, name=name, quality={"scores": scores})
        write_manifest(folder / name, manifest)
        folders.append(folder / name)
    return folders


def test_better_models_are_tried_first_and_which_is_said(bundle: Path, tmp_path: Path) -> None:
    folders = copies(bundle, tmp_path, unmeasured=None, weak=50.0, strong=60.0)
    config = resolve_groups(config_of(*folders))

    assert [path.name for path in config.groups[0].bundles] == ["unmeasured", "strong", "weak"]
    assert list(choices(config)) == [
        "en to fr: unmeasured, unless a request names strong or weak",
    ]


def test_a_default_comes_first_and_must_be_there(bundle: Path, tmp_path: Path) -> None:
    folders = copies(bundle, tmp_path, weak=50.0, strong=60.0)
    config = resolve_groups(config_of(*folders, default="weak"))
    [problem] = problems_of(config_of(*folders, default="other"))

    assert [path.name for path in config.groups[0].bundles] == ["weak", "strong"]
    assert problem == "default: other is none of the group's models: weak, strong"
    assert list(choices(config_of(folders[0]))) == []
