"""Scores come from a device only where they are read."""

import numpy as np
import pytest

from serving.engine.cuda.device_runner import DeviceScores, LogpTable, RunRows
from tests.serving.engine.cuda.lazy_device import LazyDevice, local

ROWS, VOCAB, WINDOW = 4, 30, 5


def scores_on(device: LazyDevice, rows: list[int]) -> tuple[DeviceScores, np.ndarray, LogpTable]:
    """rows: of each row of the scores, which row of the table it is."""
    table = LogpTable(device, ROWS, VOCAB)
    logp = np.random.default_rng(0).normal(size=(ROWS, VOCAB)).astype(np.float32)
    local(table.on_device)[...] = logp
    logp = logp[rows]
    ids = np.argsort(-logp, axis=1)[:, :WINDOW]
    top = np.take_along_axis(logp, ids, 1)
    run_rows = RunRows(np.array(rows), table.num_runs)
    return DeviceScores(table, run_rows, top, ids, np.zeros(len(rows), np.float32)), logp, table


def test_memory_of_the_device_cannot_be_read() -> None:
    table = LogpTable(LazyDevice(), ROWS, VOCAB)
    for read in (
        lambda: table.on_device[0, 0],
        lambda: table.on_device + 1,
        lambda: np.where(table.on_device, 1, 0),
        lambda: table.on_device.tolist(),
        lambda: table.on_device.copy(),
    ):
        with pytest.raises(TypeError, match="memory of the device"):
            read()


@pytest.mark.parametrize("haste", [0.0, 1.0])
def test_rows_come_once_and_alone(haste: float) -> None:
    device = LazyDevice(haste)
    scores, logp, _ = scores_on(device, [0, 3, 1])
    assert device.num_bytes_to_host == 0
    rows = np.array([1, 2])
    for _ in range(2):
        assert (scores.logp_of(rows)[rows] == logp[rows]).all()
        assert device.num_bytes_to_host == 2 * VOCAB * 4
    assert (scores.logp == logp).all()
    assert device.num_bytes_to_host == 3 * VOCAB * 4


def test_single_tokens_come_alone_and_the_likeliest_are_there() -> None:
    device = LazyDevice()
    scores, logp, _ = scores_on(device, [2, 0, 1])
    rows, ids = np.array([0, 1, 2]), np.array([logp[0].argmax(), logp[1].argmin(), 7])
    assert (scores.of_tokens(rows, ids) == logp[rows, ids]).all()
    assert device.num_bytes_to_host <= 2 * 4


def test_excluded_tokens_are_told_but_not_chosen() -> None:
    scores, logp, _ = scores_on(LazyDevice(), [0, 1, 2])
    excluded, rows = np.array([3, 8]), np.array([0, 2])
    scores.exclude(excluded)
    expected = np.exp(logp[rows][:, excluded].astype(np.float64)).sum(axis=1)
    assert scores.excluded_probability(rows) == pytest.approx(expected)
    assert np.isneginf(scores.logp[:, excluded]).all()
    many = np.repeat(rows, 9)
    assert (scores.of_tokens(many, np.full(18, 8)) == logp[many, 8]).all()


def test_scores_that_a_later_run_has_overwritten_are_not_read() -> None:
    scores, _, table = scores_on(LazyDevice(), [0])
    table.num_runs += 1
    with pytest.raises(AssertionError, match="overwritten"):
        scores.logp_of(np.array([0]))
