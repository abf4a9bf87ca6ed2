"""The race of embedders: random weights in both formats, and both sides give the same vectors."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from loadtest.bench.compare_engines import PEERS
from loadtest.bench.compare_inputs import read_inputs
from loadtest.bench.compare_own import VectorsWorker
from loadtest.bench.compare_workloads import WORKLOADS
from loadtest.bench.peers import random_bert
from loadtest.bench.peers.workers import OnnxRuntime
from serving.bundle.manifest import Precision

WORDS = [f"word{number}" for number in range(15)]
SIZES = {"--d-model": 16, "--ffn-dim": 32, "--layers": 1, "--heads": 2, "--vocab-size": 120}


@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_both_sides_give_the_same_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, folder = tmp_path / "corpus.tsv", tmp_path / "race"
    turned = [" ".join(WORDS[i:]) for i in range(len(WORDS))]
    corpus.write_text("".join(f"somebody\t{text}\t{text.upper()}\n" for text in turned * 4))
    sizes = [word for name, size in SIZES.items() for word in (name, str(size))]
    monkeypatch.setattr(sys, "argv", ["random_bert", str(corpus), str(folder), *sizes])
    random_bert.main()
    export_checkpoint(read_model(folder / "hugging_face"), folder / "bundle", Precision.FP32)

    given = read_inputs(folder / "bundle", None, (folder / "file.txt").read_text(), 1)
    inputs = {"texts": given.file, "ids": given.ids}
    settings: dict[str, Any] = {"bundle": folder / "bundle", "inputs": inputs, "cores": 2}
    workload = WORKLOADS["vectors-sorted"]
    order = given.inputs(1).order(workload)
    ours = VectorsWorker(settings)
    plans = [(1, 1), (2, 1)]
    alike = [vectors(ours, {**order, "engines": e, "threads": t}) for e, t in plans]
    assert alike[0].tobytes() == alike[1].tobytes() and alike[0].shape == (len(turned * 4), 16)
    for graph, sessions in (("plain", 1), ("fused", 2)):
        model = str(folder / "onnx" / f"{graph}.onnx")
        theirs = OnnxRuntime({**settings, "model": model, "sessions": sessions})
        for asked in PEERS["onnxruntime"].orders(workload, order):
            assert np.abs(vectors(theirs, asked) - alike[0]).max() < 1e-5


def vectors(worker: Any, order: dict[str, Any]) -> Any:
    raw = worker.prepare(order)(lambda: None)
    return np.array(worker.outputs(raw), np.float32)
