"""The model that races are run over: any size, and it never ends of itself."""

import sys
from itertools import islice
from pathlib import Path

import pytest

from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from loadtest.bench.peers import random_marian
from loadtest.bench.workload import build_workload
from serving.bundle.manifest import Precision
from serving.pipelines.loading import ModelParts
from tests.serving.engine.driving import run_all

WORDS = [
    "the",
    "dog",
    "runs",
    "through",
    "deep",
    "snow",
    "while",
    "an",
    "old",
    "cat",
    "sleeps",
    "near",
    "another",
    "warm",
    "fire",
]
SIZES = {"--d-model": 16, "--ffn-dim": 32, "--layers": 1, "--heads": 2, "--vocab-size": 120}


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_a_random_model_is_exported_and_generates_as_long_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, folder = tmp_path / "corpus.tsv", tmp_path / "race"
    turned = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    corpus.write_text("".join(f"somebody\t{text}\t{text.upper()}\n" for text in turned * 20))
    sizes = [word for name, size in SIZES.items() for word in (name, str(size))]
    monkeypatch.setattr(sys, "argv", ["random_marian", str(corpus), str(folder), *sizes])
    random_marian.main()
    assert (folder / "file.txt").read_text().splitlines() == (turned * 20)[:1000]
    export_checkpoint(read_model(folder / "hugging_face"), folder / "bundle", Precision.FP32)
    parts = ModelParts.open(folder / "bundle")
    workload = build_workload(parts, turned[0], 9, "cpu", threads=1)
    stories = run_all(workload.engine(2), islice(workload.requests(), 2))
    assert [len(story.token_ids) for story in stories.values()] == [9, 9]
