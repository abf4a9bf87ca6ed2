"""Mamba (Gu and Dao 2023): selective state spaces, no attention, no positions.

A layer projects its input to x and a gate z. x goes through a short causal convolution; of the
result the step sizes dt, B and C are made, so that what is kept and forgotten depends on the text
(algorithm 2). Each channel of x keeps N numbers, which decay at their own rates A:

    h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t        y_t = C_t h_t + D x_t

y, multiplied by silu(z), is projected back.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from models.architectures.mamba.config import MambaConfig
from models.layers.state_space import LayerState, Mixer, StateSpaceModel, draw_steps


class MambaMixer(Mixer):
    """One layer's update. Its parameters have the paper's names; `low` are the low-rank numbers
    that dt is made of.
    """

    def __init__(self, config: MambaConfig) -> None:
        super().__init__()
        self.config, inner, size = config, config.inner_dim, config.conv_kernel_size
        outer = partial(nn.Linear, bias=config.imported.biases)
        inside = partial(nn.Linear, inner, bias=False)
        self.x, self.z = outer(config.d_model, inner), outer(config.d_model, inner)
        self.conv = nn.Conv1d(inner, inner, size, groups=inner, bias=config.imported.conv_bias)
        self.low, self.B, self.C = map(inside, (config.step_rank, *(config.state_dim,) * 2))
        self.dt = nn.Linear(config.step_rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, config.state_dim))
        self.D = nn.Parameter(torch.empty(inner))
        self.output = outer(inner, config.d_model)

    def forward(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        past, ssm_state = state
        joined = torch.cat([past, self.x(u)], 1)
        x = silu(self.conv(joined.transpose(1, 2)).transpose(1, 2))
        dt = softplus(self.dt(self.low(x)))
        y, ssm_state = scan(x, dt, -self.A_log.exp(), self.B(x), self.C(x), ssm_state)
        y = (y + x * self.D) * silu(self.z(u))
        return self.output(y), (joined[:, joined.shape[1] - past.shape[1] :], ssm_state)

    def zeros(self, x: Tensor) -> LayerState:
        config, batch = self.config, x.shape[0]
        window = x.new_zeros(batch, config.conv_kernel_size - 1, config.inner_dim)
        return window, x.new_zeros(batch, config.inner_dim, config.state_dim)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights as in section 3.6: A is -1, -2, ..., -N in each channel."""
        self.A_log.copy_(torch.arange(1, self.config.state_dim + 1).log().expand_as(self.A_log))
        draw_steps(self.dt.bias)
        nn.init.ones_(self.D)


def scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return y [batch, length, inner] without D x, and the last state [batch, inner, N].

    x, dt: [batch, length, inner]. a: [inner, N]. b, c: [batch, length, N].
    """
    outputs = []
    for t in range(x.shape[1]):
        step = dt[:, t, :, None]
        state = (step * a).exp() * state + step * x[:, t, :, None] * b[:, t, None]
        outputs.append((state * c[:, t, None]).sum(-1))
    return torch.stack(outputs, 1), state


class Mamba(StateSpaceModel):
    """Layers between embedding and output."""

    def __init__(self, config: MambaConfig) -> None:
        super().__init__(config, (MambaMixer(config) for _ in range(config.num_layers)))
