"""Tests what a token is said to cost at each length, on small random models of every family."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loadtest.bench import length_probe
from loadtest.bench.cost import cost
from loadtest.bench.length_costs import LengthCosts, Way, cost_of, length_costs, lengths_of
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.tiny import CONFIGS, DECODERS, ENCODERS, byte_tokenizer, tiny_bundle

SHORT, LONG = 8, 40
RECURRENT = {
    *("bahdanau", "cho", "luong", "lstmn", "nematus", "rctm", "sutskever"),
    *("key-value-lm", "mamba", "mamba2", "ngram-lm", "rwkv7", "self-attentive"),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length_probe, "MIN_SECONDS", 0.0)


def costs_of(family: str, folder: Path) -> LengthCosts:
    bundle = open_bundle(tiny_bundle(family, folder, Precision.FP32))
    return length_costs(bundle, (SHORT, LONG), rows=1, threads=1)


def rise(costs: LengthCosts, phase: str) -> float:
    """Return operations of a token for each position more."""
    short, long = (getattr(point, phase).operations for point in costs.points)
    return float(long - short) / (LONG - SHORT)


FEW = ("convs2s", "llama", "sutskever", "transformer-encoder")  # of each way, and an encoder


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[pytest.mark.full] * (family not in FEW))
        for family in (*DECODERS, *ENCODERS)
    ],
)
def test_it_is_told_how_every_family_reads(family: str, tmp_path: Path) -> None:
    way = Way.RECURRENCE if family in RECURRENT else Way.ATTENTION
    way = Way.CONVOLUTION if family in ("convs2s", "fconv") else way
    costs = costs_of(family, tmp_path)
    assert costs.reads_by is way
    assert all(point.write is None for point in costs.points) == (family in ENCODERS)
    told = [phase for point in costs.points for phase in (point.read, point.write) if phase]
    assert all(phase.operations > 0 and phase.seconds > 0 for phase in told)


def test_attention_adds_the_products_of_every_position(tmp_path: Path) -> None:
    costs = costs_of("transformer", tmp_path)
    of_a_layer = 4 * 32  # a query of 32 numbers with a key, and a weight with a value
    assert rise(costs, "write") == 2 * 2 * of_a_layer  # over the source and over the target
    assert rise(costs, "read") == pytest.approx(2 * of_a_layer, rel=0.1)


def test_a_fixed_context_costs_the_same_at_any_length(tmp_path: Path) -> None:
    costs = costs_of("sutskever", tmp_path)
    short, long = costs.points
    assert rise(costs, "write") == rise(costs, "read") == 0
    assert short.state_bytes == long.state_bytes == 2 * 2 * 32 * 4  # two layers, hidden and cell


def test_keys_and_values_grow_and_vectors_do_not(tmp_path: Path) -> None:
    short, long = costs_of("transformer", tmp_path).points
    assert long.state_bytes == short.state_bytes * LONG // SHORT
    assert long.touched_bytes == long.state_bytes  # read once


def test_lengths_end_where_the_model_does(tmp_path: Path) -> None:
    manifest = open_bundle(tiny_bundle("transformer", tmp_path, Precision.FP32)).manifest
    assert lengths_of(manifest, 1024) == [16, 32]  # 48 of the target
    assert lengths_of(manifest, 16) == [16]
    encoder = open_bundle(tiny_bundle("transformer-encoder", tmp_path, Precision.FP32)).manifest
    assert lengths_of(encoder, 1024) == [16, 32, 64]  # 96 of the text


def asked(*arguments: object) -> Result:
    return CliRunner().invoke(cost, [str(argument) for argument in arguments])


def test_the_command_tells_and_draws(tmp_path: Path) -> None:
    bundle, picture = (
        tiny_bundle("transformer", tmp_path / "b", Precision.INT8),
        tmp_path / "cost.svg",
    )
    told = asked(bundle, "--threads", 1, "-o", picture)
    assert told.exit_code == 0, told.output
    assert "self-attention" in told.output and "N²·d" in told.output
    assert "reading a token" in picture.read_text("utf-8")
    [found] = json.loads(asked(bundle, "--threads", 1, "--json").output)
    assert [point["length"] for point in found["points"]] == [16, 32]


def test_a_picture_of_another_kind_is_refused_before_any_work(tmp_path: Path) -> None:
    told = asked(tmp_path / "no-bundle", "-o", "cost.txt")
    assert told.exit_code == 2
    assert ".svg" in told.output


def test_one_length_tells_of_nothing_that_rises(tmp_path: Path) -> None:
    told = asked(tmp_path / "no-bundle", "--longest", 16)
    assert told.exit_code == 2
    assert "16 is not in the range x>=32" in told.output


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_all_products_with_weights_are_counted(precision: Precision, tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("transformer", tmp_path, precision))
    sizes = CONFIGS["transformer"]
    width, ffn, layers = sizes["d_model"], sizes["ffn_dim"], sizes["decoder_layers"]
    decoder = layers * (4 * width**2 + 2 * width**2 + 2 * width * ffn)  # cross: query and output
    encoder = layers * (4 * width**2 + 2 * width * ffn) + layers * 2 * width**2  # keys, values
    words = byte_tokenizer().get_vocab_size()
    step = cost_of(bundle.graph_path("step"))
    assert step.multiply_adds == decoder + words * width
    assert step.weight_bytes == step.multiply_adds * (4 if precision is Precision.FP32 else 1)
    assert cost_of(bundle.graph_path("encode")).multiply_adds == encoder
