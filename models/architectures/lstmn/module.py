"""Long short-term memory-networks as encoder and decoder (Cheng, Dong and Lapata 2016).

An LSTM with tapes in place of its hidden state and memory cell: every step reads all that was
written so far by attention. Equations are the paper's. The paper does not say how words are
predicted; here it is from tanh(W_c [gamma~_t; h_t]), as in Luong et al. 2015 (equation 5).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.architectures.lstmn.config import LstmnConfig
from models.batch import length_mask
from models.contract import DecoderState
from models.layers.attention import AdditiveAttention, Tape, empty_tape
from models.layers.equations import lstm_memory, lstm_output
from models.layers.recurrent import RecurrentTranslator, initialise, initialise_readout
from models.layers.roles import Blocks, initialise_blocks

Inputs = Sequence[Tensor]  # what a token alone feeds, [..., features]


@dataclass(frozen=True)
class LstmnState(DecoderState):
    """The source's tape, the target's, and results of the last step, which begin with zeros."""

    source: Tape
    is_real: Tensor  # [batch, source] bool: padding is not attended to
    target: Tape
    recalled: Tensor  # h~_{t-1} [batch, hidden_dim]
    hidden: Tensor  # h_{t-1} [batch, hidden_dim]
    context: Tensor  # gamma~_{t-1} [batch, hidden_dim]


class TapeCell(Blocks):
    """One LSTMN (3.2); the values of its tape are [h_i; c_i]."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__()
        self.config, hidden_dim = config, config.hidden_dim
        self.attention = AdditiveAttention(hidden_dim, config.attention_dim, bias=False)
        self.query_input = nn.Linear(config.embedding_dim, config.attention_dim)
        self.query_recalled = nn.Linear(hidden_dim, config.attention_dim, bias=False)
        self.gates_input = nn.Linear(config.embedding_dim, 4 * hidden_dim)
        self.gates_recalled = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)

    @torch.no_grad()
    def reset_gates(self) -> None:
        """Draw every gate in its own range; the forget gate's bias is 1, as in other LSTMs."""
        for name, num_gates in self.blocks().items():
            initialise_blocks(self.get_parameter(name), num_gates)
        self.gates_input.bias.chunk(4)[1].fill_(1.0)

    def blocks(self) -> dict[str, int]:
        return {"gates_input.weight": 4, "gates_recalled.weight": 4}

    def project(self, embedded: Tensor) -> Inputs:
        """Return W_x x_t of the query (4) and of the gates (7), of many tokens at once."""
        return self.query_input(embedded), self.gates_input(embedded)

    def begin(self, like: Tensor) -> tuple[Tape, Tensor]:
        """Return an empty tape and zeros as recalled, with the rows and the type of `like` [batch,
        ...].
        """
        hidden_dim = self.config.hidden_dim
        tape = empty_tape(like, self.config.attention_dim, 2 * hidden_dim)
        return tape, like.new_zeros(len(like), hidden_dim)

    def forward(
        self,
        query: Tensor,
        gates: Tensor,
        tape: Tape,
        recalled: Tensor,
        added: Tensor | None = None,
    ) -> tuple[Tensor, Tape, Tensor]:
        """Read one token, given its inputs from `project`, the tape, h~_{t-1}, and what is added to
        c_t.

        Returns h_t [batch, hidden_dim], the tape with it, and h~_t.
        """
        context, _ = self.attention(query + self.query_recalled(recalled), tape)  # (4-6)
        recalled, memory = context.chunk(2, -1)
        i, f, g, o = (gates + self.gates_recalled(recalled)).chunk(4, -1)  # (7)
        memory = lstm_memory(i, f, g, memory)  # (8)
        if added is not None:
            memory = memory + added
        hidden, memory = lstm_output(o, memory)  # (9)
        tape = self.attention.append(tape, hidden, torch.cat([hidden, memory], -1))
        return hidden, tape, recalled


class Fusion(nn.Module, ABC):
    """How the decoder's step reads the source's tape."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__()
        self.attention = AdditiveAttention(config.hidden_dim, config.attention_dim, bias=False)

    def project(self, embedded: Tensor) -> Inputs:
        """Return the parts that depend on tokens alone, for any number of them at once."""
        return ()

    @abstractmethod
    def forward(
        self, inputs: Inputs, state: LstmnState
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """Return gamma~_t [batch, hidden_dim], what is added to the gates and to the memory, and
        the weights [batch, source].
        """


class ShallowFusion(Fusion, Blocks):
    """One more input of the gates. h_{t-1} attends to the hidden tape, as in Bahdanau et al."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.hidden_dim, config.attention_dim, bias=False)
        self.gates = nn.Linear(config.hidden_dim, 4 * config.hidden_dim, bias=False)

    def blocks(self) -> dict[str, int]:
        return {"gates.weight": 4}

    def forward(self, inputs: Inputs, state: LstmnState) -> tuple[Tensor, Tensor, None, Tensor]:
        keys, values = state.source
        hidden_tape, _ = values.chunk(2, -1)
        query = self.query(state.hidden)
        context, weights = self.attention(query, (keys, hidden_tape), state.is_real)
        return context, self.gates(context), None, weights


class DeepFusion(Fusion):
    """A gate r_t lets what is read of the source's memories into the target's (11-15)."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__(config)
        hidden_dim = config.hidden_dim
        self.query_input = nn.Linear(config.embedding_dim, config.attention_dim)
        self.query_context = nn.Linear(hidden_dim, config.attention_dim, bias=False)
        self.gate_input = nn.Linear(config.embedding_dim, hidden_dim)
        self.gate_context = nn.Linear(hidden_dim, hidden_dim, bias=False)

    def project(self, embedded: Tensor) -> Inputs:
        """Return W_x x_t of the query (11) and of the gate (14)."""
        return self.query_input(embedded), self.gate_input(embedded)

    def forward(self, inputs: Inputs, state: LstmnState) -> tuple[Tensor, None, Tensor, Tensor]:
        query, gate = inputs
        query = query + self.query_context(state.context)
        read, weights = self.attention(query, state.source, state.is_real)
        context, memory = read.chunk(2, -1)
        gate = torch.sigmoid(gate + self.gate_context(context))
        return context, None, gate * memory, weights


FUSIONS: dict[str, type[Fusion]] = {"shallow": ShallowFusion, "deep": DeepFusion}


class Lstmn(RecurrentTranslator[LstmnState]):
    """Reads the source with one LSTMN and the target with another, which attends to the first."""

    config: LstmnConfig

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__(config)
        self.encoder, self.decoder = TapeCell(config), TapeCell(config)
        self.fusion = FUSIONS[config.fusion](config)
        self.readout = nn.Linear(2 * config.hidden_dim, config.readout_dim)
        self.apply(initialise)
        initialise_readout(self.readout, "lstm")
        for cell in (self.encoder, self.decoder):
            cell.reset_gates()

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> LstmnState:
        """Write the source's tape. No position reads those after it, so none reads padding."""
        inputs = self.encoder.project(self.embed_source(source_ids.T))
        tape, recalled = self.encoder.begin(inputs[0][0])
        for query, gates in zip(*(part.unbind() for part in inputs), strict=True):
            _, tape, recalled = self.encoder(query, gates, tape, recalled)
        values = self.dropout(tape[1])
        hidden_tape, _ = values.chunk(2, -1)
        source = self.fusion.attention.key(hidden_tape), values
        is_real = length_mask(source_lengths, source_ids.shape[1])
        target, zeros = self.decoder.begin(inputs[0][0])
        return LstmnState(source, is_real, target, recalled=zeros, hidden=zeros, context=zeros)

    def read(self, ids: Tensor, state: LstmnState) -> tuple[Tensor, LstmnState]:
        embedded = self.embed(ids.T)
        inputs = (*self.decoder.project(embedded), *self.fusion.project(embedded))
        hiddens, contexts = [], []
        for at_position in zip(*(part.unbind() for part in inputs), strict=True):
            state = self._next(at_position, state)
            hiddens.append(state.hidden)
            contexts.append(state.context)
        both = torch.cat([torch.stack(contexts, 1), torch.stack(hiddens, 1)], -1)
        return self.dropout(torch.tanh(self.readout(both))), state

    def _next(self, inputs: Inputs, state: LstmnState) -> LstmnState:
        query, gates, *source_inputs = inputs
        context, more_gates, memory, _ = self.fusion(source_inputs, state)
        gates = gates if more_gates is None else gates + more_gates
        hidden, tape, recalled = self.decoder(query, gates, state.target, state.recalled, memory)
        return replace(state, target=tape, recalled=recalled, hidden=hidden, context=context)
