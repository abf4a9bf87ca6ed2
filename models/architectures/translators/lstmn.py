"""Long short-term memory-networks (Cheng, Dong and Lapata 2016) as encoder and decoder.

An LSTM with tapes in place of its hidden state and memory cell: every step reads all that was
written so far by attention. Equations are the paper's. How words are predicted it leaves open; here
from tanh(W_c [gamma~_t; h_t]), as in Luong et al. 2015 (equation 5).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from models.batch import Batch, length_mask
from models.configs.translators.lstmn import LstmnConfig
from models.layers.recurrent import initialise, initialise_readout
from models.layers.roles import Blocks, initialise_blocks
from models.layers.tape import Tape, TapeAttention, empty_tape
from models.layers.vocabulary import VocabularyModule

Inputs = Sequence[Tensor]  # what a token alone feeds, [..., features]


class Reader(Blocks):
    """An LSTMN (3.2); the values of its tape are [h_i; c_i]."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__()
        self.config, hidden_dim = config, config.hidden_dim
        self.attention = TapeAttention(hidden_dim, config.attention_dim)
        self.query_input = nn.Linear(config.embedding_dim, config.attention_dim)
        self.query_recalled = nn.Linear(hidden_dim, config.attention_dim, bias=False)
        self.gates_input = nn.Linear(config.embedding_dim, 4 * hidden_dim)
        self.gates_recalled = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)

    @torch.no_grad()
    def reset_gates(self) -> None:
        """Every gate begins in its own range, the forget gate's bias at 1, as in other LSTMs."""
        for name, num_gates in self.blocks().items():
            initialise_blocks(self.get_parameter(name), num_gates)
        self.gates_input.bias.chunk(4)[1].fill_(1.0)

    def blocks(self) -> dict[str, int]:
        return {"gates_input.weight": 4, "gates_recalled.weight": 4}

    def project(self, embedded: Tensor) -> Inputs:
        """W_x x_t of the query (4) and of the gates (7), for any number of tokens at once."""
        return self.query_input(embedded), self.gates_input(embedded)

    def start(self, like: Tensor) -> tuple[Tape, Tensor]:
        """Nothing written, nothing recalled, in the rows and the type of `like` [batch, ...]."""
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
        """One step: inputs as `project` gives them, the tape, h~_{t-1}, what else enters c_t.

        Returns h_t [batch, hidden_dim], the tape with it, and h~_t. Gates come in the order input,
        forget, new, output.
        """
        mixed, _ = self.attention.read(query + self.query_recalled(recalled), tape)  # (4-6)
        recalled, memory = mixed.chunk(2, -1)
        enter, keep, new, leave = (gates + self.gates_recalled(recalled)).chunk(4, -1)  # (7)
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(enter) * torch.tanh(new)  # (8)
        if added is not None:
            memory = memory + added
        hidden = torch.sigmoid(leave) * torch.tanh(memory)  # (9)
        tape = self.attention.append(tape, hidden, torch.cat([hidden, memory], -1))
        return hidden, tape, recalled


class Fusion(nn.Module, ABC):
    """How the source gets into the decoder's step, by attention to its tape."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__()
        self.attention = TapeAttention(config.hidden_dim, config.attention_dim)

    def project(self, embedded: Tensor) -> Inputs:
        """What of it the tokens alone feed, for any number of them at once."""
        return ()

    @abstractmethod
    def forward(
        self, inputs: Inputs, state: dict
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
        """Returns gamma~_t [batch, hidden_dim], what it adds to the gates and to the memory, and
        the weights [batch, source].
        """


class ShallowFusion(Fusion, Blocks):
    """One more input of the gates; h_{t-1} attends to the hidden tape, as in Bahdanau et al."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.hidden_dim, config.attention_dim, bias=False)
        self.gates = nn.Linear(config.hidden_dim, 4 * config.hidden_dim, bias=False)

    def blocks(self) -> dict[str, int]:
        return {"gates.weight": 4}

    def forward(self, inputs: Inputs, state: dict) -> tuple[Tensor, Tensor, None, Tensor]:
        keys, values = state["source"]
        hidden_tape, _ = values.chunk(2, -1)
        query = self.query(state["hidden"])
        context, weights = self.attention.read(query, (keys, hidden_tape), state["mask"])
        return context, self.gates(context), None, weights


class DeepFusion(Fusion):
    """What is read of the source's memories enters the target's by a gate r_t (11-15)."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__(config)
        hidden_dim = config.hidden_dim
        self.query_input = nn.Linear(config.embedding_dim, config.attention_dim)
        self.query_context = nn.Linear(hidden_dim, config.attention_dim, bias=False)
        self.gate_input = nn.Linear(config.embedding_dim, hidden_dim)
        self.gate_context = nn.Linear(hidden_dim, hidden_dim, bias=False)

    def project(self, embedded: Tensor) -> Inputs:
        """W_x x_t of the query (11) and of the gate (14)."""
        return self.query_input(embedded), self.gate_input(embedded)

    def forward(self, inputs: Inputs, state: dict) -> tuple[Tensor, None, Tensor, Tensor]:
        query, gate = inputs
        query = query + self.query_context(state["context"])
        mixed, weights = self.attention.read(query, state["source"], state["mask"])
        context, memory = mixed.chunk(2, -1)
        return context, None, torch.sigmoid(gate + self.gate_context(context)) * memory, weights


FUSIONS: dict[str, type[Fusion]] = {"shallow": ShallowFusion, "deep": DeepFusion}


class Lstmn(VocabularyModule):
    """The whole model; `forward` trains, `start` and `step` decode one token at a time."""

    def __init__(self, config: LstmnConfig) -> None:
        super().__init__(config)
        self.config = config
        self.encoder, self.decoder = Reader(config), Reader(config)
        self.fusion = FUSIONS[config.fusion](config)
        self.readout = nn.Linear(2 * config.hidden_dim, config.readout_dim)
        self.apply(initialise)
        initialise_readout(self.readout, "lstm")
        for reader in (self.encoder, self.decoder):
            reader.reset_gates()

    def forward(self, batch: Batch) -> Tensor:
        """Readouts for every target position: [batch, target, readout_dim]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        hiddens, contexts = [], []
        for inputs in self._inputs(self.embed_target(batch.input_ids.T)):
            state = self._next(inputs, state)
            hiddens.append(state["hidden"])
            contexts.append(state["context"])
        return self.dropout(self._read_out(torch.stack(hiddens, 1), torch.stack(contexts, 1)))

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids. No position reads those after it, so none reads padding."""
        inputs = self.encoder.project(self.embed_source(source_ids.T))
        tape, recalled = self.encoder.start(inputs[0][0])
        for query, gates in zip(*(part.unbind() for part in inputs), strict=True):
            _, tape, recalled = self.encoder(query, gates, tape, recalled)
        values = self.dropout(tape[1])
        hidden_tape, _ = values.chunk(2, -1)
        tape, nothing = self.decoder.start(inputs[0][0])
        return {
            "source": (self.fusion.attention.key(hidden_tape), values),
            "mask": length_mask(source_lengths, source_ids.shape[1]),
            "tape": tape,
            "recalled": nothing,
            "hidden": nothing,
            "context": nothing,
        }

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, readout_dim] and next state."""
        (inputs,) = self._inputs(self.embed_target(ids[None]))
        state = self._next(inputs, state)
        return self._read_out(state["hidden"], state["context"]), state

    def _inputs(self, embedded: Tensor) -> Iterator[Inputs]:
        """Of the decoder and of the fusion, at each position of [target, batch, embedding_dim]."""
        parts = (*self.decoder.project(embedded), *self.fusion.project(embedded))
        return zip(*(part.unbind() for part in parts), strict=True)

    def _next(self, inputs: Inputs, state: dict) -> dict:
        query, gates, *source_inputs = inputs
        context, more_gates, memory, _ = self.fusion(source_inputs, state)
        gates = gates if more_gates is None else gates + more_gates
        hidden, tape, recalled = self.decoder(
            query, gates, state["tape"], state["recalled"], memory
        )
        return {**state, "tape": tape, "recalled": recalled, "hidden": hidden, "context": context}

    def _read_out(self, hidden: Tensor, context: Tensor) -> Tensor:
        return torch.tanh(self.readout(torch.cat([context, hidden], -1)))
