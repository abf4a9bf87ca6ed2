"""`attendant export`: a whole bundle or none, all problems at once, an honest model card."""

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from export.cli import export
from serving.bundle.opening import open_bundle
from serving.pipelines.cards import ModelCard
from tests.tiny import tiny_checkpoint

PAIRS = "tatoeba\tGo!\tVa !\ntatoeba\tHi.\tSalut.\nmulti30k\tA man.\tUn homme.\n"
PROSE = "\n".join(
    f"It was the {n}th of many days, and nothing had happened yet. " * 12 for n in "345"
)


def run(*args: object) -> Result:
    return CliRunner().invoke(export, [str(arg) for arg in args])


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_bundle_holds_everything_it_needs(tmp_path: Path, precision: str) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "mine")
    (checkpoint.folder / "README.md").write_text("# Mine\n\nLicence: CC0.\n")
    (checkpoint.folder / "quality.json").write_text('{"bleu": 12.5}')
    result = run(checkpoint.folder, "-o", tmp_path / "out", "--precision", precision, "--no-verify")
    assert result.exit_code == 0, result.output
    bundle = open_bundle(tmp_path / "out")
    assert bundle.manifest.name == "mine"
    assert bundle.manifest.precision == precision
    assert bundle.manifest.quality == {"bleu": 12.5}
    assert bundle.tokenizer_path.read_text() == checkpoint.tokenizer
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("# Mine\n\nLicence: CC0.")
    assert "Not compared with the torch model." in card
    assert "not compared with torch (--verify does it here" in result.stderr
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_language_model_may_have_its_keys_and_values_in_fp16(
    tmp_path: Path, precision: str
) -> None:
    checkpoint = tiny_checkpoint("llama", tmp_path / "mine")
    options = ("--precision", precision, "--kv-cache", "fp16")
    result = run(checkpoint.folder, "-o", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    states = open_bundle(tmp_path / "out").manifest.states
    assert states and {state.dtype for state in states} == {"float16"}


def test_a_cache_of_fp16_is_refused_where_there_is_none(tmp_path: Path) -> None:
    for architecture, precision, text in (
        ("transformer", "int8", "--kv-cache fp16 is for language models that attend"),
        ("llama", "bf16", "--kv-cache is for CPUs"),
    ):
        checkpoint = tiny_checkpoint(architecture, tmp_path / architecture)
        options = ("--precision", precision, "--kv-cache", "fp16")
        result = run(checkpoint.folder, "-o", tmp_path / "out", *options)
        assert result.exit_code == 2 and text in result.stderr
        assert not (tmp_path / "out").exists()


def test_a_shipped_checkpoint_says_how_it_compared(tmp_path: Path) -> None:
    """Of its precision alone; an export that compares by itself says what it found."""
    random_ids = {"largest": 0.5, "mean": 0.25, "num_positions": 7}
    record = {
        "command": "attendant export --precision PRECISION",
        "int8": {"random_ids": random_ids},
    }
    checkpoint = tiny_checkpoint("transformer", tmp_path / "mine")
    (checkpoint.folder / "quality.json").write_text(json.dumps({"parity": record}))

    def card(precision: str, comparison: str) -> str:
        options = ("--precision", precision, comparison)
        result = run(checkpoint.folder, "-o", tmp_path / "out", *options)
        assert result.exit_code == 0, result.output
        said = "when it was shipped: log-probabilities differ by 0.25 on average"
        assert (said in result.stderr) == (precision == "int8" and comparison == "--no-verify")
        return (tmp_path / "out" / "README.md").read_text()

    recorded = card("int8", "--no-verify")
    assert "(`attendant export --precision int8`)" in recorded
    assert "- log-probabilities on random ids: largest 0.5, mean 0.25 (7 positions)" in recorded
    assert open_bundle(tmp_path / "out").manifest.quality == {}
    assert "shipped" not in card("fp32", "--no-verify")
    assert "shipped" not in card("int8", "--verify")
    assert open_bundle(tmp_path / "out").manifest.quality["parity"]["random_ids"] != random_ids


@pytest.mark.parametrize(("asked", "split_tokens"), [([], 20), (["--split-tokens", "30"], 30)])
def test_a_bundle_says_where_sentences_are_cut(
    tmp_path: Path, asked: list[str], split_tokens: int
) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "mine")
    config = json.loads((checkpoint.folder / "config.json").read_text())
    (checkpoint.folder / "config.json").write_text(json.dumps(config | {"split_tokens": 20}))
    result = run(checkpoint.folder, "-o", tmp_path / "out", *asked, "--no-verify")
    assert result.exit_code == 0, result.output
    assert open_bundle(tmp_path / "out").manifest.limits.split_tokens == split_tokens


def test_a_bundle_says_which_domain_a_model_was_trained_on(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("transformer", tmp_path / "mine")
    config = json.loads((checkpoint.folder / "config.json").read_text())
    (checkpoint.folder / "config.json").write_text(json.dumps(config | {"domain": "captions"}))
    result = run(checkpoint.folder, "-o", tmp_path / "out", "--no-verify")
    assert result.exit_code == 0, result.output
    bundle = open_bundle(tmp_path / "out")
    assert ModelCard.from_manifest(bundle.manifest).domain == "captions"


def test_a_language_model_cuts_no_sentences(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("llama", tmp_path / "mine")
    result = run(checkpoint.folder, "-o", tmp_path / "out", "--split-tokens", "30", "--no-verify")
    assert result.exit_code == 2
    assert "split_tokens is of translators with an encoder alone" in result.output


WITHOUT_ONNX_RUNTIME = """
import sys
sys.modules["onnxruntime"] = None
from serving.cli import main
main()
"""


@pytest.mark.parametrize(("precision", "is_possible"), [("fp32", True), ("int8", False)])
def test_only_int8_of_language_models_needs_onnx_runtime(
    tmp_path: Path, precision: str, is_possible: bool
) -> None:
    source = tiny_checkpoint("llama", tmp_path / "mine").folder
    arguments = ["export", str(source), "-o", str(tmp_path / "out"), "--precision", precision]
    command = [sys.executable, "-c", WITHOUT_ONNX_RUNTIME, *arguments, "--no-verify"]
    actual = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (actual.returncode == 0) == is_possible, actual.stderr
    assert (tmp_path / "out").exists() == is_possible
    assert is_possible or "this needs onnxruntime, which is not installed" in actual.stderr
    assert leftovers(tmp_path) == []


def test_all_problems_of_a_checkpoint_are_told_at_once(tmp_path: Path) -> None:
    folder = tiny_checkpoint("bahdanau", tmp_path / "mine").folder
    weights = load_file(folder / "model.safetensors")
    del weights["initial.bias"]
    weights["attention.key.weight"] = weights["attention.key.weight"][:, :5].copy()
    weights["output_bias"][7] = np.nan
    weights["extra"] = np.zeros(3, np.float32)
    save_file(weights, folder / "model.safetensors")
    result = run(folder, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    for problem in (
        "initial.bias: missing",
        "attention.key.weight: has shape [40, 5], expected [40, 64]",
        "output_bias: holds values that are not finite",
        "extra: not expected",
    ):
        assert problem in result.output
    assert not (tmp_path / "out").exists() and leftovers(tmp_path) == []


def test_more_problems_than_anyone_would_read_are_counted(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path / "mine").folder
    weights = load_file(folder / "model.safetensors")
    more = {f"extra.{i}": np.zeros(1, np.float32) for i in range(300)}
    save_file(weights | more, folder / "model.safetensors")
    result = run(folder, "-o", tmp_path / "out")
    assert result.exit_code == 2 and "  and 100 more" in result.output.splitlines()


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / "empty", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "is none of the known formats" in result.output
    assert run(tmp_path / "nowhere", "-o", tmp_path / "out").exit_code == 2


def test_languages_are_given_where_the_model_does_not_say(tmp_path: Path) -> None:
    unknown: dict[str, Any] = {"source_languages": ["und"], "target_languages": ["und"]}
    folder = tiny_checkpoint("transformer", tmp_path / "mine", **unknown).folder
    options = ("-o", tmp_path / "out", "--no-verify", "--source-language", "is")
    assert run(folder, *options, "--target-language", "fo").exit_code == 0
    manifest = open_bundle(tmp_path / "out").manifest
    assert (manifest.source_languages, manifest.target_languages) == (("is",), ("fo",))
    known = tiny_checkpoint("transformer", tmp_path / "known").folder
    result = run(known, *options)
    assert result.exit_code == 2
    assert "source languages are en: they cannot be changed" in result.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_export_that_is_ended_leaves_nothing(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_checkpoint("llama", tmp_path / "mine").folder
    monkeypatch.setattr(
        "export.bundling.writer.write_manifest", lambda *_: os.kill(os.getpid(), number)
    )
    assert run(folder, "-o", tmp_path / "out", "--no-verify").exit_code != 0
    assert not (tmp_path / "out").exists() and leftovers(tmp_path) == []


def test_a_bug_ends_with_a_traceback_that_asks_for_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ValueError of ours is not shown as if the user's file were wrong."""
    folder = tiny_checkpoint("llama", tmp_path / "mine").folder

    def fail(*_: object) -> None:
        np.zeros(3).reshape(2, 2)

    monkeypatch.setattr("export.bundling.writer.write_manifest", fail)
    result = run(folder, "-o", tmp_path / "out", "--no-verify")
    assert isinstance(result.exception, ValueError) and result.exit_code == 1
    *_, last = traceback.format_exception(result.exception)
    assert "bug of Attendant" in last and "cannot reshape" not in result.output
    assert not (tmp_path / "out").exists() and leftovers(tmp_path) == []


def test_only_a_bundle_is_replaced(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path / "mine").folder
    precious = tmp_path / "out" / "thesis.tex"
    precious.parent.mkdir()
    precious.write_text("years of work")
    result = run(folder, "-o", tmp_path / "out", "--no-verify")
    assert result.exit_code == 2 and "is no bundle; it is left alone" in result.output
    assert precious.read_text() == "years of work"
    for name in ("first", "second"):
        done = run(folder, "-o", tmp_path / "bundle", "--no-verify", "--name", name)
        assert done.exit_code == 0, done.output
    assert open_bundle(tmp_path / "bundle").manifest.name == "second"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("architecture", "text"), [("bahdanau", PAIRS), ("llama", PROSE)])
def test_the_card_reports_the_comparison_with_torch(
    tmp_path: Path, architecture: str, text: str
) -> None:
    folder = tiny_checkpoint(architecture, tmp_path / "mine").folder
    test_file = tmp_path / "test.txt"
    test_file.write_text(text)
    result = run(folder, "-o", tmp_path / "out", "--test", test_file, "--texts", 3)
    assert result.exit_code == 0, result.output
    parity = json.loads((tmp_path / "out" / "bundle.json").read_text())["quality"]["parity"]
    assert parity["random_ids"]["largest"] < 2e-5 and parity["test_text"]["largest"] < 2e-5
    assert parity["agreement"]["num_identical"] == parity["agreement"]["num_texts"] == 3
    card = (tmp_path / "out" / "README.md").read_text()
    assert "3 of 3 texts identical" in card
    assert "| BLEU tatoeba |" in card if architecture == "bahdanau" else "| perplexity |" in card


def test_an_empty_test_file_leaves_no_bundle(tmp_path: Path) -> None:
    folder = tiny_checkpoint("transformer", tmp_path / "mine").folder
    (tmp_path / "test.tsv").write_text("")
    result = run(folder, "-o", tmp_path / "out", "--test", tmp_path / "test.tsv")
    assert result.exit_code == 2 and "holds no text to compare on" in result.output
    assert not (tmp_path / "out").exists() and leftovers(tmp_path) == []
