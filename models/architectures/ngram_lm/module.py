"""N-gram RNN (Daniluk et al. 2017): parts of the last outputs predict, without attention.

The readout has the embedding's size, so that both can share a table; in the paper it has a part's.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from models.architectures.ngram_lm.config import NgramLMConfig
from models.layers.recurrent_language_model import BaseReadout, RecurrentLanguageModel


class NgramReadout(BaseReadout):
    """Computes h*_t = tanh(W_N [h_t^1; h_{t-1}^2; ...; h_{t-N+2}^{N-1}]), with outputs h_t of N - 1
    parts.

    Outputs before the first are zeros.
    """

    def __init__(self, config: NgramLMConfig) -> None:
        super().__init__()
        self.num_parts, self.reach = config.num_parts, config.num_parts - 1
        self.combine = nn.Linear(config.hidden_dim, config.embedding_dim, bias=False)

    def forward(self, outputs: Tensor, num_new: int) -> Tensor:
        padded = pad(outputs, (0, 0, self.num_parts - 1, 0))
        parts = padded.chunk(self.num_parts, -1)
        ends = range(padded.shape[1], 0, -1)  # each part from one position earlier
        aligned = [part[:, end - num_new : end] for part, end in zip(parts, ends, strict=False)]
        return torch.tanh(self.combine(torch.cat(aligned, -1)))


class NgramLM(RecurrentLanguageModel):
    """An N-gram language model of order N."""

    def __init__(self, config: NgramLMConfig) -> None:
        super().__init__(config, NgramReadout(config))
