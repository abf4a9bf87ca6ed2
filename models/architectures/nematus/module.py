"""Nematus (Sennrich et al. 2017): several cells at each word, and attention between two of them.

The decoder's first layer is the conditional GRU: a cell reads the last word, attention reads the
source with that cell's state, and a second cell reads the context. Deep transitions and stacks are
those of Miceli Barone et al. 2017. Equations are those of Marian, src/models/s2s.h and
src/rnn/cells.h.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.architectures.nematus.config import NematusConfig
from models.batch import length_mask
from models.contract import DecoderState
from models.layers.basic import Dropout
from models.layers.equations import CELLS
from models.layers.recurrent import RecurrentTranslator, initialise, reverse
from models.layers.roles import Blocks

CellState = tuple[Tensor, ...]


@dataclass(frozen=True)
class NematusState(DecoderState):
    """The encoded source, and the decoder's states."""

    memory: Tensor  # [batch, source, memory_dim]
    keys: Tensor  # as large
    is_real: Tensor  # [batch, source] bool: padding is not attended to
    cells: tuple[CellState, ...]  # of every layer


class NormedLinear(nn.Module):
    """A linear layer, the pieces of whose output, of these sizes, are normalised separately."""

    def __init__(self, in_dim: int, sizes: Sequence[int], epsilon: float | None) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, sum(sizes))
        self.sizes = list(sizes)
        self.norms = nn.ModuleList(nn.LayerNorm(n, epsilon) for n in sizes if epsilon is not None)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if not self.norms:
            return y
        pieces = zip(self.norms, y.split(self.sizes, -1), strict=True)
        return torch.cat([norm(piece) for norm, piece in pieces], -1)


class TransitionCell(Blocks):
    """One cell. Without an input it has a bias in place of the input's part."""

    def __init__(self, config: NematusConfig, input_dim: int = 0) -> None:
        super().__init__()
        self.kind, self.dim = CELLS[config.cell], config.hidden_dim
        sizes = config.gate_sizes(self.kind.num_gates)
        self.has_input = input_dim > 0
        if self.has_input:
            self.input = NormedLinear(input_dim, sizes, config.epsilon)
        else:
            self.bias = nn.Parameter(torch.zeros(sum(sizes)))
        self.hidden = NormedLinear(self.dim, sizes, config.epsilon)

    def blocks(self) -> dict[str, int]:
        names = ("input", "hidden") if self.has_input else ("hidden",)
        return {f"{name}.linear.weight": self.kind.num_gates for name in names}

    def forward(self, state: CellState, gates: Tensor | None = None) -> CellState:
        """Return the next state, given what `input` makes of an input, or nothing."""
        following: CellState = self.kind.step(self.bias if gates is None else gates, state, self)
        return following

    def project_state(self, hidden: Tensor, first: int, last: int) -> Tensor:
        """Multiply by all blocks of U, which are normalised together."""
        assert (first, last) == (0, self.kind.num_recurrent)
        product: Tensor = self.hidden(hidden)
        return product

    def split(self, x: Tensor, *blocks: int) -> Sequence[Tensor]:
        return x.split([n * self.dim for n in blocks], -1)

    def zeros(self, like: Tensor) -> CellState:
        """Return a state of zeros, with the rows of `like` [batch, ...]."""
        return (like.new_zeros(len(like), self.dim),) * self.kind.num_states


class DeepLayer(nn.ModuleList):
    """Several cells at each word, of which the first reads it."""

    def __init__(self, config: NematusConfig, input_dim: int, num_cells: int) -> None:
        above = (TransitionCell(config) for _ in range(num_cells - 1))
        super().__init__([TransitionCell(config, input_dim), *above])

    def forward(self, gates: Tensor, state: CellState) -> CellState:
        for depth, cell in enumerate(self):
            state = cell(state) if depth else cell(state, gates)
        return state

    def run(self, x: Tensor) -> Tensor:
        """Return hidden outputs [batch, time, hidden_dim] of a sequence [batch, time,
        input_dim].
        """
        state, outputs = self[0].zeros(x), []
        for gates in self[0].input(x).unbind(1):
            state = self(gates, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1)


class NematusEncoder(nn.Module):
    """A stack for each direction, and one above them."""

    def __init__(self, config: NematusConfig) -> None:
        super().__init__()
        self.config = config
        count = config.layers_of_direction
        self.forwards = self._stack(config.embedding_dim, count)
        self.backwards = self._stack(config.embedding_dim, count)
        self.above = self._stack(2 * config.hidden_dim, config.layers_above)
        self.dropout = Dropout(config.dropout)

    def _stack(self, input_dim: int, count: int) -> nn.ModuleList:
        dims = [input_dim] + [self.config.hidden_dim] * (count - 1)
        cells = self.config.encoder_transitions
        return nn.ModuleList(DeepLayer(self.config, dim, cells) for dim in dims[:count])

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return the memory [batch, source, memory_dim] of x [batch, source, embedding_dim]."""
        turns = self.config.encoder == "alternating"
        sides = [
            self._run(stack, x, lengths, is_backward, turns)
            for stack, is_backward in ((self.forwards, False), (self.backwards, True))
        ]
        return self._run(self.above, torch.cat(sides, -1), lengths, is_backward=False, turns=False)

    def _run(
        self, stack: nn.ModuleList, x: Tensor, lengths: Tensor, is_backward: bool, turns: bool
    ) -> Tensor:
        for depth, layer in enumerate(stack):
            read = self.dropout(x) if depth else x
            is_reversed = is_backward != (turns and depth % 2 == 1)
            outputs = layer.run(reverse(read, lengths) if is_reversed else read)
            outputs = reverse(outputs, lengths) if is_reversed else outputs
            x = outputs + x if depth and self.config.skip else outputs
        return x


class NematusDecoder(nn.Module):
    """The layer that attends, and the layers above."""

    def __init__(self, config: NematusConfig) -> None:
        super().__init__()
        dim, num = config.hidden_dim, config.decoder_transitions - 2
        self.word = TransitionCell(config, config.embedding_dim)
        self.context = TransitionCell(config, config.memory_dim)
        self.transitions = nn.ModuleList(TransitionCell(config) for _ in range(num))
        self.above = nn.ModuleList(
            DeepLayer(config, dim, config.higher_transitions)
            for _ in range(config.decoder_layers - 1)
        )
        self.has_skip = config.skip
        self.dropout = Dropout(config.dropout)

    def end_first_layer(self, state: CellState, context: Tensor) -> CellState:
        """Read the context after the first cell. Return the first layer's state."""
        state = self.context(state, self.context.input(context))
        for cell in self.transitions:
            state = cell(state)
        return state

    def read_upper_layers(
        self, x: Tensor, cells: Sequence[CellState]
    ) -> tuple[Tensor, list[CellState]]:
        """Read the first layer's output [batch, hidden_dim] in the layers above."""
        following = []
        for layer, cell in zip(self.above, cells, strict=True):
            state = layer(layer[0].input(self.dropout(x)), cell)
            x = state[0] + x if self.has_skip else state[0]
            following.append(state)
        return x, following


class Nematus(RecurrentTranslator[NematusState]):
    """Attends after reading the last word and before predicting the next."""

    config: NematusConfig

    def __init__(self, config: NematusConfig) -> None:
        super().__init__(config)
        memory_dim, epsilon = config.memory_dim, config.epsilon
        dims = {"word": config.embedding_dim, "state": config.hidden_dim, "context": memory_dim}
        self.encoder = NematusEncoder(config)
        self.initial = NormedLinear(memory_dim, [config.hidden_dim], epsilon)
        self.key = NormedLinear(memory_dim, [memory_dim], epsilon)
        self.query = NormedLinear(config.hidden_dim, [memory_dim], epsilon)
        self.score = nn.Linear(memory_dim, 1, bias=False)
        self.decoder = NematusDecoder(config)
        self.readout = nn.ModuleDict(
            {name: NormedLinear(dim, [config.readout_dim], epsilon) for name, dim in dims.items()}
        )
        self.apply(initialise)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> NematusState:
        """All layers begin with a projection of the mean of the source's states."""
        memory = self.encoder(self.embed_source(source_ids), source_lengths)
        is_real = length_mask(source_lengths, source_ids.shape[1])
        mean = (memory * is_real[..., None]).sum(1) / source_lengths[:, None].to(memory.dtype)
        start = torch.tanh(self.initial(mean))
        cells = ((start,) * CELLS[self.config.cell].num_states,) * self.config.decoder_layers
        memory = self.dropout(memory)
        return NematusState(memory, self.key(memory), is_real, cells)

    def read(self, ids: Tensor, state: NematusState) -> tuple[Tensor, NematusState]:
        embedded, cells = self.embed(ids), state.cells
        outputs, contexts = [], []
        for gates in self.decoder.word.input(embedded).unbind(1):
            cell = self.decoder.word(cells[0], gates)
            context = self._attend(cell[0], state)
            cell = self.decoder.end_first_layer(cell, context)
            output, above = self.decoder.read_upper_layers(cell[0], cells[1:])
            cells = (cell, *above)
            outputs.append(output)
            contexts.append(context)
        parts = {"word": embedded, "state": torch.stack(outputs, 1)}
        parts["context"] = torch.stack(contexts, 1)
        total = sum(layer(parts[name]) for name, layer in self.readout.items())
        return self.dropout(torch.tanh(total)), replace(state, cells=cells)

    def _attend(self, hidden: Tensor, state: NematusState) -> Tensor:
        """Return the memory weighted by v . tanh(query + keys): [batch, memory_dim]."""
        scores = self.score(torch.tanh(self.query(hidden)[:, None] + state.keys)).squeeze(-1)
        weights = scores.masked_fill(~state.is_real, float("-inf")).softmax(-1)
        return torch.bmm(weights[:, None].to(state.memory.dtype), state.memory)[:, 0]
