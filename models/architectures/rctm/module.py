"""RCTM I: a recurrent decoder reads one vector that convolutions make of a sentence.

The oldest architecture here: the source's vector is made without recurrence or attention. The
nonlinearity is tanh in both parts. Deviations: the decoder may have any of the cells; a linear
layer brings its output to `readout_dim`, so that the output can share the embedding's table.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.architectures.rctm.config import RctmConfig
from models.batch import length_mask
from models.contract import DecoderState
from models.layers.recurrent import CellState, RecurrentCell, RecurrentTranslator, initialise


@dataclass(frozen=True)
class RctmState(DecoderState):
    """The sentence's part in every step, and the decoder's hidden state."""

    context: Tensor  # S csm(e) [batch, gates]
    cell: CellState


class SentenceModel(nn.Module):
    """Folds the words' vectors, columns E_1, into one: E_{i+1} = tanh(K_{i+1} * E_i).

    K_i holds one kernel of i weights for each row, a feature, which is convolved with it along the
    sentence: i columns become one, i - 1 fewer are left. The last convolution uses as many of a
    kernel's first weights as there are columns.
    """

    def __init__(self, config: RctmConfig) -> None:
        super().__init__()
        self.kernels = nn.ParameterList(
            torch.randn(config.embedding_dim, 1, size) * size**-0.5 for size in config.kernel_sizes
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return csm(e) [batch, embedding_dim] of x [batch, source, embedding_dim].

        Columns beyond a row's end are zeros, which shortens its last kernel.
        """
        for kernel in self.kernels:
            if x.shape[1] == 1:
                break
            is_done = (lengths == 1)[:, None, None]
            x = x * length_mask(lengths, x.shape[1])[..., None]
            convolved = torch.tanh(_convolve(x, kernel[:, 0]))
            x = torch.where(is_done, x[:, : convolved.shape[1]], convolved)
            lengths = (lengths - kernel.shape[-1] + 1).clamp(min=1)
        return x[:, 0]


class Rctm(RecurrentTranslator[RctmState]):
    """Computes h' = sigma(R h + I v(f) + S csm(e)) and o = O h'."""

    config: RctmConfig

    def __init__(self, config: RctmConfig) -> None:
        super().__init__(config)
        embedding_dim, dim = config.embedding_dim, config.hidden_dim
        self.sentence = SentenceModel(config)
        self.decoder = RecurrentCell(config.cell, embedding_dim, dim, context_dim=embedding_dim)
        self.readout = nn.Linear(dim, config.readout_dim, bias=False)
        self.apply(initialise)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> RctmState:
        """Compute S csm(e). The hidden state before the first word is 0."""
        sentence = self.sentence(self.embed_source(source_ids), source_lengths)
        hidden = sentence.new_zeros(len(sentence), self.config.hidden_dim)
        return RctmState(self.decoder.context(sentence), self.decoder.begin(hidden))

    def read(self, ids: Tensor, state: RctmState) -> tuple[Tensor, RctmState]:
        gates = self.decoder.input(self.embed(ids)) + state.context[:, None]
        hidden, cell = self.decoder.run(gates, state.cell)
        return self.dropout(self.readout(hidden)), replace(state, cell=cell)


def _convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """Convolve x [batch, length, dim] with a kernel [dim, size] -> [.., length - size + 1 or 1,
    dim].

    Shifted products are faster on a CPU than a convolution with as many groups as features.
    """
    length, size = x.shape[1], min(kernel.shape[1], x.shape[1])
    columns = [x[:, i : i + length - size + 1] * kernel[:, i] for i in range(size)]
    return torch.stack(columns).sum(0)
