"""`attendant lab distil` keeps of a beam what is nearest to the reference; killed, it goes on."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sacrebleu import sentence_bleu

from export.scoring.commands import distil
from serving.bundle.manifest import Precision
from serving.commands.translate import translate
from tests.tiny import tiny_bundle

SOURCES = ["a cat", "a dog runs", "yes", "who is it", "été"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return tiny_bundle("bahdanau", tmp_path / "bundle", Precision.FP32, seed=6)


def beams_of(bundle: Path) -> list[list[str]]:
    """The three best translations of each source, as another command writes them."""
    words = ["--model", str(bundle), "--beam", "3", "--n-best", "3", "--no-protect"]
    said = CliRunner().invoke(translate, words, input="".join(f"{line}\n" for line in SOURCES))
    assert said.exit_code == 0, said.output
    rows = [line.split(" ||| ") for line in said.stdout.split("\n")[:-1]]
    return [[text for number, text, _ in rows if int(number) == i] for i in range(len(SOURCES))]


def run(bundle: Path, folder: Path, references: list[str], output: str = "out.tsv") -> Result:
    lines = zip(SOURCES, references, strict=True)
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"web\t{s}\t{r}\n" for s, r in lines), encoding="utf-8")
    words = [str(bundle), str(pairs), "-o", str(folder / output), "--beam", "3"]
    return CliRunner().invoke(distil, words)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_translation_nearest_to_the_reference_is_kept(
    rank: int, bundle: Path, tmp_path: Path
) -> None:
    beams = beams_of(bundle)
    references = [f"{beam[rank]} x" for beam in beams]
    actual = run(bundle, tmp_path, references)
    assert actual.exit_code == 0, actual.output
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().split("\n")[:-1]]
    assert [row[:2] for row in rows] == [["web", source] for source in SOURCES]
    for (_, _, kept), beam, reference in zip(rows, beams, references, strict=True):
        scores = [sentence_bleu(text, [reference]).score for text in beam]
        assert kept == beam[scores.index(max(scores))]


def test_it_goes_on_after_a_kill(bundle: Path, tmp_path: Path) -> None:
    references = ["un chat", "un chien court", "oui", "qui est-ce", "summer"]
    assert run(bundle, tmp_path, references, "whole.tsv").exit_code == 0
    whole = (tmp_path / "whole.tsv").read_bytes()
    for length in (0, 1, whole.index(b"\n") + 1, len(whole) - 1, len(whole)):
        (tmp_path / "killed.tsv").write_bytes(whole[:length])
        assert run(bundle, tmp_path, references, "killed.tsv").exit_code == 0
        assert (tmp_path / "killed.tsv").read_bytes() == whole


def test_a_file_of_other_pairs_is_left_alone(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "out.tsv").write_text("web\tanother\tune autre\n")
    actual = run(bundle, tmp_path, SOURCES)
    assert actual.exit_code == 2
    assert "has lines of other pairs; name another file with -o" in actual.output
    assert (tmp_path / "out.tsv").read_text() == "web\tanother\tune autre\n"


def test_a_language_model_does_not_translate(tmp_path: Path) -> None:
    actual = run(tiny_bundle("llama", tmp_path / "llama", Precision.FP32), tmp_path, SOURCES)
    assert actual.exit_code == 2
    assert "a model of task 'generate' does not translate" in actual.output
    assert not (tmp_path / "out.tsv").read_text()
