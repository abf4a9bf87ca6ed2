"""Dropout: how much is dropped, what the rest is scaled by, and that evaluation has none of it."""

import pytest
import torch

from models.layers.basic import Dropout


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.9])
def test_so_many_are_dropped_and_the_sum_stays(probability: float) -> None:
    torch.manual_seed(1)
    dropped = Dropout(probability)(torch.ones(1001, 1003))
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / (1 - probability)])
    # The standard deviation of a mean of a million draws is 0.0005 at most.
    assert (dropped == 0).float().mean().item() == pytest.approx(probability, abs=0.002)


def test_neighbours_and_steps_are_independent() -> None:
    torch.manual_seed(1)
    layer = Dropout(0.5)
    first, second = (layer(torch.ones(1000, 1000)) - 1 for _ in range(2))
    assert (first * second).mean().abs() < 0.005
    for distance in (1, 2, 3, 4, 8):
        assert (first[:, distance:] * first[:, :-distance]).mean().abs() < 0.005


def test_gradients_pass_where_features_did() -> None:
    x = torch.ones(64, 64, dtype=torch.bfloat16, requires_grad=True)
    y = Dropout(0.25)(x)
    y.sum().backward()
    assert y.dtype is torch.bfloat16
    assert x.grad is not None and torch.equal(x.grad, y.detach())


def test_evaluation_and_a_probability_of_zero_change_nothing() -> None:
    x = torch.randn(8, 8)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
