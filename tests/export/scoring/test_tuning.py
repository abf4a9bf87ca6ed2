"""`attendant tune`: from a checkpoint and a TMX file to a bundle that serves."""

import json
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from export.scoring.tuning import Split, tune
from models.data.corpus import SentencePair
from serving.bundle.opening import open_bundle
from serving.translation_memory.tmx import MemorySegment, TranslationUnit, write_tmx
from tests.export.readers.hugging_face.translators import FAMILIES, save

CHECKPOINT = "models/checkpoints/transformer-en-fr"


def pairs(count: int) -> list[SentencePair]:
    return [
        SentencePair("team", f"Press button {number}.", f"Appuie {number} !")
        for number in range(count)
    ]


def memory(folder: Path, count: int, source: str = "en-US", target: str = "fr") -> Path:
    path = folder / "team.tmx"
    units = [
        TranslationUnit(MemorySegment(pair.source), {target: MemorySegment(pair.target)})
        for pair in pairs(count)
    ]
    path.write_text("".join(write_tmx(source, units)))
    return path


def tuned(model: str, data: Path, output: Path, *more: str) -> Result:
    arguments = [model, "--data", str(data), "-o", str(output), "--minutes", "0.1", *more]
    return CliRunner().invoke(tune, arguments)


def test_a_translator_is_tuned(tmp_path: Path) -> None:
    output = tmp_path / "own"
    result = tuned(CHECKPOINT, memory(tmp_path, 150), output, "--scope", "decoder")
    assert result.exit_code == 0, result.output
    assert "| domain, held out | 15 |" in result.output
    bundle = open_bundle(output)
    assert bundle.manifest.name == "transformer-en-fr-tuned"
    assert "## Tuned" in bundle.card_text and "| domain, held out | 15 |" in bundle.card_text
    assert "chrF" not in json.dumps(bundle.manifest.quality)  # those of the model before
    assert [each.name for each in tmp_path.iterdir() if each.name != "team.tmx"] == ["own"]


@pytest.mark.parametrize(("family", "target"), [("marian", "fr"), ("nllb", "fra_Latn")])
def test_models_of_hugging_face_are_tuned(tmp_path: Path, family: str, target: str) -> None:
    save(FAMILIES[family], tmp_path / "model")
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"w{n} w{n % 70}\tw{n % 31}\n" for n in range(150)))
    languages = ("--source-language", "en", "--target-language", "fr")
    limits = ("--minutes", "0.01", "--precision", "fp32")
    result = tuned(str(tmp_path / "model"), data, tmp_path / "own", *limits, *languages)
    assert result.exit_code == 0, result.output
    assert target in open_bundle(tmp_path / "own").manifest.target_languages


@pytest.mark.parametrize(
    ("count", "source", "more", "message"),
    [
        (99, "en", (), "99 pairs of these languages; at least 100 are needed"),
        (150, "de", (), "0 pairs of these languages"),
        (150, "en", ("--target-language", "de"), "give --target-language, one of: fr"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, count: int, source: str, more: tuple[str, ...], message: str
) -> None:
    result = tuned(CHECKPOINT, memory(tmp_path, count, source), tmp_path / "own", *more)
    assert result.exit_code == 2
    assert message in result.output


def test_a_language_model_is_refused(tmp_path: Path) -> None:
    result = tuned("models/checkpoints/llama-en", memory(tmp_path, 150), tmp_path / "own")
    assert result.exit_code == 2
    assert "does not translate" in result.output


def test_no_source_is_in_two_parts_and_parts_stay_the_same(tmp_path: Path) -> None:
    first = Split.from_pairs([*pairs(300), *pairs(100)], tmp_path)
    again = Split.from_pairs(pairs(300)[::-1], tmp_path)
    sources = [[pair.source for pair in part] for part in (first.train, first.dev, first.test)]
    assert len({*chain.from_iterable(sources)}) == sum(map(len, sources)) == 300
    assert [len(each) for each in sources] == [240, 30, 30]
    assert first.test == again.test and first.dev == again.dev
