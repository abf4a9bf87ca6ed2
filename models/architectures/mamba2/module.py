"""Mamba-2 (Dao and Gu 2024, "Transformers are SSMs", section 7): no attention, no positions.

Everything that a layer needs is projected from its input at once: the gate z, and x, B, C and dt of
the state space (figure 6, right). x, B and C go through a short causal convolution. The state
space's output, with D x added, is gated, normalised and projected back. A text costs the same
memory however long it is: a layer keeps one matrix for each head, and the convolution's last
inputs.

Each head keeps a matrix h [N, P] that decays by a number and gains an outer product (equation 2,
with A_t a multiple of the identity as in 5.1, discretised as in Mamba):

    h_t = exp(dt_t A) h_{t-1} + B_t (dt_t x_t)^T        y_t = C_t^T h_t

Within a chunk all positions are computed at once by the dual form, attention without softmax whose
mask L holds the decays between two positions (5.1). From chunk to chunk the state is carried (6,
listing 1).
"""

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from models.architectures.mamba2.config import Mamba2Config
from models.layers.state_space import LayerState, Mixer, StateSpaceModel, draw_steps

LARGEST_DECAY = 16.0  # -A of fresh weights


class GroupedNorm(nn.Module):
    """Divides the heads of each group by the root of their mean square."""

    def __init__(self, dim: int, num_groups: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self._shape, self._epsilon = (num_groups, dim // num_groups), epsilon

    def forward(self, x: Tensor) -> Tensor:
        groups = x.unflatten(-1, self._shape)
        return rms_norm(groups, self._shape[1:], eps=self._epsilon).flatten(-2) * self.weight


class Mamba2Mixer(Mixer):
    """One layer's update. Its parameters have the paper's names."""

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__()
        self.config, inner = config, config.inner_dim
        linear, sizes = partial(nn.Linear, bias=config.imported.biases), config.projection_sizes
        self.z, self.x = linear(config.d_model, sizes["z"]), linear(config.d_model, sizes["x"])
        self.B, self.C = linear(config.d_model, sizes["B"]), linear(config.d_model, sizes["C"])
        self.dt = linear(config.d_model, sizes["dt"])
        channels, size = sum(config.convolution_sizes.values()), config.conv_kernel_size
        self.conv = nn.Conv1d(
            channels, channels, size, groups=channels, bias=config.imported.conv_bias
        )
        self.A_log, self.D, self.dt_bias = (
            nn.Parameter(torch.empty(config.num_heads)) for _ in range(3)
        )
        self.norm = GroupedNorm(inner, config.num_groups, config.norm_epsilon)
        self.output = linear(inner, config.d_model)

    def forward(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        past, matrices = state
        read = torch.cat([self.x(u), self.B(u), self.C(u)], -1)
        joined = torch.cat([past, read], 1)
        x, b, c = self._heads(silu(self.conv(joined.transpose(1, 2)).transpose(1, 2)))
        dt = softplus(self.dt(u) + self.dt_bias)  # [batch, new, heads]
        y, matrices = scan(x * dt.unsqueeze(-1), -dt * self.A_log.exp(), b, c, matrices)
        y = (y + x * self.D.unsqueeze(-1)).flatten(2)
        following = joined[:, joined.shape[1] - past.shape[1] :], matrices
        return self.output(self.norm(y * silu(self.z(u)))), following

    def _heads(self, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x [batch, new, heads, P], and B and C of every head [batch, new, heads, N]."""
        config = self.config
        x, b, c = convolved.to(self.D.dtype).split(list(config.convolution_sizes.values()), -1)
        shared = config.num_heads // config.num_groups
        b, c = (
            part.unflatten(-1, (config.num_groups, config.state_dim)).repeat_interleave(shared, 2)
            for part in (b, c)
        )
        return x.unflatten(-1, (config.num_heads, config.head_dim)), b, c

    def zeros(self, x: Tensor) -> LayerState:
        config, batch = self.config, x.shape[0]
        window = (batch, config.conv_kernel_size - 1, sum(config.convolution_sizes.values()))
        matrices = (batch, config.num_heads, config.state_dim, config.head_dim)
        return x.new_zeros(window), x.new_zeros(matrices)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw decays so that heads forget at all speeds, from one token to a thousand."""
        nn.init.uniform_(self.A_log, 1.0, LARGEST_DECAY).log_()
        draw_steps(self.dt_bias)
        nn.init.ones_(self.D)
        self.output.weight /= math.sqrt(self.config.num_layers)  # that many are summed


class Mamba2(StateSpaceModel):
    """Layers between embedding and output."""

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__(config, (Mamba2Mixer(config) for _ in range(config.num_layers)))


CHUNK = 64  # positions: the work within a chunk grows with it, the number of chunks shrinks


def scan(x: Tensor, decay: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return y [batch, length, heads, P] of all positions, and the last state.

    x: dt_t x_t [batch, length, heads, P]. decay: dt_t A [batch, length, heads], logarithms.
    b, c: B_t and C_t of each head [batch, length, heads, N]. state: [batch, heads, N, P].
    """
    outputs = []
    x_s, decays, b_s, c_s = (part.split(CHUNK, 1) for part in (x, decay, b, c))
    for own_x, own_decay, own_b, own_c in zip(x_s, decays, b_s, c_s, strict=True):
        y, state = _chunk(own_x, own_decay, own_b, own_c, state)
        outputs.append(y)
    return torch.cat(outputs, 1), state


def _chunk(x: Tensor, decay: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    total = decay.cumsum(1)  # since the chunk began
    scores = torch.einsum("blhn,bshn->bhls", c, b) * decays_between(total)
    within = torch.einsum("bhls,bshp->blhp", scores, x)
    before = torch.einsum("blhn,bhnp->blhp", c, state) * total.exp().unsqueeze(-1)
    last = total[:, -1:]
    gained = torch.einsum("bshn,bshp->bhnp", b * (last - total).exp().unsqueeze(-1), x)
    return within + before, state * last.exp()[:, 0, :, None, None] + gained


def decays_between(total: Tensor) -> Tensor:
    """Return L [batch, heads, to, from], given running sums [batch, length, heads] of logarithms; 0
    for later positions.
    """
    sums = total.transpose(1, 2)
    between = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    length = total.shape[1]
    is_to_come = torch.ones(length, length, dtype=torch.bool, device=total.device).triu(1)
    return between.masked_fill(is_to_come, -torch.inf).exp()
