"""`attendant bench` on tiny bundles."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from serving.bench import bench
from serving.bundle.manifest import Precision
from tests.tiny import tiny_bundle


@pytest.mark.parametrize("family", ["transformer", "bahdanau", "llama"])
def test_measures_a_bundle_of_any_family(family: str, tmp_path: Path) -> None:
    bundle = tiny_bundle(family, tmp_path, Precision.INT8)
    options = ["--batch", "1,3", "--threads", "1", "--max-new-tokens", "5", "--json"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["precision"], report["threads"], report["device"]) == ("int8", 1, "cpu")
    assert [each["batch"] for each in report["results"]] == [1, 3]
    for each in report["results"]:
        assert each["requests"] == 32
        assert 0 < each["generated_tokens"] <= 5 * each["requests"]
        assert 0 < each["mean_rows"] <= each["batch"]
        assert 0 < each["host_ms"]["p50"] <= each["step_ms"]["p50"] <= each["step_ms"]["p99"]
        assert set(each["phase_seconds"]) >= {"decode"}


def test_reads_sentences_from_a_file_and_prints_a_line_for_each_batch_size(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    (tmp_path / "in.txt").write_text("Bonjour.\n\nÇa va ?\n" + "x" * 5000 + "\n", encoding="utf-8")
    options = ["--input", str(tmp_path / "in.txt"), "--batch", "2", "--requests", "3"]
    options += ["--threads", "1", "--temperature", "1", "--max-new-tokens", "3"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("batch   2:")
    assert result.output.rstrip().endswith("3 requests")


@pytest.mark.parametrize("wrong", [["--batch", "0"], ["--batch", "1,,2"], ["--input", "/dev/null"]])
def test_refuses_what_makes_no_sense(wrong: list[str], tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32)
    result = CliRunner().invoke(bench, [str(bundle), *wrong])
    assert result.exit_code == 2
    assert wrong[0] in result.output
