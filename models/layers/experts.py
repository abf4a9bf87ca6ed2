"""Mixtures of experts: networks of which each token uses a few (Shazeer et al. 2017)."""

import torch
from torch import Tensor, nn

from models.configs.transformer import Experts
from models.layers.basic import FeedForward


class MixtureOfExperts(nn.Module):
    """Sums the outputs of the experts with the highest scores, weighted by their softmax."""

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
            self.shared_gate = nn.Linear(d_model, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum for every token of x [batch, length, d_model]."""
        tokens = x.flatten(0, -2)
        shares, total = self.shares(tokens), torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows = shares[:, number].nonzero()[:, 0]
            found = expert(tokens[rows]) * shares[rows, number, None]
            total = total.index_add(0, rows, found.to(total.dtype))
        if self.config.shared_ffn_dim is not None:
            total = total + self.shared_gate(tokens).sigmoid() * self.shared(tokens)
        return total.view_as(x)

    def shares(self, tokens: Tensor) -> Tensor:
        """Return the weights of all experts [tokens, experts]; 0 of those not used."""
        chances = self.router(tokens).float().softmax(-1)
        best, numbers = chances.topk(self.config.num_used)
        if self.config.normalised:
            best = best / best.sum(-1, keepdim=True)
        return torch.zeros_like(chances).scatter(-1, numbers, best)
