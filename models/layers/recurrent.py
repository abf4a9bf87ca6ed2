"""Recurrent cells in torch: one step, whole padded sequences, and what recurrent translators share.

Weights have the names and shapes of torch.nn.GRU and LSTM. Torch's own loops are not used: this one
works for every cell, by its only definition, and needs no packing. Training on a CPU takes as long
as torch's for a GRU, and up to twice as long for an LSTM layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.configs.recurrent import RecurrentConfig
from models.contract import S, TranslationModel
from models.layers.basic import Dropout, VocabularyLayers
from models.layers.equations import CELLS, READOUTS, CellKind
from models.layers.roles import Blocks, initialise_blocks

SOFTNESS = 0.25  # scores of fresh weights then have a standard deviation of a third to a half


CellState = tuple[Tensor, ...]  # hidden [batch, hidden_dim]; LSTM: and memory cell, as large


CellStates = tuple[CellState, ...]  # of several layers


class Recurrent(Blocks):
    """Layers of one kind of cell over sequences, with dropout between them.

    Weights of layer 0: weight_ih_l0 [num_gates * hidden_dim, input_dim], weight_hh_l0
    [num_recurrent * hidden_dim, hidden_dim], bias_ih_l0, bias_hh_l0. Names of the backward
    direction end in `_reverse`. Higher layers read all directions of the layer below.
    """

    def __init__(
        self,
        cell: str,
        input_dim: int,
        hidden_dim: int,
        num_layers: int = 1,
        *,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.cell, self.hidden_dim = CELLS[cell], hidden_dim
        ends = ("", "_reverse") if bidirectional else ("",)
        self.layers = [[f"l{layer}{end}" for end in ends] for layer in range(num_layers)]
        for layer, names in enumerate(self.layers):
            for name in names:
                self._add(name, hidden_dim * len(ends) if layer else input_dim)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for names in self.layers:
            for name in names:
                initialise_cell(self.cell, *self._weights(name))

    def blocks(self) -> dict[str, int]:
        counts = {"weight_ih": self.cell.num_gates, "weight_hh": self.cell.num_recurrent}
        names = [name for layer in self.layers for name in layer]
        return {f"{part}_{name}": count for name in names for part, count in counts.items()}

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, initial: Sequence[CellState] = ()
    ) -> tuple[Tensor, CellStates]:
        """Read x [batch, time, input_dim], padded to the longest of `lengths` [batch] (None: all).

        Return the top layer's outputs [batch, time, directions * hidden_dim], which are undefined
        beyond a row's length, and the states at each row's end: layer 0 forward, layer 0 backward,
        layer 1 forward, ... `initial` has states in that order too; empty: zeros.
        """
        starts = iter(initial)
        last: list[CellState] = []
        for depth, names in enumerate(self.layers):
            x = self.dropout(x) if depth else x
            runs = [self._run(name, x, lengths, next(starts, None)) for name in names]
            x = torch.cat([outputs for outputs, _ in runs], -1)
            last += [state for _, state in runs]
        return x, tuple(last)

    def _run(
        self, name: str, x: Tensor, lengths: Tensor | None, state: CellState | None
    ) -> tuple[Tensor, CellState]:
        input_weight, input_bias, *recurrent = self._weights(name)
        is_backward = name.endswith("_reverse")
        gates = linear(reverse(x, lengths) if is_backward else x, input_weight, input_bias)
        if state is None:
            zeros = gates.new_zeros(gates.shape[0], self.hidden_dim)
            state = (zeros,) * self.cell.num_states
        states, weight = [], RecurrentWeight(*recurrent)
        for gate in gates.unbind(1):
            state = self.cell.step(gate, state, weight)
            states.append(state)
        history = [torch.stack(parts, 1) for parts in zip(*states, strict=True)]
        if lengths is not None:
            state = tuple(_select_positions(part, lengths - 1) for part in history)
        return reverse(history[0], lengths) if is_backward else history[0], state

    def _add(self, name: str, input_dim: int) -> None:
        gates = self.cell.num_gates * self.hidden_dim
        recurrent = self.cell.num_recurrent * self.hidden_dim
        shapes = {
            "weight_ih": (gates, input_dim),
            "bias_ih": (gates,),
            "weight_hh": (recurrent, self.hidden_dim),
            "bias_hh": (recurrent,),
        }
        for part, shape in shapes.items():
            self.register_parameter(f"{part}_{name}", nn.Parameter(torch.empty(shape)))

    def _weights(self, name: str) -> list[Tensor]:
        parts = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        return [getattr(self, f"{part}_{name}") for part in parts]


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse each row of x [batch, time, ...] up to its own length; padding stays in place."""
    if lengths is None:
        return x.flip(1)
    positions = torch.arange(x.shape[1], device=x.device)[None]
    mirrored = lengths[:, None] - 1 - positions
    index = torch.where(mirrored >= 0, mirrored, positions)
    return x.take_along_dim(index.reshape(*index.shape, *(1,) * (x.dim() - 2)), 1)


def _select_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Return x [batch, time, dim] at one position of each row: [batch, dim]."""
    return x[torch.arange(x.shape[0], device=x.device), positions]


def initialise(module: nn.Module) -> None:
    """Draw a module's weights: Xavier's ranges, embeddings by their size. For `Module.apply`."""
    if isinstance(module, Recurrent | RecurrentCell):
        module.reset_parameters()
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def initialise_readout(layer: nn.Linear, cell: str) -> None:
    """Draw a layer that reads only cells' outputs, with a gain that makes up for small outputs."""
    nn.init.xavier_uniform_(layer.weight, gain=CELLS[cell].output_gain)


@torch.no_grad()
def soften_scores(layer: nn.Linear, cell: str) -> None:
    """Make products of cells' outputs small, so that their softmax begins nearly uniform. Otherwise
    a fresh model attended to one arbitrary word and learned to do without the source.
    """
    layer.weight.mul_(SOFTNESS * CELLS[cell].output_gain)


@dataclass(frozen=True)
class RecurrentWeight:
    """The recurrent weight U [num_recurrent * hidden, hidden] and its bias, for the equations.

    Slices are kept, because each new slice would fill another gradient of the whole weight.
    """

    weight: Tensor
    bias: Tensor
    cuts: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def project_state(self, hidden: Tensor, first: int, last: int) -> Tensor:
        if (first, last) not in self.cuts:
            self.cuts[first, last] = self._cut(slice(first * self._dim, last * self._dim))
        return linear(hidden, *self.cuts[first, last])

    def _cut(self, rows: slice) -> tuple[Tensor, Tensor]:
        is_all = rows == slice(0, len(self.weight))
        return (self.weight, self.bias) if is_all else (self.weight[rows], self.bias[rows])

    def split(self, x: Tensor, *blocks: int) -> Sequence[Tensor]:
        return x.split([n * self._dim for n in blocks], -1)

    @property
    def _dim(self) -> int:
        return self.weight.shape[1]


class RecurrentCell(Blocks):
    """A cell with its weights, for one step at a time, as in a decoder's loop.

    `input` projects what is known ahead (a whole sequence at once). `context`, if there is one,
    projects what each step adds. The caller adds the two.
    """

    def __init__(self, cell: str, input_dim: int, hidden_dim: int, context_dim: int = 0) -> None:
        super().__init__()
        self.cell = CELLS[cell]
        gates = self.cell.num_gates * hidden_dim
        self.input = nn.Linear(input_dim, gates)
        self.has_context = context_dim > 0
        if self.has_context:
            self.context = nn.Linear(context_dim, gates, bias=False)
        self.hidden = nn.Linear(hidden_dim, self.cell.num_recurrent * hidden_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        initialise_cell(self.cell, self.input.weight, self.input.bias, *self.hidden.parameters())
        if self.has_context:
            initialise_blocks(self.context.weight, self.cell.num_gates)

    def blocks(self) -> dict[str, int]:
        names = ("input.weight", "context.weight") if self.has_context else ("input.weight",)
        return dict.fromkeys(names, self.cell.num_gates) | {
            "hidden.weight": self.cell.num_recurrent
        }

    def begin(self, hidden: Tensor) -> CellState:
        """Return a state with this hidden output. An LSTM's memory cell begins with 0."""
        return hidden, *(torch.zeros_like(hidden) for _ in range(self.cell.num_states - 1))

    def forward(self, x: Tensor, state: CellState) -> CellState:
        """Return the next state, given x [batch, num_gates * hidden]: the sum of both
        projections.
        """
        following: CellState = self.cell.step(x, state, self._recurrent())
        return following

    def run(self, x: Tensor, state: CellState) -> tuple[Tensor, CellState]:
        """Read a sequence x [batch, time, num_gates * hidden]. Return hidden outputs [batch, time,
        hidden], and the last state.
        """
        outputs, recurrent = [], self._recurrent()
        for gates in x.unbind(1):
            state = self.cell.step(gates, state, recurrent)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    def _recurrent(self) -> RecurrentWeight:
        return RecurrentWeight(self.hidden.weight, self.hidden.bias)


@torch.no_grad()
def initialise_cell(
    cell: CellKind, input_weight: Tensor, input_bias: Tensor, weight: Tensor, bias: Tensor
) -> None:
    """Draw gates in Xavier's range and orthogonal recurrent blocks (Saxe et al. 2014). An LSTM's
    forget bias is 1, as Gers et al. 2000 and Jozefowicz et al. 2015 advise.
    """
    initialise_blocks(input_weight, cell.num_gates)
    for block in weight.chunk(cell.num_recurrent):
        nn.init.orthogonal_(block)
    nn.init.zeros_(bias)
    nn.init.zeros_(input_bias)
    if cell.forget_gate is not None:
        input_bias.chunk(cell.num_gates)[cell.forget_gate].fill_(1.0)


class Readout(nn.Module):
    """Sums up a decoder's state, last word and context, before the output layer.

    t~ = U s_i + V E y_{i-1} + C c_i (Cho et al. 2014, A.1.2; Bahdanau et al. 2015, A.2.2 with
    s_{i-1}; here s_i as in their equation 4). `width` neighbours of t~ make one number of the
    readout.
    """

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
        """Return the readout [..., readout_dim] of inputs [..., their dimension]."""
        total = self.state(hidden) + self.embedding(embedded) + self.context(context)
        width = self.kind.width
        readout: Tensor = self.kind.activate(*(total[..., i::width] for i in range(width)))
        return readout


class RecurrentTranslator(VocabularyLayers, TranslationModel[S]):
    """The base of recurrent translators: embeddings with dropout."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(
            config,
            config.embedding_dim,
            source_size=config.source_vocabulary,
            output_dim=config.readout_dim,
            scale=config.scale_of_embeddings,
            has_bias=True,
        )
        self.dropout = Dropout(config.dropout)

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(super().embed(ids))

    def embed_source(self, ids: Tensor) -> Tensor:
        return self.dropout(super().embed_source(ids))
