"""`attendant bench` on tiny bundles."""

import json
from pathlib import Path
from statistics import median

import pytest
from click.testing import CliRunner

from serving.bench.command import COMPARED, OF_ONE_SIZE, bench
from serving.bench.comparisons import COMPARISONS
from serving.bundle.manifest import Precision
from tests.tiny import tiny_bundle

SAMPLED = ["--temperature", "1", "--top-k", "50", "--top-p", "0.9", "--min-p", "0.01"]
SAMPLED += ["--typical-p", "0.95", "--epsilon-cutoff", "0.0001", "--eta-cutoff", "0.0003"]
PENALISED = ["--repetition-penalty", "1.2", "--no-repeat-ngram-size", "2", "--min-tokens", "3"]


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


@pytest.mark.parametrize(
    "search",
    [["--beam", "3", "--length-penalty", "0.6", "--early-stopping", "true"], SAMPLED, PENALISED],
)
def test_measures_any_search(search: list[str], tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    options = ["--batch", "2", "--requests", "4", "--max-new-tokens", "5", "--threads", "1"]
    result = CliRunner().invoke(bench, [str(bundle), *options, *search, "--json"])
    assert result.exit_code == 0, result.output
    [measured] = json.loads(result.output)["results"]
    assert measured["requests"] == 4
    num_rows = 6 if "--beam" in search else 2
    assert num_rows / 2 < measured["mean_rows"] <= num_rows


COMPARED_NUMBERS = {
    "beam": ("beam_seconds", "greedy_seconds"),
    "sampling": ("greedy_seconds", "sampling_seconds"),
    "graph": ("graph_seconds", "decoding_seconds"),
    "prefix": ("hit_seconds", "miss_seconds"),
}


@pytest.mark.parametrize("what", COMPARED)
def test_compares_within_one_run(what: str, tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32)
    options = ["--compare", what, "--repetitions", "2", "--beam", "2", "--threads", "1", "--json"]
    options += [] if what in OF_ONE_SIZE else ["--batch", "6"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["compare"] == what
    [found] = report["results"]
    repetitions = found["repetitions"]
    assert len(repetitions) == 2
    assert found["median"] == median(each["value"] for each in repetitions)
    for each in repetitions:
        assert min(each.values()) > 0
        if what in COMPARED_NUMBERS:
            over, under = COMPARED_NUMBERS[what]
            assert each["value"] == pytest.approx(each[over] / each[under])


def test_a_cancelled_request_leaves_its_rows_to_the_next_step(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    options = ["--compare", "cancel", "--repetitions", "1", "--threads", "1"]
    result = CliRunner().invoke(bench, [str(bundle), *options])
    assert result.output.endswith(": 1.000 (1.000 to 1.000 in 1 repetitions)\n")


def test_says_what_it_compares_and_with_what(tmp_path: Path) -> None:
    bundle = tiny_bundle("bahdanau", tmp_path, Precision.FP32)
    options = ["--compare", "sampling", "--min-p", "0.1", "--batch", "2,3", "--repetitions", "1"]
    result = CliRunner().invoke(bench, [str(bundle), *options, "--threads", "1"])
    lines = result.output.splitlines()
    assert lines[0].startswith("tokens/s, sampling (min_p 0.1) over greedy, batch 2: ")
    assert lines[1].startswith("tokens/s, sampling (min_p 0.1) over greedy, batch 3: ")


def test_compares_what_can_be_asked_for() -> None:
    assert tuple(COMPARISONS) == COMPARED


@pytest.mark.parametrize(
    "wrong",
    [
        ["--batch", "0"],
        ["--batch", "1,,2"],
        ["--input", "/dev/null"],
        ["--beam", "17"],
        ["--batch", "4", "--compare", "cancel"],
        ["--requests", "4", "--compare", "beam"],
    ],
)
def test_refuses_what_makes_no_sense(wrong: list[str], tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.FP32)
    result = CliRunner().invoke(bench, [str(bundle), *wrong])
    assert result.exit_code == 2
    assert wrong[0] in result.output
