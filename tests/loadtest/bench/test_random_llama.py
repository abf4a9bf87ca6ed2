"""The language model that is compared with llama.cpp: any size, and its text never ends."""

import random
import sys
from itertools import islice
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType, GGUFReader

from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from loadtest.bench.peers import random_llama
from loadtest.bench.workload import build_workload
from serving.bundle.manifest import Precision
from serving.pipelines.loading import ModelParts
from tests.serving.engine.driving import run_all

SIZES = ["--d-model", "64", "--ffn-dim", "96", "--layers", "2", "--heads", "4", "--kv-heads", "2"]


def write_corpus(path: Path) -> Path:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(300)]
    path.write_text("\n".join(" ".join(draw.choices(words, k=12)) for _ in range(200)))
    return path


def write_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, vocab_size: int = 400
) -> Path:
    model = folder / "random.gguf"
    options = [*SIZES, "--kind", kind, "--vocab-size", str(vocab_size), "--context", "128"]
    corpus = write_corpus(folder / "corpus.txt")
    monkeypatch.setattr(sys, "argv", ["random_llama", str(corpus), str(model), *options])
    random_llama.main()
    return model


@pytest.mark.parametrize(
    ("kind", "output_kind", "precision"),
    [("Q4_0", "Q8_0", Precision.INT4), ("Q8_0", "Q8_0", Precision.INT8)],
)
def test_a_random_model_is_exported_and_generates_as_long_as_it_may(
    kind: str,
    output_kind: str,
    precision: Precision,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = write_model(tmp_path, monkeypatch, kind)
    kinds = {tensor.name: tensor.tensor_type for tensor in GGUFReader(model).tensors}
    assert kinds["blk.1.ffn_down.weight"] == GGMLQuantizationType[kind]
    assert kinds["output.weight"] == GGMLQuantizationType[output_kind]
    export_checkpoint(read_model(model), tmp_path / "bundle", precision)
    parts = ModelParts.open(tmp_path / "bundle")
    workload = build_workload(parts, "abc def gah", 24, "cpu", threads=1)
    [story] = run_all(workload.engine(1), islice(workload.requests(), 1)).values()
    assert len(story.token_ids) == 24
    assert len(set(story.token_ids)) > 4
    tokenizer = parts.tokenizers.target
    assert not any("\ufffd" in tokenizer.decode([i]) for i in story.token_ids)


def test_a_vocabulary_larger_than_the_corpus_has_text_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="the corpus has text for"):
        write_model(tmp_path, monkeypatch, "Q4_0", vocab_size=100_000)
