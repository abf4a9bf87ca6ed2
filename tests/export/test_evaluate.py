"""`attendant evaluate` scores checkpoints and bundles alike."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from export.evaluate import evaluate
from export.translators import translator
from serving.bundle.manifest import Precision
from serving.commands.translate import translate
from tests.serving.imported import imported_bundle
from tests.tiny import tiny_bundle, tiny_checkpoint


def run(model: Path, folder: Path, *more: str) -> Result:
    test = folder / "test.tsv"
    test.write_text("web\ta cat\tun chat\nweb\ta dog\tun chien\nbook\tyes\toui\n")
    return CliRunner().invoke(evaluate, [str(model), "--test", str(test), *more])


def test_a_bundle_and_its_checkpoint_score_alike(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("bahdanau", tmp_path / "checkpoint", seed=3)
    bundle = tiny_bundle("bahdanau", tmp_path / "bundle", Precision.FP32, seed=3)
    reports = [
        json.loads(run(model, tmp_path, "--json").stdout) for model in (checkpoint.folder, bundle)
    ]
    assert reports[0] == reports[1]
    counts = {s["origin"]: s["sentences"] for s in reports[0]["scores"]}
    assert counts == {"web": 2, "book": 1}


def test_beams_of_a_bundle_and_of_its_checkpoint_say_the_same(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("bahdanau", tmp_path / "checkpoint", seed=3)
    bundle = tiny_bundle("bahdanau", tmp_path / "bundle", Precision.FP32, seed=3)
    texts = ["a cat", "a dog", "yes"]
    beams = translator(bundle, 3)(texts)
    assert beams == translator(checkpoint.folder, 3)(texts)
    assert beams != translator(bundle)(texts)


LINES = [
    "A cat sits here. Two dogs run! Who runs?",
    "one, " * 60 + "end",
    "",
    "  Dr. Smith left. ",
]


@pytest.mark.parametrize("num_beams", [None, 3])
@pytest.mark.parametrize("recommended", [{}, {"num_beams": 2, "max_new_tokens": 9}])
def test_lines_are_scored_as_they_are_translated(
    num_beams: int | None, recommended: dict[str, Any], tmp_path: Path
) -> None:
    """Sentence by sentence, and as the bundle's makers recommend."""
    bundle = imported_bundle("bahdanau", tmp_path, {"generation": recommended})
    options = ["--model", str(bundle), *(["--beam", str(num_beams)] if num_beams else [])]
    told = CliRunner().invoke(translate, options, input="".join(f"{line}\n" for line in LINES))
    assert told.exit_code == 0, told.output
    assert translator(bundle, num_beams)(LINES) == told.stdout.split("\n")[:-1]


@pytest.mark.parametrize("num_beams", [None, 3])
def test_a_checkpoint_is_asked_sentence_by_sentence_too(
    num_beams: int | None, tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("bahdanau", tmp_path / "checkpoint", seed=3)
    bundle = tiny_bundle("bahdanau", tmp_path / "bundle", Precision.FP32, seed=3)
    expected = translator(bundle, num_beams)(LINES)
    assert translator(checkpoint.folder, num_beams)(LINES) == expected


def test_two_files_side_by_side_are_a_test_set(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.INT8)
    (tmp_path / "test.en").write_text("a cat\na dog\n")
    (tmp_path / "test.fr").write_text("un chat\nun chien\n")
    arguments = [str(bundle), "--test", str(tmp_path / "test.{en,fr}"), "--beam", "2", "--json"]
    result = CliRunner().invoke(evaluate, arguments)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["scores"][0]["sentences"] == 2


def test_a_missing_test_file_is_one_line(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path / "bundle", Precision.INT8)
    missing = str(tmp_path / "test.{en,fr}.gz")
    result = CliRunner().invoke(evaluate, [str(bundle), "--test", missing])
    assert result.exit_code == 2
    assert "test.en.gz" in result.output and "Traceback" not in result.output


def test_the_report_is_a_table_with_signatures(tmp_path: Path) -> None:
    result = run(tiny_bundle("transformer", tmp_path, Precision.INT8), tmp_path)
    assert result.exit_code == 0, result.output
    assert "| web | 2 |" in result.output
    assert "nrefs:1" in result.output


@pytest.mark.parametrize("content", ["one field only\n", "a\tb\tc\td\n"])
def test_a_bad_test_file_is_one_line(tmp_path: Path, content: str) -> None:
    bundle = tiny_bundle("transformer", tmp_path / "bundle", Precision.INT8)
    (tmp_path / "bad.tsv").write_text(content)
    result = CliRunner().invoke(evaluate, [str(bundle), "--test", str(tmp_path / "bad.tsv")])
    assert result.exit_code == 2
    assert "bad.tsv:1" in result.output


def test_a_language_model_is_refused(tmp_path: Path) -> None:
    result = run(tiny_bundle("llama", tmp_path, Precision.INT8), tmp_path)
    assert result.exit_code == 2
    assert "generate" in result.output


def test_a_damaged_bundle_is_refused(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path / "bundle", Precision.INT8)
    (bundle / "step.onnx").write_bytes(b"")
    result = run(bundle, tmp_path)
    assert result.exit_code == 2
    assert "step.onnx" in result.output
    assert "Traceback" not in result.output
