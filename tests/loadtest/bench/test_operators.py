"""Operations of single operators against counts by hand."""

import pytest

from loadtest.bench.length_probe import Lengths, Ran, work_of

LENGTHS = Lengths(capacity=48, filled=10)


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "count"),
    [
        ("MatMul", [[3, 5]], [[3, 7]], 2 * 3 * 5 * 7),
        ("Gemm", [[3, 5], [7]], [[3, 7]], 2 * 3 * 5 * 7),
        ("FusedConv", [[1, 20, 38], [20, 20, 3]], [[1, 20, 36]], 2 * 20 * 36 * 20 * 3),
        # Two directions of three gates, 8 wide, over 6 tokens of 4 numbers.
        ("GRU", [[6, 1, 4]], [[6, 2, 1, 8], [2, 1, 8]], 2 * 6 * 2 * 3 * 8 * (4 + 8)),
        ("LSTM", [[6, 1, 4]], [[1, 1, 8], [1, 1, 8]], 2 * 6 * 4 * 8 * (4 + 8)),
        # Two heads of 8: each of 16 numbers with the keys, then with the values.
        ("GroupQueryAttention", [[1, 1, 16], [1, 2, 24, 8]], [[1, 1, 16]], 4 * 16 * 24),
        ("GroupQueryAttention", [[1, 1, 16], [1, 2, 48, 8]], [[1, 1, 16]], 4 * 16 * 10),
        ("Tanh", [[3, 5]], [[3, 5]], 15),
        ("Gather", [[100, 5], [3]], [[3, 5]], 0),
        ("Loop", [[1]], [[3, 5]], 0),
    ],
)
def test_an_operator_counts_its_products_or_what_it_writes(
    operator: str, inputs: list[list[int]], outputs: list[list[int]], count: int
) -> None:
    assert work_of(Ran(operator, inputs, outputs), LENGTHS) == count
