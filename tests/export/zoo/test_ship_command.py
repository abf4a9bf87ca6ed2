"""`attendant lab ship`: a small folder that says how good it is, by what is served of it."""

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from click.testing import CliRunner, Result

from export.bundling.writer import export_checkpoint
from export.zoo.commands import ship
from export.zoo.shipping import complete_card
from models.checkpoint import load_checkpoint, save_checkpoint, write_words
from models.safetensors import Storage
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.tiny import tiny_checkpoint

CARD = """# Mine

0.1 M parameters, stored in fp16: d_model 32.

## Data

Books.

## Quality

| source | BLEU |

## Licence

Free.
"""
RECIPE = '[model]\narchitecture = "{}"\nvocab_size = 300\n[data]\ntrain = ["train.txt"]\n{}\n'
PROSE = "It was a dark and stormy night; the rain fell in torrents. " * 12


def write_world(folder: Path, architecture: str) -> Path:
    """A trained checkpoint, its recipe, data and sets."""
    longer = {"max_target_tokens": 128} if architecture == "transformer" else {}
    tiny_checkpoint(architecture, folder / "trained", seed=4, **longer)
    (folder / "trained" / "README.md").write_text(CARD)
    (folder / "trained" / "curve.png").write_bytes(b"a curve")
    write_words(folder / "trained", b"take\n")
    tests = 'dev = "dev.tsv"\ntest = "test.tsv"'
    more = "held_out = 0.3" if architecture == "llama" else tests
    text = f'name = "mine"\n{RECIPE.format(architecture, more)}'
    (folder / "mine.toml").write_text(text)
    (folder / "train.txt").write_text("\n".join(f"{i} {PROSE}" for i in range(9)))
    (folder / "test.tsv").write_text("web\ta cat\tun chat\nweb\ta dog\tun chien\n" * 100)
    (folder / "dev.tsv").write_text("web\ta cat\tun chat\nweb\tno dog\tpas un chien\n")
    (folder / "sets" / "made").mkdir(parents=True)
    (folder / "sets/made/numbers.tsv").write_text("numbers\tTake 5,000 mg.\tPrenez 5 000 mg.\n")
    (folder / "sets/everyday.tsv").write_text("greeting\tHello\tBonjour\n")
    (folder / "sets/everyday-facts.txt").write_text("bonjour,salut\n")
    return folder


def run(folder: Path, weights: str = "int8", output: str = "shipped") -> Result:
    places = {"-o": output, "--recipe": "mine.toml", "--data": "", "--sets": "sets"}
    options = [word for key, value in places.items() for word in (key, str(folder / value))]
    return CliRunner().invoke(ship, [str(folder / "trained"), *options, "--weights", weights])


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_world(tmp_path_factory.mktemp("ship"), "transformer")
    result = run(folder)
    assert result.exit_code == 0, result.output
    assert "| web | 200 |" in result.stdout
    return folder / "shipped"


def test_translations_of_all_sets_are_in_the_card(shipped: Path) -> None:
    card, quality = (
        (shipped / "README.md").read_text(),
        json.loads((shipped / "quality.json").read_text()),
    )
    assert {score["origin"] for score in quality["scores"]} == {"web", "numbers"}
    assert len(quality["fp32"]) == len(quality["as trained"]) == 2
    assert {score["origin"] for score in quality["without protection"]} == {"web", "numbers"}
    kept = {
        name: next(score["kept"] for score in scores if score["origin"] == "numbers")
        for name, scores in quality.items()
        if name in ("scores", "without protection")
    }
    assert kept == {"scores": 100.0, "without protection": 0.0}
    assert "calibration" not in quality, "a random model's likelier translations are no better"
    assert "everyday" not in quality, "its sentences were known before"
    assert "| kept | BLEU fp32 | difference | BLEU as trained | difference |" in card
    assert "| greeting | Hello |" in card
    assert quality["bleu_signature"] in card
    assert "--weights int8" in card
    largest = {name: quality["parity"][name]["random_ids"]["largest"] for name in ("fp32", "int8")}
    assert 0 < largest["fp32"] < 1e-4 < largest["int8"]


def test_the_rest_of_the_card_and_the_curve_are_kept(shipped: Path) -> None:
    card = (shipped / "README.md").read_text()
    assert "stored in int8: d_model 32." in card
    assert "| source | BLEU |" not in card
    for section in ("## Data\n\nBooks.\n", "## Licence\n\nFree.\n"):
        assert section in card
    assert (shipped / "curve.png").read_bytes() == b"a curve"
    assert load_checkpoint(shipped).files["words.txt"] == b"take\n"


def test_quality_by_length_and_an_alignment_are_drawn(shipped: Path) -> None:
    card = (shipped / "README.md").read_text()
    assert "](by-length.svg)" in card and "](alignment.png)" in card
    assert ">web (200)</text>" in (shipped / "by-length.svg").read_text()
    assert (shipped / "alignment.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "architecture", ["transformer", "transformer-ssru", "bahdanau", "ngram-lm"]
)
def test_int8_weights_are_served_as_those_that_were_trained(
    architecture: str, tmp_path: Path
) -> None:
    """Everything in the int8 bundle is the same, scales but for the last bit of some."""
    tiny_checkpoint(architecture, tmp_path / "drawn", seed=4)
    drawn = load_checkpoint(tmp_path / "drawn")
    for name, storage, before in (
        ("fp16", Storage.FP16, drawn),
        ("int8", Storage.INT8, tmp_path / "fp16"),
    ):
        source = before if before is drawn else load_checkpoint(tmp_path / "fp16")
        save_checkpoint(tmp_path / name, source.config, source.weights, source.tokenizer, storage)
        checkpoint = load_checkpoint(tmp_path / name)
        export_checkpoint(checkpoint, tmp_path / f"{name}-bundle", Precision.INT8, name="same")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("fp16", "int8")]
    assert sizes[1] < sizes[0]
    ours, theirs = (constants(tmp_path / f"{name}-bundle") for name in ("int8", "fp16"))
    assert ours.keys() == theirs.keys() and len(ours) > 5
    for name, each in ours.items():
        np.testing.assert_allclose(each, theirs[name], rtol=2e-7, atol=0, err_msg=name)


def constants(folder: Path) -> dict[str, np.ndarray]:
    """Read what a bundle's graphs hold, in fp32, by graph and name."""
    actual = {}
    for name in open_bundle(folder).manifest.graphs:
        for key, value in ir.load(folder / f"{name}.onnx").graph.initializers.items():
            assert value.const_value is not None
            if value.const_value.dtype is not ir.DataType.STRING:
                actual[f"{name}.{key}"] = value.const_value.numpy().astype(np.float64)
    return actual


def test_a_language_model_is_scored_on_what_its_recipe_holds_out(tmp_path: Path) -> None:
    write_world(tmp_path, "llama")
    result = run(tmp_path, "bf16")
    assert result.exit_code == 0, result.output
    quality = json.loads((tmp_path / "shipped/quality.json").read_text())
    assert quality["documents"] == 3
    assert quality["bits_per_byte"] == pytest.approx(quality["fp32"]["bits_per_byte"], rel=0.1)
    card = (tmp_path / "shipped/README.md").read_text()
    assert f"| int8 | {quality['bits_per_byte']:.3f} |" in card
    assert "stored in bf16" in card


def test_what_is_shipped_is_not_written_over_what_was_trained(tmp_path: Path) -> None:
    write_world(tmp_path, "transformer")
    result = run(tmp_path, output="trained")
    assert result.exit_code == 2
    assert "name another folder" in result.output


def test_missing_sets_are_one_line(tmp_path: Path) -> None:
    write_world(tmp_path, "transformer")
    (tmp_path / "sets/everyday.tsv").unlink()
    result = run(tmp_path)
    assert result.exit_code == 2
    assert "everyday.tsv" in result.output and "Traceback" not in result.output


def test_a_card_without_a_quality_section_gets_one() -> None:
    card = complete_card("# Mine\n", "| 50.0 |", Storage.INT8, "attendant lab ship x")
    assert card == "# Mine\n\n## Quality\n\n| 50.0 |\n\nBy `attendant lab ship x`.\n"
