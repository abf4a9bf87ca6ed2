"""Mixtures of experts: networks of which each token uses a few (Shazeer et al. 2017)."""

import torch
from torch import Tensor, nn

from models.configs.transformer import ExpertGroups, Experts
from models.layers.basic import FeedForward


class MixtureOfExperts(nn.Module):
    """Sums the outputs of the experts with the highest scores, weighted by these."""

    selection_bias: Tensor

    def __init__(self, d_model: int, config: Experts, activation: str) -> None:
        super().__init__()
        self.config, sizes = config, (d_model, config.ffn_dim, activation)
        self.router = nn.Linear(d_model, config.num_experts, bias=config.bias)
        self.experts = nn.ModuleList(
            FeedForward(*sizes, is_gated=True, bias=config.bias, limits=config.limits)
            for _ in range(config.num_experts)
        )
        if config.shared_ffn_dim is not None:
            shared = (d_model, config.shared_ffn_dim, activation)
            self.shared = FeedForward(*shared, is_gated=True, bias=False)
        if config.has_shared_gate:
            self.shared_gate = nn.Linear(d_model, 1, bias=False)
        if config.selection_bias:
            self.register_buffer("selection_bias", torch.zeros(config.num_experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum for every token of x [batch, length, d_model]."""
        tokens = x.flatten(0, -2)
        shares, total = self.shares(tokens), torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows = shares[:, number].nonzero()[:, 0]
            weighted = expert(tokens[rows]) * shares[rows, number, None]
            total = total.index_add(0, rows, weighted.to(total.dtype))
        if self.config.shared_ffn_dim is not None:
            shared = self.shared(tokens)
            is_gated = self.config.has_shared_gate
            total = total + (self.shared_gate(tokens).sigmoid() * shared if is_gated else shared)
        return total.view_as(x)

    def shares(self, tokens: Tensor) -> Tensor:
        """Return the weights of all experts [tokens, experts]; 0 of those not used."""
        scores = self.router(tokens).float()
        shares = scores.sigmoid() if self.config.weighting == "sigmoid" else scores.softmax(-1)
        ranked = shares + self.selection_bias if self.config.selection_bias else shares
        if self.config.groups is not None:
            ranked = within_best_groups(ranked, self.config.groups)
        numbers = ranked.topk(self.config.num_used).indices
        best = shares.gather(-1, numbers)
        if self.config.normalised:
            best = best / best.sum(-1, keepdim=True)
        return torch.zeros_like(shares).scatter(-1, numbers, best * self.config.scale)


def within_best_groups(ranked: Tensor, groups: ExpertGroups) -> Tensor:
    """Return the scores [tokens, experts] of the groups that may be used, and -inf of others."""
    by_group = ranked.unflatten(-1, (groups.number, -1))
    sums = by_group.topk(groups.num_summed).values.sum(-1)
    used = sums.topk(groups.num_used).indices
    is_out = torch.ones_like(sums).scatter(-1, used, 0.0) > 0
    return by_group.masked_fill(is_out[..., None], float("-inf")).flatten(-2)
