"""Attends over a recurrent network's own earlier outputs (Daniluk et al. 2017)."""

import torch
from torch import Tensor, nn

from models.layers.language import OutputReadout

POSITIONS_AT_ONCE = 16


class AttentiveReadout(OutputReadout):
    """Cuts the output h_t into key k_t, value v_t and prediction p_t: as one part all three are
    h_t, in two the value is also the prediction. With Y the keys before k_t and V their values,

        M = tanh(W_Y Y + (W_h k_t) 1^T)    weights a = softmax(w^T M)
        r = V a^T                          readout h* = tanh(W_r r + W_x p_t)

    In one part it is the paper's "attention for neural language modeling", in two "key-value
    attention", in three "key-value-predict attention". Where the paper keeps L earlier positions,
    `window` None keeps all. At the first position there is nothing to attend to and r is 0; up to
    the L-th, attention is over what there is.
    """

    def __init__(
        self,
        hidden_dim: int,
        num_parts: int,
        attention_dim: int,
        readout_dim: int,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.reach = window
        self.num_parts, part_dim = num_parts, hidden_dim // num_parts
        self.key = nn.Linear(part_dim, attention_dim, bias=False)  # W_Y
        self.query = nn.Linear(part_dim, attention_dim, bias=False)  # W_h
        self.score = nn.Linear(attention_dim, 1, bias=False)  # w
        self.combine = nn.Linear(2 * part_dim, readout_dim, bias=False)  # [W_r, W_x]

    def forward(self, outputs: Tensor, num_new: int) -> Tensor:
        parts = outputs.chunk(self.num_parts, -1)
        keys, values, predictions = parts[0], parts[min(1, len(parts) - 1)], parts[-1]
        first = outputs.shape[1] - num_new
        queries, projected = self.query(keys[:, first:]), self.key(keys)
        contexts = [
            self._attend(some, projected, values, first + POSITIONS_AT_ONCE * i)
            for i, some in enumerate(queries.split(POSITIONS_AT_ONCE, 1))
        ]
        joined = torch.cat([torch.cat(contexts, 1), predictions[:, first:]], -1)
        return torch.tanh(self.combine(joined))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, start: int) -> Tensor:
        """Compute contexts [batch, new, part_dim] of positions from `start` on, whose queries are
        [batch, new, attention_dim]; keys and values are of all positions.
        """
        end = start + queries.shape[1]
        begin = 0 if self.reach is None else max(0, start - self.reach)
        keys, values = keys[:, begin:end], values[:, begin:end]
        position = torch.arange(begin, end, device=keys.device)
        distance = position[start - begin :, None] - position
        is_seen = (distance > 0) & (distance <= (self.reach or end))
        energy = self.score(torch.tanh(queries[:, :, None] + keys[:, None])).squeeze(-1)
        energy = energy.masked_fill(~is_seen, torch.finfo(energy.dtype).min)
        weights = energy.softmax(-1).masked_fill(~is_seen, 0.0)
        return weights.to(values.dtype) @ values
