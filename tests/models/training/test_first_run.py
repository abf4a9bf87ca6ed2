"""`attendant train --pairs` and `--text`: sizes are chosen and kept; bad files are told."""

import gzip
import json
from itertools import count
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from models.checkpoint import load_checkpoint
from models.cli import train
from models.configs.base import TranslationModelConfig
from models.data.corpus import SentencePair, hold_out_pairs, read_documents, read_pairs
from models.training import recipe, trainer
from models.training.config import read_config
from models.training.recipe import choose_language_model, choose_translator, write_translator
from models.training.trainer import Trainer
from models.training.validation import Validation

ENGLISH = ["The dog sees the house", "My mother reads a book", "We eat bread in the morning"]
FRENCH = ["Le chien voit la maison", "Ma mère lit un livre", "Nous mangeons du pain le matin"]


def write_pairs(path: Path, count: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    lines = [f"{ENGLISH[n % 3]} {n}.\t{FRENCH[n % 3]} {n}." for n in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def call(*words: object) -> Result:
    return CliRunner().invoke(train, [str(word) for word in words])


def test_more_text_and_more_time_make_a_larger_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "_relative_speed", lambda: 1.0)
    few, many = write_pairs(tmp_path / "few.tsv", 100), write_pairs(tmp_path / "many.tsv", 80_000)
    sizes = [
        choose_translator(path, minutes).values["model"]
        for path, minutes in [(few, 2), (few, 600), (many, 2), (many, 60), (many, 600)]
    ]
    dims = [(model["d_model"], model["vocab_size"]) for model in sizes]
    assert dims == [(128, 1000), (128, 1000), (128, 4000), (192, 8000), (192, 8000)]
    assert sizes[0]["dropout"] > sizes[2]["dropout"]


def test_what_was_chosen_is_read_back(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "my.tsv", 120)
    chosen = choose_translator(path, 2)
    config = read_config(write_translator(path, tmp_path / "run", 2))
    assert (
        config.model.model_dump(include={*chosen.values["model"]}, mode="json")
        == (chosen.values["model"])
    )
    assert config.data.train == (str(path),)
    assert isinstance(config.model, TranslationModelConfig)
    assert (config.model.source_languages, config.model.target_languages) == (("en",), ("fr",))
    text = (tmp_path / "run/my.toml").read_text()
    assert all(f"# {line}" in text for line in chosen.as_table().splitlines())


def test_prose_makes_a_language_model(tmp_path: Path) -> None:
    paragraphs = [f"{' '.join(ENGLISH)} {n}.\n" * 3 for n in range(200)]
    path = tmp_path / "novel.txt"
    path.write_text("\n".join(paragraphs))
    model = choose_language_model(path, 2).values["model"]
    assert (model["architecture"], model["languages"]) == ("llama", ["en"])
    documents = read_documents(path)
    assert len(documents) > 20 and min(map(len, documents)) >= 500
    assert sum(map(len, documents)) > 0.9 * path.stat().st_size


def test_a_run_writes_its_sizes_and_goes_on_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock on which every look takes a second."""
    monkeypatch.setitem(trainer.CLOCKS, "wall", map(float, count()).__next__)
    path, run = write_pairs(tmp_path / "my.tsv", 100), tmp_path / "run"
    begun = call("--pairs", path, "-o", run, "--minutes", 0.1, "--threads", 1)
    assert begun.exit_code == 0, begun.output
    assert "held out    10 + 10 pairs" in begun.stderr
    assert "of 10 pairs" in begun.stderr and "next: attendant export" in begun.stderr
    config = (run / "my.toml").read_text()
    rows = (run / "metrics.jsonl").read_text().splitlines()

    longer = call("--pairs", path, "-o", run, "--minutes", 0.3, "--threads", 1)
    assert longer.exit_code == 0, longer.output
    assert "training goes on after step" in longer.stderr
    assert (run / "my.toml").read_text() == config
    assert (run / "metrics.jsonl").read_text().splitlines()[: len(rows)] == rows
    assert load_checkpoint(run / "checkpoint").config.architecture == "transformer"

    other = call("--pairs", write_pairs(tmp_path / "a/my.tsv", 60), "-o", run)
    assert other.exit_code == 2 and "name another folder with -o" in other.stderr


def test_validations_take_a_tenth_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock on which a step takes a second and a validation eight."""
    seconds = [0.0]

    def look() -> float:
        seconds[0] += 1
        return seconds[0]

    def validate(*args: object) -> Validation:
        seconds[0] += 8
        return Validation(loss=1.0, bleu=None)

    monkeypatch.setitem(trainer.CLOCKS, "wall", look)
    monkeypatch.setattr(trainer, "validate", validate)
    monkeypatch.setattr(Trainer, "_learn", lambda self, batch: torch.tensor(1.0))
    path, run = write_pairs(tmp_path / "my.tsv", 60), tmp_path / "run"
    done = call("--pairs", path, "-o", run, "--minutes", 4, "--threads", 1)
    assert done.exit_code == 0, done.output
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
    assert 2 <= len(rows) - 1 <= 240 * 0.1 / 9
    assert rows[-1]["step"] > 240 * 0.85


LATIN = "\n".join(f"{ENGLISH[1]} {n}\t{FRENCH[1]} {n}" for n in range(60)).encode("latin-1")
SAME = "\n".join(f"{ENGLISH[n % 3]} {n}\t{ENGLISH[n % 3]} {n}" for n in range(60)).encode()
BAD_FILES = {
    "no tab": (b"a dog\na cat\n", "a.tsv:1: there is no tab; a line is a sentence, a tab and its"),
    "one column": (b"a\tb\nc\n", "a.tsv:2: there is no tab"),
    "four columns": (b"a\tb\tc\td\n", "expected origin, source and target separated by tabs"),
    "empty": (b"", "has 0 usable pairs; training needs 50 different sentences at least"),
    "three pairs": (b"a\tb\nc\td\ne\tf\n", "has 3 usable pairs; training needs 50"),
    "one pair often": (b"a\tb\n" * 99, "has 1 usable pairs; training needs 50"),
    "long lines": (b"%b\tb\n" % (b"a" * 3000) * 60, "(60 empty or beyond 2,000 characters)"),
    "latin-1": (LATIN, "is not UTF-8: invalid continuation byte at byte 29; save it as UTF-8"),
    "UTF-16": ("a\tb\n".encode("utf-16"), "is not UTF-8"),
    "one language": (SAME, "both columns look like the language en: name the languages with"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_told(tmp_path: Path, name: str) -> None:
    content, message = BAD_FILES[name]
    (tmp_path / "a.tsv").write_bytes(content)
    refused = call("--pairs", tmp_path / "a.tsv", "-o", tmp_path / "run")
    assert refused.exit_code == 2 and message in refused.stderr, refused.output
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_files_that_are_not_there_or_no_gzip_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(b"a\tb\n")
    (tmp_path / "short.txt").write_text("A dog. " * 90)
    no_gzip = call("--pairs", tmp_path / "a.tsv.gz")
    assert no_gzip.exit_code == 2 and "is no gzip file, though its name" in no_gzip.stderr
    missing = call("--text", tmp_path / "b.txt")
    assert missing.stderr == f"{tmp_path / 'b.txt'}: No such file or directory\n"
    short = call("--text", tmp_path / "short.txt")
    assert short.exit_code == 2 and "a language model needs 20,000 in two" in short.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name one of CONFIG, --pairs and --text"),
        (("a.toml", "--pairs", "a.tsv"), "name one of CONFIG, --pairs and --text"),
        (("--text", "a.txt", "--source", "en"), "--source and --target belong to --pairs"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: tuple[str, ...], message: str) -> None:
    refused = call(*words)
    assert refused.exit_code == 2 and message in refused.stderr


def test_a_mark_before_the_text_is_not_learned(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress("\ufeffa dog\tun chien\n".encode()))
    assert read_pairs(path) == [SentencePair("a", "a dog", "un chien")]


def test_no_source_is_learned_and_held_out() -> None:
    pairs = [SentencePair("a", f"s{n % 40}", f"t{n}") for n in range(100)]
    parts = hold_out_pairs(pairs, 0.1)
    assert sorted(map(len, parts))[-1] == len(parts[0]) and sum(map(len, parts)) == 100
    sources = [{pair.source for pair in part} for part in parts]
    assert [len(part) for part in sources] == [32, 4, 4]
    assert not sources[0] & sources[1] and not sources[1] & sources[2]
    assert hold_out_pairs(pairs[::-1], 0.1)[1] == parts[1][::-1]
