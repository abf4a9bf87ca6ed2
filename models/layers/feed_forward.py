"""The feed-forward network between attention layers (Vaswani et al. 2017, 3.3)."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import gelu, relu

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),  # GPT-2's
}


class FeedForward(nn.Module):
    """down(activation(up(x)))."""

    def __init__(self, d_model: int, ffn_dim: int, activation: str) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, ffn_dim)
        self.down = nn.Linear(ffn_dim, d_model)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))
