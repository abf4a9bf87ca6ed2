"""Sums a decoder's hidden state, the word it read and its context up, before the output.

t~ = U s_i + V E y_{i-1} + C c_i (Cho et al. 2014, A.1.2; Bahdanau et al. 2015, A.2.2, where it is
s_{i-1}; here s_i as in their equation 4).
"""

from torch import Tensor, nn

from models.layers.equations import READOUTS


class Readout(nn.Module):
    """Computes the sum t~, of which several neighbours may make one number of the readout."""

    def __init__(
        self, kind: str, hidden_dim: int, embedding_dim: int, context_dim: int, readout_dim: int
    ) -> None:
        super().__init__()
        self.kind = READOUTS[kind]
        sum_dim = self.kind.width * readout_dim
        self.state = nn.Linear(hidden_dim, sum_dim)
        self.embedding = nn.Linear(embedding_dim, sum_dim, bias=False)
        self.context = nn.Linear(context_dim, sum_dim, bias=False)

    def forward(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        """Read out, each [..., its dimension] -> [..., readout_dim]."""
        total = self.state(hidden) + self.embedding(embedded) + self.context(context)
        width = self.kind.width
        readout: Tensor = self.kind.activate(*(total[..., i::width] for i in range(width)))
        return readout
