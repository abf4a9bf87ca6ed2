"""What a manifest says of pictures must fit its encode graph."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import Manifest, PictureSpec, Precision, Task
from serving.bundle.opening import open_bundle, open_manifest
from serving.bundle.validation import manifest_problems
from tests.tiny import tiny_bundle


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("bundle")
    return open_manifest(tiny_bundle("vision-transformer", folder, Precision.FP32))


def test_a_bundle_that_reads_pictures(manifest: Manifest) -> None:
    assert manifest.task is Task.GENERATE
    assert manifest.picture == PictureSpec(30, 30, "bilinear", num_class_tokens=1)
    assert manifest.limits.max_source_tokens == 26
    assert [*manifest_problems(manifest)] == []


def test_other_bundles_do_not_mention_pictures(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("transformer", tmp_path, Precision.FP32))
    assert '"picture"' not in (bundle.folder / "bundle.json").read_text()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"size": 32, "resized": 32}, "graphs.encode.inputs: pixels is missing or not uint8"),
        ({"resized": 20}, "picture.resized: 20 is less than picture.size 30"),
        ({"resample": "best"}, "picture.resample: 'best' is not one of nearest"),
        ({"num_class_tokens": 2}, "picture.num_class_tokens: the other positions"),
    ],
)
def test_what_does_not_fit(manifest: Manifest, changes: dict[str, Any], problem: str) -> None:
    assert manifest.picture is not None
    wrong = replace(manifest, picture=replace(manifest.picture, **changes))
    assert any(each.startswith(problem) for each in manifest_problems(wrong))


def test_pixels_need_a_picture(manifest: Manifest) -> None:
    actual = [*manifest_problems(replace(manifest, picture=None))]
    assert "picture: missing, graphs.encode reads pixels" in actual
