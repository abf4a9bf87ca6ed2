"""Global and local attention above stacked LSTMs (Luong, Pham and Manning 2015).

Equations are the paper's. Positions s of the source and t of the target count from 1. One addition:
if the target is longer than the source, local-m keeps attending to the source's end. The bridges,
the biases and the bidirectional encoder are those of OpenNMT-py (Klein et al. 2017), fairseq (Ott
et al. 2019) and JoeyNMT (Kreutzer et al. 2019).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.architectures.luong.config import LuongConfig
from models.batch import length_mask
from models.configs.recurrent import Global
from models.contract import DecoderState
from models.layers.attention import one_hot_of_largest
from models.layers.basic import Dropout
from models.layers.equations import gaussian
from models.layers.recurrent import (
    CELLS,
    CellState,
    CellStates,
    Recurrent,
    RecurrentCell,
    RecurrentTranslator,
    initialise,
    initialise_readout,
    reverse,
    soften_scores,
)
from models.layers.roles import ScoreMatrix


@dataclass(frozen=True)
class LuongState(DecoderState):
    """The encoded source, and the decoder's states."""

    memory: Tensor  # h_s [batch, source, encoder_dim]
    keys: Tensor  # their part in all scores [batch, source, hidden_dim]
    is_real: Tensor  # [batch, source] bool: padding is not attended to
    cells: CellStates  # of every layer
    fed: Tensor | None  # h~_{t-1} [batch, readout_dim], with input feeding
    num_read: int  # tokens of the target


class Dot(nn.Module):
    """Computes score(h_t, h_s) = h_t . h_s (3.1)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()

    def keys(self, memory: Tensor) -> Tensor:
        """Return the source's part in all scores: [batch, source, hidden_dim]."""
        return memory

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """Return scores [batch, target, source] of hidden [batch, target, hidden_dim]."""
        return torch.bmm(hidden, keys.mT)


class ScaledDot(Dot):
    """Computes h_t . h_s / sqrt(hidden_dim) (Vaswani et al. 2017, 3.2.1)."""

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        return super().forward(hidden, keys) / math.sqrt(keys.shape[-1])


class Location(Dot):
    """A score for each source position, a row of W_a h_t, whatever word is there (8)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.place = nn.Linear(config.hidden_dim, config.max_source_tokens, bias=False)

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        return self.place(hidden)[..., : keys.shape[1]]


class General(Dot):
    """Computes h_t . W_a h_s (3.1)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.key = ScoreMatrix(config.encoder_dim, config.hidden_dim)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)


class Concat(Dot):
    """Computes v_a . tanh(W_a [h_t; h_s]) (3.1); W_a's two halves are `query` and `key`."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.key = nn.Linear(config.encoder_dim, config.hidden_dim, bias=False)
        self.query = nn.Linear(config.hidden_dim, config.hidden_dim, bias=config.imported.biases)
        self.score = nn.Linear(config.hidden_dim, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        pairs = self.query(hidden)[:, :, None] + keys[:, None]
        return self.score(torch.tanh(pairs)).squeeze(-1)


SCORES: dict[str, type[Dot]] = {
    "dot": Dot,
    "scaled-dot": ScaledDot,
    "general": General,
    "concat": Concat,
    "location": Location,
}


class GlobalAttention(nn.Module):
    """Computes a_t, a softmax over the whole source (7), and c_t = sum_s a_t(s) h_s (3.1)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        self.score = SCORES[config.score](config)
        self.is_hard = config.hard_attention

    def forward(self, hidden: Tensor, times: Tensor, state: LuongState) -> tuple[Tensor, Tensor]:
        """Attend with hidden [batch, target, hidden_dim] at `times` [target]. Return the contexts,
        as large, and the weights [batch, target, source].
        """
        scores = self.score(hidden, state.keys)
        weights = self.align(scores, hidden, times, state.is_real[:, None])
        if self.is_hard and not self.training:
            weights = one_hot_of_largest(weights)
        return torch.bmm(weights.to(state.memory.dtype), state.memory), weights

    def align(self, scores: Tensor, hidden: Tensor, times: Tensor, mask: Tensor) -> Tensor:
        """Return weights [batch, target, source] for scores."""
        return scores.masked_fill(~mask, float("-inf")).softmax(-1)


class MonotonicAttention(GlobalAttention):
    """Attends to `window` positions on both sides of p_t = t: local-m (3.2)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        assert not isinstance(config.attention, Global)
        self.window = config.attention.window

    def align(self, scores: Tensor, hidden: Tensor, times: Tensor, mask: Tensor) -> Tensor:
        centers = self.centers(hidden, times[:, None], mask.sum(-1, keepdim=True))
        distances = torch.arange(1, mask.shape[-1] + 1, device=mask.device) - centers
        mask = mask & (distances.abs() <= self.window)
        return self.gaussian(super().align(scores, hidden, times, mask), distances)

    def centers(self, hidden: Tensor, times: Tensor, lengths: Tensor) -> Tensor:
        """Return p_t [batch, target, 1] for times [target, 1] and source lengths [batch, 1, 1]."""
        return torch.minimum(times, lengths)

    def gaussian(self, weights: Tensor, distances: Tensor) -> Tensor:
        """Return weights lowered by their distances s - p_t, both [batch, target, source]. Here
        unchanged.
        """
        return weights


class PredictiveAttention(MonotonicAttention):
    """Predicts p_t = S sigmoid(v_p . tanh(W_p h_t)) (9) and weighs by distance (10): local-p."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.center_hidden = nn.Linear(config.hidden_dim, config.hidden_dim, bias=False)
        self.center = nn.Linear(config.hidden_dim, 1, bias=False)

    def centers(self, hidden: Tensor, times: Tensor, lengths: Tensor) -> Tensor:
        score = self.center(torch.tanh(self.center_hidden(hidden)))
        return lengths * torch.sigmoid(score.float())

    def gaussian(self, weights: Tensor, distances: Tensor) -> Tensor:
        return weights * gaussian(distances, self.window)


ATTENTIONS: dict[str, type[GlobalAttention]] = {
    "global": GlobalAttention,
    "local-m": MonotonicAttention,
    "local-p": PredictiveAttention,
}


class StackedCells(nn.Module):
    """Layers of cells. Layers above the first read the outputs below, with dropout."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        fed_dim = config.readout_dim if config.input_feeding else 0
        dims = [config.embedding_dim] + [config.hidden_dim] * (config.num_layers - 1)
        self.layers = nn.ModuleList(
            RecurrentCell(config.cell, dim, config.hidden_dim, 0 if depth else fed_dim)
            for depth, dim in enumerate(dims)
        )
        self.dropout = Dropout(config.dropout)

    def step(self, gates: Tensor, cells: CellStates) -> tuple[Tensor, CellStates]:
        """Read one token, by the first layer's gates [batch, gates]. Return the top layer's output
        [batch, hidden_dim], and every layer's state.
        """
        following: list[CellState] = []
        for layer, cell in zip(self.layers, cells, strict=True):
            if following:
                gates = layer.input(self.dropout(following[-1][0]))
            following.append(layer(gates, cell))
        return following[-1][0], tuple(following)

    def forward(self, outputs: Tensor, cells: CellStates) -> tuple[Tensor, CellStates]:
        """Read embedded tokens [batch, target, embedding_dim], layer by layer, without input
        feeding. Return [batch, target, hidden_dim], and every layer's state.
        """
        following = []
        for depth, (layer, cell) in enumerate(zip(self.layers, cells, strict=True)):
            gates = layer.input(self.dropout(outputs) if depth else outputs)
            outputs, cell = layer.run(gates, cell)
            following.append(cell)
        return outputs, tuple(following)


class Luong(RecurrentTranslator[LuongState]):
    """Attends with the hidden state that has read a word."""

    config: LuongConfig

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.encoder = Recurrent(
            config.cell,
            config.embedding_dim,
            config.encoder_dim // config.num_directions,
            config.layers_of_encoder,
            bidirectional=config.imported.bidirectional,
            dropout=config.dropout,
        )
        self.bridge = BRIDGES[config.imported.bridge](config)
        self.decoder = StackedCells(config)
        self.attention = ATTENTIONS[config.attention.kind](config)
        inner_dim = config.encoder_dim + config.hidden_dim
        self.readout = nn.Linear(inner_dim, config.readout_dim, bias=config.imported.biases)
        self.apply(initialise)
        initialise_readout(self.readout, config.cell)
        if config.score == "general":
            soften_scores(self.attention.score.key, config.cell)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> LuongState:
        """The decoder begins with the encoder's last states."""
        is_reversed = self.config.reversed_source
        ids = reverse(source_ids, source_lengths) if is_reversed else source_ids
        memory, last = self.encoder(self.embed_source(ids), source_lengths)
        memory = self.dropout(reverse(memory, source_lengths) if is_reversed else memory)
        fed = memory.new_zeros(len(memory), self.config.readout_dim)
        return LuongState(
            memory,
            self.attention.score.keys(memory),
            length_mask(source_lengths, source_ids.shape[1]),
            self.bridge(last),
            fed if self.config.input_feeding else None,
            num_read=0,
        )

    def read(self, ids: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        embedded = self.embed(ids)
        read = self._read_feeding if self.config.input_feeding else self._read_at_once
        readouts, state = read(embedded, state)
        return self.dropout(readouts), state

    def _read_at_once(self, embedded: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        hidden, cells = self.decoder(embedded, state.cells)
        readouts = self._attend(hidden, state)
        return readouts, replace(state, cells=cells, num_read=state.num_read + hidden.shape[1])

    def _read_feeding(self, embedded: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        """Read token by token, each with the attentional vector of the one before (3.3)."""
        first, readouts = self.decoder.layers[0], []
        for gates in first.input(embedded).unbind(1):
            hidden, cells = self.decoder.step(gates + first.context(state.fed), state.cells)
            readout = self._attend(hidden[:, None], state)[:, 0]
            state = replace(state, cells=cells, fed=readout, num_read=state.num_read + 1)
            readouts.append(readout)
        return torch.stack(readouts, 1), state

    def _attend(self, hidden: Tensor, state: LuongState) -> Tensor:
        """Return h~_t = tanh(W_c [c_t; h_t]) (5): [batch, target, readout_dim]."""
        first = state.num_read + 1
        times = torch.arange(first, first + hidden.shape[1], device=hidden.device)
        context, _ = self.attention(hidden, times, state)
        readout = self.readout(torch.cat([context, hidden], -1))
        return torch.tanh(readout) if self.config.imported.readout == "tanh" else readout


class Bridge(nn.Module):
    """Each decoder layer begins with the encoder layer's last state (Luong et al. 2015)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        self.config, self.num_states = config, CELLS[config.cell].num_states

    def forward(self, last: Sequence[CellState]) -> CellStates:
        """Return the decoder's first states, given the encoder's last ones of every layer and
        direction, each [batch, its dim].
        """
        return join_directions(last, self.config.num_directions)


class ReluBridge(Bridge):
    """Computes relu(W [h_1; h_2; ...] + b) of a direction's last states in all layers.

    Hidden outputs and memory cells have separate weights. As in OpenNMT-py, with two directions the
    lower half of the layers stands for one and the upper half for the other.
    """

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        dim = config.hidden_dim // config.num_directions * config.num_layers
        self.parts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(self.num_states))

    def forward(self, last: Sequence[CellState]) -> CellStates:
        bridged = []
        for layer, states in zip(self.parts, zip(*last, strict=True), strict=True):
            joined = torch.cat(states, -1).unflatten(-1, (-1, layer.in_features))
            bridged.append(torch.relu(layer(joined)).flatten(1).chunk(len(last), -1))
        return super().forward(list(zip(*bridged, strict=True)))


class LinearBridge(Bridge):
    """Computes W h_l + b of each layer l, with separate weights for memory cells, as fairseq."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        sizes = config.encoder_dim, config.hidden_dim
        self.parts = nn.ModuleList(nn.Linear(*sizes) for _ in range(self.num_states))

    def forward(self, last: Sequence[CellState]) -> CellStates:
        states = super().forward(last)
        return tuple(
            tuple(layer(part) for layer, part in zip(self.parts, state, strict=True))
            for state in states
        )


class TopBridge(Bridge):
    """All layers, and LSTMs' memory cells, begin with the encoder's last output, as in JoeyNMT.

    With two directions it is the forward one, if that alone is as large.
    """

    def forward(self, last: Sequence[CellState]) -> CellStates:
        top = super().forward(last)[-1][0]
        return ((self.start(top),) * self.num_states,) * self.config.num_layers

    def start(self, top: Tensor) -> Tensor:
        """Return a first state [batch, hidden_dim], given the top layer's output [batch,
        encoder_dim].
        """
        return top[:, : self.config.hidden_dim]


class TanhBridge(TopBridge):
    """All layers begin with tanh(W h + b) of the encoder's last output."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.parts = nn.ModuleList([nn.Linear(config.encoder_dim, config.hidden_dim)])

    def start(self, top: Tensor) -> Tensor:
        return torch.tanh(self.parts[0](top))


class ZeroBridge(TopBridge):
    """All layers begin with zeros."""

    def start(self, top: Tensor) -> Tensor:
        return top.new_zeros(len(top), self.config.hidden_dim)


def join_directions(last: Sequence[CellState], num_directions: int) -> CellStates:
    """Put the directions of each layer side by side."""
    layers = [last[i : i + num_directions] for i in range(0, len(last), num_directions)]
    return tuple(
        tuple(torch.cat(parts, -1) for parts in zip(*layer, strict=True)) for layer in layers
    )


BRIDGES: dict[str, type[Bridge]] = {
    "none": Bridge,
    "relu": ReluBridge,
    "linear": LinearBridge,
    "top": TopBridge,
    "tanh": TanhBridge,
    "zeros": ZeroBridge,
}
