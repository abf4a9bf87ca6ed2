"""What a manifest says of sound must fit its encode graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import FEATURES, AudioSpec, Manifest, Precision, Task, TensorSpec
from serving.bundle.opening import open_manifest, write_manifest
from serving.bundle.validation import manifest_problems
from tests.tiny import tiny_bundle

SPEC = AudioSpec(
    sampling_rate=16_000,
    num_mels=8,
    num_frames=52,
    hop=160,
    fft_size=400,
    start=1,
    previous=3,
    no_speech=4,
    no_timestamps=5,
    first_timestamp=6,
    timestamp_step=0.02,
    max_initial_timestamp=1.0,
    languages={"en": 7},
    transcribe=8,
    translate=9,
)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Return the manifest of an encoder-decoder whose encode graph reads features."""
    folder = tmp_path_factory.mktemp("bundle")
    manifest = open_manifest(tiny_bundle("vision-transformer", folder, Precision.FP32))
    graphs = {
        name: replace(
            graph,
            inputs=tuple(
                TensorSpec(FEATURES, "float32", ("batch", 8, 52)) if spec.name == "pixels" else spec
                for spec in graph.inputs
            ),
        )
        for name, graph in manifest.graphs.items()
    }
    return replace(manifest, task=Task.TRANSCRIBE, picture=None, audio=SPEC, graphs=graphs)


def test_a_bundle_that_reads_sound(manifest: Manifest, tmp_path: Path) -> None:
    assert [*manifest_problems(manifest)] == []
    write_manifest(tmp_path, manifest)
    assert open_manifest(tmp_path).audio == SPEC
    assert (SPEC.window_samples, SPEC.window_seconds) == (8_320, 0.52)


def test_other_bundles_do_not_mention_sound(manifest: Manifest, tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(manifest, audio=None))
    assert '"audio"' not in (tmp_path / "bundle.json").read_text()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_mels": 80}, "graphs.encode.inputs: features is missing or not float32"),
        ({"num_frames": 3000}, "graphs.encode.inputs: features is missing or not float32"),
        ({"hop": 0}, "audio.hop: 0 is not positive"),
        ({"timestamp_step": float("nan")}, "audio.timestamp_step: nan is not positive"),
        ({"max_initial_timestamp": -1.0}, "audio.max_initial_timestamp: -1.0 is no time"),
        ({"previous": 10**6}, "audio.previous: id 1000000 is outside the vocabulary of"),
        ({"translate": -1}, "audio.translate: id -1 is outside the vocabulary of"),
        ({"languages": {"fr": 10**6}}, "audio.languages.fr: id 1000000 is outside"),
        ({"languages": {}}, "audio.transcribe, audio.translate: must not be there without"),
    ],
)
def test_what_does_not_fit(manifest: Manifest, changes: dict[str, Any], problem: str) -> None:
    assert manifest.audio is not None
    wrong = replace(manifest, audio=replace(manifest.audio, **changes))
    assert any(line.startswith(problem) for line in manifest_problems(wrong))


def test_a_window_has_a_number_of_positions(manifest: Manifest) -> None:
    for number, problem in ((None, "missing for task transcribe"), (0, "0 is not positive")):
        limits = replace(manifest.limits, max_source_tokens=number)
        actual = [*manifest_problems(replace(manifest, limits=limits))]
        assert f"limits.max_source_tokens: {problem}" in actual


def test_task_and_features_need_audio(manifest: Manifest) -> None:
    without = replace(manifest, audio=None)
    assert "audio: missing, graphs.encode reads features" in [*manifest_problems(without)]
    of_text = replace(
        manifest, task=Task.TRANSLATE, source_languages=("en",), target_languages=("fr",)
    )
    assert "audio: must not be there for task translate" in [*manifest_problems(of_text)]
