"""Recurrent language models: cells read a text, then all of its positions are read out at once.

Architectures differ in how outputs of the top layer become the vector that predicts the next token.
Nothing of that comes back into the cells, so that they can read the whole text first.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.configs.recurrent import RecurrentLanguageModelConfig
from models.contract import DecoderState, LanguageModel
from models.layers.basic import Dropout, VocabularyLayers
from models.layers.recurrent import CellStates, Recurrent, initialise

POSITIONS_AT_ONCE = 16


class BaseReadout(nn.Module, ABC):
    """Turns the cells' outputs into the vectors that predict the next token.

    reach: how many outputs before its own a position reads; None: all of them.
    """

    reach: int | None = 0

    @abstractmethod
    def forward(self, outputs: Tensor, num_new: int) -> Tensor:
        """Return vectors [batch, num_new, embedding_dim] of the `num_new` last positions, given
        outputs [batch, length, hidden_dim] from the first position within their reach on.
        """


class AttentiveReadout(BaseReadout):
    """Attends over earlier outputs (Daniluk et al. 2017).

    The output h_t is cut into key k_t, value v_t and prediction p_t. In one part all three are h_t,
    in two the value is also the prediction. With Y the keys before k_t and V their values:

        M = tanh(W_Y Y + (W_h k_t) 1^T)    weights a = softmax(w^T M)
        r = V a^T                          readout h* = tanh(W_r r + W_x p_t)

    One part is the paper's "attention for neural language modeling", two are "key-value attention",
    three "key-value-predict attention". The paper keeps L earlier positions; `window` None keeps
    all. At the first position there is nothing to attend to and r is 0; up to the L-th, attention
    is over the positions there are.
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
        """Return contexts [batch, new, part_dim] of positions from `start` on. queries: [batch,
        new, attention_dim]. Keys and values are of all positions.
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


@dataclass(frozen=True)
class RecurrentState(DecoderState):
    """The cells' states, and the outputs that the readout may still read."""

    cells: CellStates = ()  # of every layer; empty: zeros
    outputs: Tensor | None = None  # [batch, within reach, hidden_dim]


class RecurrentLanguageModel(VocabularyLayers, LanguageModel[RecurrentState]):
    """The base of recurrent language models, which differ in their readout."""

    config: RecurrentLanguageModelConfig

    def __init__(self, config: RecurrentLanguageModelConfig, readout: BaseReadout) -> None:
        dim, scale = config.embedding_dim, config.scale_of_embeddings
        super().__init__(config, dim, scale=scale, has_bias=True)
        sizes = dim, config.hidden_dim, config.num_layers
        self.recurrent = Recurrent(config.cell, *sizes, dropout=config.dropout)
        self.readout = readout
        self.dropout = Dropout(config.dropout)
        self.apply(initialise)

    def empty_state(self) -> RecurrentState:
        return RecurrentState()

    def read(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        outputs, cells = self.recurrent(self.dropout(self.embed(ids)), initial=state.cells)
        if state.outputs is not None:
            outputs = torch.cat([state.outputs, outputs], 1)
        readout = self.dropout(self.readout(outputs, ids.shape[1]))
        return readout, RecurrentState(cells, self._within_reach(outputs))

    def _within_reach(self, outputs: Tensor) -> Tensor:
        """Return the outputs that the next position may read."""
        reach, length = self.readout.reach, outputs.shape[1]
        return outputs if reach is None else outputs[:, max(0, length - reach) :]
