"""Computes the recurrence of Mamba-2, state space duality (Dao and Gu 2024).

Each head keeps a matrix h [N, P] that decays by a number and gains an outer product (equation 2 of
"Transformers are SSMs", with A_t a multiple of the identity as in 5.1, discretised as in Mamba):

    h_t = exp(dt_t A) h_{t-1} + B_t (dt_t x_t)^T        y_t = C_t^T h_t

Within a chunk all positions are computed at once by the dual form, attention without softmax whose
mask L holds the decays between two positions (5.1); from chunk to chunk the state is carried (6,
listing 1).
"""

import torch
from torch import Tensor

CHUNK = 64  # positions: the work within a chunk grows with it, the number of chunks shrinks


def scan(x: Tensor, decay: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Go through all positions: y [batch, length, heads, P], and the last state.

    x: dt_t x_t [batch, length, heads, P]. decay: dt_t A [batch, length, heads], logarithms.
    b, c: B_t and C_t of each head [batch, length, heads, N]. state: [batch, heads, N, P].
    """
    outputs = []
    x_s, decays, b_s, c_s = (each.split(CHUNK, 1) for each in (x, decay, b, c))
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
    """Make L [batch, heads, to, from] of running sums [batch, length, heads] of logarithms: 0 for
    what is yet to come.
    """
    sums = total.transpose(1, 2)
    between = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    length = total.shape[1]
    is_to_come = torch.ones(length, length, dtype=torch.bool, device=total.device).triu(1)
    return between.masked_fill(is_to_come, -torch.inf).exp()
