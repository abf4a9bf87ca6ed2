"""The machine's limits, what a model costs, and where its time goes."""

from pathlib import Path

import pytest

from loadtest.bench.roofline.breakdown import Breakdown, shares_of
from loadtest.bench.roofline.costs import Cost, cost_of
from loadtest.bench.roofline.limits import Roofline
from loadtest.bench.roofline.peaks import Peaks
from loadtest.bench.roofline.picture import largest_operators, parts_of
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests.tiny import CONFIGS, byte_tokenizer, tiny_bundle

PEAKS = Peaks(int8_hot=200e9, int8_cold=100e9, fp32_hot=50e9, fp32_cold=40e9, memory_bytes=10e9)
STEP, ENCODE = Cost(10_000_000, 10_000_000), Cost(5_000_000, 5_000_000)


def found(batch: int, seconds: float) -> Breakdown:
    """100 steps of full batches, which began with sources of 10 tokens."""
    operators = {"MatMulIntegerToFloat": 0.5 * seconds, "Add": 0.1 * seconds, "Sub": 0.05 * seconds}
    reading, host = 0.3 * seconds, 0.05 * seconds
    return Breakdown(batch, seconds, operators, reading, host, 100 * batch, 100, 10 * batch)


def test_many_rows_are_bound_by_products_and_few_by_memory() -> None:
    roofline = Roofline("int8", PEAKS, STEP, ENCODE, [found(1, 1.0), found(64, 1.0)])
    one, many = roofline.breakdowns
    assert (roofline.binding(one), roofline.binding(many)) == ("memory", "products")
    assert roofline.shares(one)["memory"] == pytest.approx(100 * 10e6 / 10e9)
    multiply_adds = 6400 * 10e6 + 640 * 5e6
    assert roofline.shares(many)["products"] == pytest.approx(multiply_adds / 200e9)
    assert "| 64 | products | 34% | 34% |  | 5.0% | 30.0% |" in roofline.as_markdown()


def test_prompts_of_language_models_are_left_out_with_their_time() -> None:
    roofline = Roofline("int8", PEAKS, STEP, None, [found(64, 1.0)])
    [many] = roofline.breakdowns
    assert roofline.shares(many)["products"] == pytest.approx(6400 * 10e6 / 200e9 / 0.7)


def test_the_parts_of_a_bar_are_the_whole() -> None:
    roofline = Roofline("fp32", PEAKS, STEP, ENCODE, [found(1, 1.0), found(8, 2.0)])
    shown = largest_operators(roofline.breakdowns)
    assert shown == ["Add", "Sub"]
    for each in roofline.breakdowns:
        parts = parts_of(roofline, each, shown)
        assert sum(parts.values()) == pytest.approx(1)
        assert min(parts.values()) >= 0


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


def test_interrupted_runs_of_a_node_count_like_others() -> None:
    def event(node: str, operator: str, duration: float) -> dict[str, object]:
        name = f"{node}_kernel_time"
        return {"cat": "Node", "name": name, "args": {"op_name": operator}, "dur": duration}

    events = [event("a", "Add", each) for each in (10, 10, 10_000)]
    events += [event("b", "Mul", 5), event("c", "Mul", 25), {"cat": "Session", "name": "run"}]
    assert shares_of(events) == {"Add": 0.5, "Mul": 0.5}
