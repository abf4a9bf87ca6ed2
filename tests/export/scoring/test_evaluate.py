"""`attendant evaluate` scores checkpoints and bundles alike."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from export.bundling.writer import export_checkpoint
from export.scoring.commands import evaluate
from export.scoring.scorers import translator
from models.checkpoint import load_checkpoint, write_words
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
    assert translator(bundle, num_beams, protects=True)(LINES) == told.stdout.split("\n")[:-1]


@pytest.mark.parametrize("num_beams", [None, 3])
def test_a_checkpoint_is_asked_sentence_by_sentence_too(
    num_beams: int | None, tmp_path: Path
) -> None:
    checkpoint = tiny_checkpoint("bahdanau", tmp_path / "checkpoint", seed=3)
    bundle = tiny_bundle("bahdanau", tmp_path / "bundle", Precision.FP32, seed=3)
    expected = translator(bundle, num_beams)(LINES)
    assert translator(checkpoint.folder, num_beams)(LINES) == expected


def test_addresses_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    bundle = tiny_bundle("bahdanau", tmp_path / "bundle", Precision.FP32, seed=2)
    (tmp_path / "test.tsv").write_text("web\tSee www.example.org\tVoir www.example.org\n")
    test = ["--test", str(tmp_path / "test.tsv"), "--json"]
    for options, kept in (([], 0.0), (["--protect"], 100.0)):
        result = CliRunner().invoke(evaluate, [str(bundle), *test, *options])
        assert json.loads(result.stdout)["scores"][0]["kept"] == kept


def test_names_that_a_model_does_not_know_reach_its_translations(tmp_path: Path) -> None:
    """From the words beside a checkpoint to what its bundle says."""
    checkpoint = tiny_checkpoint("bahdanau", tmp_path / "checkpoint", seed=3).folder
    write_words(checkpoint, b"i\nmet\nann\n")
    bundle = tmp_path / "bundle"
    export_checkpoint(load_checkpoint(checkpoint), bundle, Precision.FP32)
    [said] = translator(bundle, protects=True)(["I met Ann Okafor."])
    assert "Okafor" in said and "Ann" not in said
    [alone] = translator(bundle)(["I met Ann Okafor."])
    assert "Okafor" not in alone


def test_a_checkpoint_cannot_protect(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("bahdanau", tmp_path / "checkpoint", seed=3).folder
    (tmp_path / "test.tsv").write_text("web\ta\tb\n")
    arguments = [str(checkpoint), "--test", str(tmp_path / "test.tsv"), "--protect"]
    result = CliRunner().invoke(evaluate, arguments)
    assert result.exit_code == 2 and "only bundles are served" in result.stderr


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


def test_several_test_sets_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "more.tsv").write_text("numbers\tTake 5.\tPrenez 5.\n")
    bundle = tiny_bundle("transformer", tmp_path, Precision.INT8)
    result = run(bundle, tmp_path, "--test", str(tmp_path / "more.tsv"), "--json")
    assert result.exit_code == 0, result.output
    origins = {s["origin"] for s in json.loads(result.stdout)["scores"]}
    assert origins == {"web", "book", "numbers"}


def test_a_model_is_scored_beside_another(tmp_path: Path) -> None:
    int8 = tiny_bundle("bahdanau", tmp_path, Precision.INT8, seed=3)
    fp32 = tiny_bundle("bahdanau", tmp_path, Precision.FP32, seed=3)
    table = run(int8, tmp_path, "--against", str(fp32)).stdout
    assert "| kept | BLEU bahdanau-fp32 | difference |" in table
    report = json.loads(run(int8, tmp_path, "--against", str(fp32), "--json").stdout)
    assert report["against"]["bahdanau-fp32"] == json.loads(run(fp32, tmp_path, "--json").stdout)


PROSE = "It was a dark and stormy night; the rain fell in torrents. " * 12


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "ngram-lm", "key-value-lm"])
def test_prose_is_as_likely_to_a_bundle_as_to_its_checkpoint(
    architecture: str, tmp_path: Path
) -> None:
    (tmp_path / "prose.txt").write_text(f"{PROSE}\n{PROSE[7:]}\n")
    checkpoint = tiny_checkpoint(architecture, tmp_path / "checkpoint", seed=3)
    bundle = tiny_bundle(architecture, tmp_path, Precision.FP32, seed=3)
    words = ["--against", str(checkpoint.folder), "--test", str(tmp_path / "prose.txt")]
    result = CliRunner().invoke(evaluate, [str(bundle), *words, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    theirs = report.pop("against")["checkpoint"]
    assert report["bits_per_byte"] == pytest.approx(theirs["bits_per_byte"], abs=2e-4)
    assert (report["window"], report["stride"]) == (64, 32)
    assert report["documents"] == 2
    assert report["tokens"] == report["bytes"] + 2 == theirs["tokens"]
    table = CliRunner().invoke(evaluate, [str(bundle), *words]).stdout
    assert f"| {bundle.name} | {report['bits_per_byte']:.3f} |" in table
    assert "windows of 64 tokens that advance by 32." in table


def test_a_recipe_says_what_prose_it_holds_out(tmp_path: Path) -> None:
    bundle = tiny_bundle("llama", tmp_path, Precision.INT8)
    (tmp_path / "data").mkdir()
    lines = [f"{number} {PROSE}" for number in range(10)]
    (tmp_path / "data" / "books.txt").write_text("\n".join(lines))
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'name = "mine"\n[model]\narchitecture = "llama"\nvocab_size = 300\n'
        '[data]\ntrain = ["books.txt"]\nheld_out = 0.3\n'
    )
    words = ["--held-out", str(recipe), "--data", str(tmp_path / "data"), "--json"]
    result = CliRunner().invoke(evaluate, [str(bundle), *words])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["documents"] == 3


@pytest.mark.parametrize(
    ("architecture", "words", "said"),
    [
        ("llama", [], "there is no prose to score"),
        ("llama", ["--beam", "2"], "there is no --beam"),
        ("transformer", ["--held-out", __file__], "--test, sentences and references"),
    ],
)
def test_what_does_not_go_together_is_said(
    architecture: str, words: list[str], said: str, tmp_path: Path
) -> None:
    result = run(tiny_bundle(architecture, tmp_path, Precision.INT8), tmp_path, *words)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "there is no line to score"),
        (b"a\tb\n\xff\tc\n", "test.tsv is not UTF-8: invalid start byte at byte 4"),
    ],
)
def test_files_that_hold_no_sentences_are_named(content: bytes, said: str, tmp_path: Path) -> None:
    model, test = tiny_checkpoint("bahdanau", tmp_path / "model").folder, tmp_path / "test.tsv"
    test.write_bytes(content)
    result = CliRunner().invoke(evaluate, [str(model), "--test", str(test)])
    assert result.exit_code == 2
    assert "test.tsv" in result.output and said in result.output


def test_a_translator_is_not_scored_beside_a_language_model(tmp_path: Path) -> None:
    llama = tiny_bundle("llama", tmp_path, Precision.INT8)
    other = tiny_bundle("transformer", tmp_path, Precision.INT8)
    result = run(llama, tmp_path, "--against", str(other))
    assert result.exit_code == 2 and "translates" in result.output


def test_a_damaged_bundle_is_refused(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path / "bundle", Precision.INT8)
    (bundle / "step.onnx").write_bytes(b"")
    result = run(bundle, tmp_path)
    assert result.exit_code == 2
    assert "step.onnx" in result.output
    assert "Traceback" not in result.output


def test_labels_of_a_bundle_and_of_its_checkpoint_are_the_same(tmp_path: Path) -> None:
    options: dict[str, Any] = {"head": {"kind": "labels", "labels": ["book", "web"]}}
    checkpoint = tiny_checkpoint("self-attentive", tmp_path / "checkpoint", **options)
    bundle = tiny_bundle("self-attentive", tmp_path / "bundle", Precision.FP32, **options)
    reports = [
        json.loads(run(model, tmp_path, "--json").stdout) for model in (checkpoint.folder, bundle)
    ]
    assert reports[0] == reports[1]
    assert {each["label"]: each["texts"] for each in reports[0]["labels"]} == {"book": 1, "web": 2}
    assert "of the texts get their label" in run(bundle, tmp_path).stdout
    said = run(bundle, tmp_path, "--against", str(checkpoint.folder)).stdout
    assert f"checkpoint: {reports[0]['accuracy']:.1%}" in said


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "models that embed texts, label tokens or fill masks have no score here"),
        ({"head": {"kind": "labels", "labels": ["web"]}}, "texts are from book, of which"),
    ],
)
def test_what_cannot_be_scored_of_an_encoder_is_said(
    options: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    model = tiny_checkpoint("transformer-encoder", tmp_path / "model", **options).folder
    said = run(model, tmp_path)
    assert said.exit_code == 2 and problem in said.stderr
