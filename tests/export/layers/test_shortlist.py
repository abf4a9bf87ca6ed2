"""Step graphs with shortlists: rows' own candidates, the same bits in any company; int8 weights of
the source's own levels and ranges.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.bundling.running import GraphRows
from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.bundle.manifest import BATCH, CANDIDATES, SOURCE, WANTS_LOGP, Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.session import open_graphs
from tests.export.readers.marian.files import (
    NUM_PIECES,
    OPTIONS,
    bergamot_folder,
    quantised,
    random_weights,
    write_npz,
)

VOCAB_SIZE, SOURCE_LENGTH = NUM_PIECES + 1, 16
Arrays = dict[str, np.ndarray]


def bundle_of(folder: Path, precision: Precision, **settings: Any) -> Bundle:
    bergamot_folder(folder / "model", **settings)
    export_checkpoint(read_model(folder / "model"), folder / "bundle", precision)
    return open_bundle(folder / "bundle")


def float_bundle(folder: Path) -> Bundle:
    """In int8 with row-wise scales, of a model that was not quantised."""
    bergamot_folder(folder / "model")
    (folder / "model" / "model.enpt.intgemm.alphas.bin").unlink()
    arrays = random_weights(OPTIONS, NUM_PIECES, NUM_PIECES)
    write_npz(folder / "model" / "model.npz", arrays, OPTIONS)
    (folder / "model" / "config.intgemm8bitalpha.yml").unlink()
    export_checkpoint(read_model(folder / "model"), folder / "bundle", Precision.INT8)
    return open_bundle(folder / "bundle")


BUNDLES = {
    "clipped": lambda folder: bundle_of(folder, Precision.INT8),
    "row-wise": lambda folder: bundle_of(folder, Precision.INT8, alphas=None),
    "float weights": float_bundle,
    "fp32": lambda folder: bundle_of(folder, Precision.FP32),
}


class Steps:
    """One step of random states, with the candidates of each row."""

    def __init__(self, bundle: Bundle, num_rows: int) -> None:
        self.graph = open_graphs(bundle, EngineConfig(threads=1)).step
        self.spec = bundle.manifest.graphs["step"]
        random = np.random.default_rng(0)
        self.given: Arrays = {
            "ids": random.integers(2, NUM_PIECES, (num_rows, 1)),
            "past_lengths": random.integers(0, 20, num_rows).astype(np.int32),
            "source_lengths": random.integers(1, SOURCE_LENGTH, num_rows).astype(np.int32),
        }
        for state in bundle.manifest.states:
            shape = [each if isinstance(each, int) else SOURCE_LENGTH for each in state.shape]
            values = random.standard_normal((num_rows, *shape))
            self.given[state.name] = (values * (40 if state.dtype == "int8" else 1)).astype(
                state.dtype
            )

    def run(self, rows: list[int], shortlists: list[np.ndarray], width: int) -> list[Arrays]:
        """Return, of each row, `logp` of its candidates, `top_ids`, `top_logp` and
        `log_normaliser`.
        """
        given = {name: array[rows] for name, array in self.given.items()}
        given |= short_inputs(shortlists, width) | {WANTS_LOGP: np.array(True)}
        sizes = {BATCH: len(rows), CANDIDATES: width, SOURCE: SOURCE_LENGTH}
        outputs = {
            tensor.name: np.zeros([sizes.get(each, each) for each in tensor.shape], tensor.dtype)  # type: ignore[arg-type]
            for tensor in self.spec.outputs
        }
        self.graph.bind({tensor.name: given[tensor.name] for tensor in self.spec.inputs}, outputs)()
        outputs["logp"] = outputs["logits"] - outputs["log_normaliser"][:, None]
        wanted = ("logp", "top_ids", "top_logp", "log_normaliser")
        actual = [{name: outputs[name][row] for name in wanted} for row in range(len(rows))]
        for row, shortlist in zip(actual, shortlists, strict=True):
            assert np.isneginf(row["logp"][len(shortlist) :]).all()
            row["logp"] = row["logp"][: len(shortlist)]
        return actual


def short_inputs(shortlists: list[np.ndarray], width: int) -> Arrays:
    """The union lies in no order, with tokens among it that nobody asked for."""
    others = np.arange(0, VOCAB_SIZE, 7)
    union = np.random.default_rng(len(shortlists)).permutation(
        np.unique(np.concatenate([*shortlists, others]))
    )
    place_of = {int(token_id): place for place, token_id in enumerate(union)}
    places = np.zeros((len(shortlists), width), np.int64)
    for row, shortlist in zip(places, shortlists, strict=True):
        row[: len(shortlist)] = [place_of[int(token_id)] for token_id in shortlist]
    lengths = np.array([len(each) for each in shortlists], np.int32)
    return {"candidates": union, "shortlist": places, "shortlist_lengths": lengths}


def some_shortlists(num_rows: int) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    sizes = random.integers(24, 180, num_rows)
    return [np.sort(random.choice(VOCAB_SIZE, size, replace=False)) for size in sizes]


@pytest.mark.parametrize("kind", BUNDLES)
def test_a_shortlist_is_the_vocabulary_without_the_rest(tmp_path: Path, kind: str) -> None:
    bundle = BUNDLES[kind](tmp_path)
    steps, shortlists = Steps(bundle, 5), some_shortlists(5)
    every = [np.arange(VOCAB_SIZE)] * 5
    whole = steps.run([0, 1, 2, 3, 4], every, 512)
    short = steps.run([0, 1, 2, 3, 4], shortlists, 192)
    for row, own, shortlist in zip(whole, short, shortlists, strict=True):
        logp = row["logp"][shortlist].astype(np.float64)
        expected = logp - np.log(np.exp(logp).sum())
        real = expected > -50
        assert np.abs(own["logp"] - expected)[real].max() < 1e-5
        best = shortlist[np.argsort(-own["logp"], kind="stable")][:20]
        assert own["top_ids"].tolist() == best.tolist()
        assert np.array_equal(own["top_logp"], np.sort(own["logp"])[::-1][:20])
        raw = row["logp"] + row["log_normaliser"]  # logits, before they were normalised
        again = own["logp"] + own["log_normaliser"]
        assert np.abs(raw[shortlist] - again)[real].max() < 1e-4


@pytest.mark.parametrize("kind", BUNDLES)
def test_rows_keep_their_bits_whatever_else_is_scored(tmp_path: Path, kind: str) -> None:
    steps, shortlists = Steps(BUNDLES[kind](tmp_path), 9), some_shortlists(9)
    alone = [steps.run([row], [shortlists[row]], 192)[0] for row in range(9)]
    everyone = list(range(9))
    for rows, width in ((everyone, 192), (everyone[::-1], 512), ([1, 3, 8], 256), ([0, 5], 448)):
        actual = steps.run(rows, [shortlists[row] for row in rows], width)
        for row, own in zip(rows, actual, strict=True):
            for name, array in alone[row].items():
                assert np.array_equal(array, own[name]), (name, rows, row)


@pytest.mark.parametrize("kind", ["clipped", "row-wise"])
def test_sources_keep_their_bits_in_any_company(tmp_path: Path, kind: str) -> None:
    bundle = BUNDLES[kind](tmp_path)
    random = np.random.default_rng(4)
    sources = [random.integers(2, NUM_PIECES, length).tolist() for length in (17, 1, 40, 6)]
    together = GraphRows(bundle, sources, span=64)
    for row, source in enumerate(sources):
        alone = GraphRows(bundle, [source])
        for name, array in alone.states.items():
            if name.startswith("cross"):
                actual = together.states[name][row][:, : len(source)]
                assert np.array_equal(array[0][:, : len(source)], actual), (name, row)


def test_int8_weights_are_those_of_the_file(tmp_path: Path) -> None:
    """Level by level, with the file's scales; inputs are clipped where the model was tuned to."""
    alphas = 11.5
    bundle_of(tmp_path, Precision.INT8, alphas=alphas)
    arrays = random_weights(OPTIONS, NUM_PIECES, NUM_PIECES)
    levels, multipliers = quantised(arrays)
    model = onnx.load(tmp_path / "bundle" / "encode.onnx")
    weights = {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}
    parts = [f"encoder_l1_self_W{letter}" for letter in "qkv"]
    joined = np.concatenate([levels[name] for name in parts], axis=1)
    scales = np.concatenate([np.full(32, 1 / multipliers[name], np.float32) for name in parts])
    name = "+".join(f"encoder.layers.0.self_attention.{part}" for part in ("query", "key", "value"))
    assert np.array_equal(weights[f"{name}.int8"], joined)
    assert np.array_equal(weights[f"{name}.scale"], scales)
    rounding = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    clipping = [node for node in rounding if weights[node.input[2]].dtype == np.uint8]
    steps = {float(weights[node.input[1]]) for node in clipping}
    assert steps == {float(np.float32(1 / alphas))}
    # Ranges are only taken for the states that `step` keeps of the source.
    ranges = [node for node in model.graph.node if node.op_type == "ReduceMax"]
    assert len(ranges) == len(rounding) - len(clipping)
