"""A Transformer encoder with a recurrent decoder (Kim et al. 2019).

The decoder reads the target with simpler simple recurrent units in place of self-attention, so that
its state does not grow. A deep encoder with a shallow decoder costs no quality (Kasai et al. 2021).
As in Marian, decoder positions remain, and the unit is a residual sublayer like self-attention.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from models.configs.transformer import BaseTransformerConfig
from models.layers.attention import Past
from models.layers.transformer import BaseTransformer, DecoderLayer, norm_of

FORGET_BIAS = 2.0  # sigmoid(2) = 0.88


class SSRU(nn.Module):
    """f_t = sigmoid(W_t x_t + b_f), c_t = f_t c_{t-1} + (1 - f_t) W x_t, o_t = relu(c_t)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.forget = nn.Linear(dim, dim)
        self.input = nn.Linear(dim, dim, bias=False)

    @torch.no_grad()
    def remember(self) -> None:
        """Make cells forget slowly at first, as in LSTMs: with a bias of 0 a word is down to an
        eighth after three more.
        """
        self.forget.bias.fill_(FORGET_BIAS)

    def forward(self, x: Tensor, cell: Tensor | None) -> tuple[Tensor, Tensor]:
        """Read x [batch, length, dim] after a cell [batch, dim], zeros if None. Return outputs, as
        large, and the last cell.

        Cells are sums over many positions: they keep x's precision where products are in bf16.
        """
        forget = torch.sigmoid(self.forget(x).to(x.dtype))
        updates = (1 - forget) * self.input(x)
        cells = []
        for gate, update in zip(forget.unbind(1), updates.unbind(1), strict=True):
            cell = update if cell is None else torch.addcmul(update, gate, cell)
            cells.append(cell)
        return relu(torch.stack(cells, 1)), cells[-1]


class SSRUDecoderLayer(DecoderLayer):
    """Keeps one cell of the past. It depends on nothing later, so no mask is needed."""

    def __init__(self, config: BaseTransformerConfig) -> None:
        super().__init__(config)
        self.recurrence = SSRU(config.d_model)
        self.recurrence_norm = norm_of(config)

    def read_target(self, x: Tensor, past: Past, mask: Tensor) -> tuple[Tensor, Past]:
        before = past[0] if past else None
        update, cell = self.recurrence(self.before_sublayer(x, self.recurrence_norm), before)
        return self.after_sublayer(x, update, self.recurrence_norm), (cell,)


class TransformerSSRU(BaseTransformer):
    """Decodes with recurrent layers, which forget slowly at first."""

    decoder_layer = SSRUDecoderLayer

    def __init__(self, config: BaseTransformerConfig) -> None:
        super().__init__(config)
        for layer in self.decoder.layers:
            layer.recurrence.remember()
