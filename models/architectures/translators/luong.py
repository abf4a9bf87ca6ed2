"""Luong, Pham and Manning 2015: stacked LSTMs with global or local attention and input feeding.

Equations are the paper's. Positions s of the source and t of the target count from 1. One addition:
where the target is longer than the source, local-m goes on looking around the source's end. The
bridge, the biases and the encoder of two directions are those of OpenNMT-py (Klein et al. 2017).
"""

import torch
from torch import Tensor, nn

from models.batch import Batch, length_mask
from models.configs.translators.luong import LuongConfig
from models.layers.cells import CELLS, RecurrentCell, State
from models.layers.dropout import Dropout
from models.layers.recurrent import Recurrent, initialise, initialise_readout
from models.layers.vocabulary import VocabularyModule


class Dot(nn.Module):
    """score(h_t, h_s) = h_t . h_s (3.1)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()

    def keys(self, memory: Tensor) -> Tensor:
        """What the source's part in all scores is: [batch, source, hidden_dim]."""
        return memory

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        """hidden [batch, target, hidden_dim] -> [batch, target, source]."""
        return torch.bmm(hidden, keys.mT)


class General(Dot):
    """h_t . W_a h_s (3.1)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.key = nn.Linear(config.hidden_dim, config.hidden_dim, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        return self.key(memory)


class Concat(General):
    """v_a . tanh(W_a [h_t; h_s]) (3.1); W_a's two halves are `query` and `key`."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.hidden_dim, config.hidden_dim, bias=config.biases)
        self.score = nn.Linear(config.hidden_dim, 1, bias=False)

    def forward(self, hidden: Tensor, keys: Tensor) -> Tensor:
        pairs = self.query(hidden)[:, :, None] + keys[:, None]
        return self.score(torch.tanh(pairs)).squeeze(-1)


SCORES: dict[str, type[Dot]] = {"dot": Dot, "general": General, "concat": Concat}


class GlobalAttention(nn.Module):
    """a_t = softmax over the whole source (7), c_t = sum_s a_t(s) h_s (3.1)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        self.score = SCORES[config.score](config)

    def forward(self, hidden: Tensor, times: Tensor, state: dict) -> tuple[Tensor, Tensor]:
        """hidden [batch, target, hidden_dim] at `times` [target].

        Returns the contexts [batch, target, hidden_dim] and weights [batch, target, source].
        """
        scores = self.score(hidden, state["keys"])
        weights = self.align(scores, hidden, times, state["mask"][:, None])
        return torch.bmm(weights.to(state["memory"].dtype), state["memory"]), weights

    def align(self, scores: Tensor, hidden: Tensor, times: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, float("-inf")).softmax(-1)


class MonotonicAttention(GlobalAttention):
    """local-m: within `window` positions to both sides of p_t = t (3.2)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        assert config.window is not None
        self.window = config.window

    def align(self, scores: Tensor, hidden: Tensor, times: Tensor, mask: Tensor) -> Tensor:
        centers = self.centers(hidden, times[:, None], mask.sum(-1, keepdim=True))
        distances = torch.arange(1, mask.shape[-1] + 1, device=mask.device) - centers
        mask = mask & (distances.abs() <= self.window)
        return self.favour(super().align(scores, hidden, times, mask), distances)

    def centers(self, hidden: Tensor, times: Tensor, lengths: Tensor) -> Tensor:
        """p_t [batch, target, 1] for times [target, 1] and lengths of sources [batch, 1, 1]."""
        return torch.minimum(times, lengths)

    def favour(self, weights: Tensor, distances: Tensor) -> Tensor:
        """The weights by their distances s - p_t, both [batch, target, source]."""
        return weights


class PredictiveAttention(MonotonicAttention):
    """local-p: p_t = S sigmoid(v_p . tanh(W_p h_t)) (9), and near positions weigh more (10)."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.center_hidden = nn.Linear(config.hidden_dim, config.hidden_dim, bias=False)
        self.center = nn.Linear(config.hidden_dim, 1, bias=False)

    def centers(self, hidden: Tensor, times: Tensor, lengths: Tensor) -> Tensor:
        score = self.center(torch.tanh(self.center_hidden(hidden)))
        return lengths * torch.sigmoid(score.float())

    def favour(self, weights: Tensor, distances: Tensor) -> Tensor:
        return weights * torch.exp(-2 * (distances / self.window) ** 2)  # sigma = window / 2


ATTENTIONS: dict[str, type[GlobalAttention]] = {
    "global": GlobalAttention,
    "local-m": MonotonicAttention,
    "local-p": PredictiveAttention,
}


class Bridge(nn.Module):
    """relu(W [h_1; h_2; ...] + b) of a direction's last states in all layers, hidden outputs and
    memory cells apart. As in OpenNMT-py, of two directions the lower half of the layers stands for
    one and the upper half for the other.
    """

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        dim = config.hidden_dim // config.num_directions * config.num_layers
        self.parts = nn.ModuleList(
            nn.Linear(dim, dim) for _ in range(CELLS[config.cell].num_states)
        )

    def forward(self, last: list[State]) -> list[State]:
        """States of every layer and direction, each [batch, hidden of a direction]."""
        bridged = []
        for layer, each in zip(self.parts, zip(*last, strict=True), strict=True):
            joined = torch.cat(each, -1).unflatten(-1, (-1, layer.in_features))
            bridged.append(torch.relu(layer(joined)).flatten(1).chunk(len(last), -1))
        return list(zip(*bridged, strict=True))


class Decoder(nn.Module):
    """Stacked cells; those above the first read the outputs below, with dropout."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__()
        fed_dim = config.readout_dim if config.input_feeding else 0
        dims = [config.embedding_dim] + [config.hidden_dim] * (config.num_layers - 1)
        self.layers = nn.ModuleList(
            RecurrentCell(config.cell, dim, config.hidden_dim, 0 if depth else fed_dim)
            for depth, dim in enumerate(dims)
        )
        self.dropout = Dropout(config.dropout)

    def project(self, embedded: Tensor, fed: Tensor | None = None) -> Tensor:
        """Input of the first cell's gates, of tokens and of the attentional vectors before them."""
        inputs = self.layers[0].input(embedded)
        return inputs if fed is None else inputs + self.layers[0].context(fed)

    def step(self, inputs: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """inputs [batch, gates] of one token -> top output [batch, hidden_dim], next states."""
        following: list[State] = []
        for layer, state in zip(self.layers, states, strict=True):
            if following:
                inputs = layer.input(self.dropout(following[-1][0]))
            following.append(layer(inputs, state))
        return following[-1][0], following

    def forward(self, embedded: Tensor, states: list[State]) -> Tensor:
        """Whole targets, layer by layer, where nothing is fed back: [batch, target, hidden_dim]."""
        outputs = embedded
        for depth, (layer, state) in enumerate(zip(self.layers, states, strict=True)):
            inputs = layer.input(self.dropout(outputs) if depth else outputs)
            hiddens = []
            for each in inputs.unbind(1):
                state = layer(each, state)
                hiddens.append(state[0])
            outputs = torch.stack(hiddens, 1)
        return outputs


class Luong(VocabularyModule):
    """The whole model; `forward` trains, `start` and `step` decode one token at a time."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config)
        self.config = config
        self.encoder = Recurrent(
            config.cell,
            config.embedding_dim,
            config.hidden_dim // config.num_directions,
            config.num_layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        self.bridge = Bridge(config) if config.bridge else nn.Identity()
        self.decoder = Decoder(config)
        self.attention = ATTENTIONS[config.attention](config)
        self.readout = nn.Linear(2 * config.hidden_dim, config.readout_dim, bias=config.biases)
        self.apply(initialise)
        initialise_readout(self.readout, config.cell)

    def forward(self, batch: Batch) -> Tensor:
        """Attentional vectors of every target position: [batch, target, readout_dim]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        embedded = self.embed_target(batch.input_ids)
        if self.config.input_feeding:
            return self.dropout(self._feed(embedded, state))
        hidden = self.decoder(embedded, state["layers"])
        times = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)
        return self.dropout(self._attend(hidden, times, state))

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids; the decoder goes on from the encoder's last states."""
        memory, last = self.encoder(self.embed_source(source_ids), source_lengths)
        memory = self.dropout(memory)
        readout = memory.new_zeros(len(memory), self.config.readout_dim)
        return {
            "memory": memory,
            "keys": self.attention.score.keys(memory),
            "mask": length_mask(source_lengths, source_ids.shape[1]),
            "layers": join_directions(self.bridge(last), self.config.num_directions),
            "readout": readout if self.config.input_feeding else None,
            "time": 1,
        }

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, readout_dim] and next state."""
        return self._next(self.decoder.project(self.embed_target(ids), state["readout"]), state)

    def _feed(self, embedded: Tensor, state: dict) -> Tensor:
        """Token by token, each with the attentional vector of the one before (3.3)."""
        readouts = []
        for inputs in self.decoder.project(embedded).unbind(1):
            fed = self.decoder.layers[0].context(state["readout"])
            readout, state = self._next(inputs + fed, state)
            readouts.append(readout)
        return torch.stack(readouts, 1)

    def _next(self, inputs: Tensor, state: dict) -> tuple[Tensor, dict]:
        hidden, layers = self.decoder.step(inputs, state["layers"])
        times = torch.full((1,), state["time"], device=hidden.device)  # a tensor() would wait
        readout = self._attend(hidden[:, None], times, state)[:, 0]
        fed = readout if self.config.input_feeding else None
        return readout, {**state, "layers": layers, "readout": fed, "time": state["time"] + 1}

    def _attend(self, hidden: Tensor, times: Tensor, state: dict) -> Tensor:
        """h~_t = tanh(W_c [c_t; h_t]) (5): [batch, target, readout_dim]."""
        context, _ = self.attention(hidden, times, state)
        readout = self.readout(torch.cat([context, hidden], -1))
        return torch.tanh(readout) if self.config.readout == "tanh" else readout


def join_directions(last: list[State], num_directions: int) -> list[State]:
    """Of each layer and direction -> of each layer, the directions side by side."""
    layers = [last[i : i + num_directions] for i in range(0, len(last), num_directions)]
    return [tuple(torch.cat(parts, -1) for parts in zip(*layer, strict=True)) for layer in layers]
