"""The feed-forward network between attention layers (Vaswani et al. 2017, 3.3), gated or not
(Shazeer 2020).
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from models.layers.equations import activated

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),  # GPT-2's
    "swish": silu,
}


class FeedForward(nn.Module):
    """Computes down(activation(up(x))); gated: down(activation(gate(x)) * up(x))."""

    def __init__(
        self,
        d_model: int,
        ffn_dim: int,
        activation: str,
        *,
        is_gated: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, ffn_dim, bias=bias) if is_gated else None
        self.up = nn.Linear(d_model, ffn_dim, bias=bias)
        self.down = nn.Linear(ffn_dim, d_model, bias=bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        parts = [layer(x) for layer in (self.gate, self.up) if layer is not None]
        return self.down(activated(self.activation, *parts))
