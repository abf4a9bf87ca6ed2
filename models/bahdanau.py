"""RNNsearch (Bahdanau, Cho and Bengio 2015): GRU encoder-decoder with additive attention.

Equations are those of the paper's appendix A. One deviation: the GRU applies the reset gate after
the recurrent product (the form of cuDNN and ONNX), n = tanh(W x + b + r * (U h + c)).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from models.batch import Batch, length_mask
from models.configs.bahdanau import BahdanauConfig


class AdditiveAttention(nn.Module):
    """e_ij = v^T tanh(W s_{i-1} + U h_j), context c_i = sum_j softmax(e_i)_j h_j (A.1.2)."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        self.query = nn.Linear(config.hidden_dim, config.attention_dim, bias=False)
        self.key = nn.Linear(2 * config.hidden_dim, config.attention_dim)
        self.score = nn.Linear(config.attention_dim, 1, bias=False)

    def forward(
        self, hidden: Tensor, memory: Tensor, keys: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """hidden [batch, H], memory [batch, source, 2H], keys = key(memory), mask [batch, source].

        Returns the context [batch, 2H] and the weights [batch, source].
        """
        energy = self.score(torch.tanh(self.query(hidden)[:, None] + keys)).squeeze(-1)
        weights = energy.masked_fill(~mask, float("-inf")).softmax(-1)
        return torch.bmm(weights[:, None].to(memory.dtype), memory)[:, 0], weights


class DecoderCell(nn.Module):
    """GRU over [embedding; context]; gates in the order reset, update, new."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        gates = 3 * config.hidden_dim
        self.input = nn.Linear(config.embedding_dim, gates)
        self.context = nn.Linear(2 * config.hidden_dim, gates, bias=False)
        self.hidden = nn.Linear(config.hidden_dim, gates)

    def forward(self, projected_input: Tensor, context: Tensor, hidden: Tensor) -> Tensor:
        """`projected_input` is input(embedding) [batch, 3H]; returns the next hidden [batch, H]."""
        x_reset, x_update, x_new = (projected_input + self.context(context)).chunk(3, -1)
        h_reset, h_update, h_new = self.hidden(hidden).chunk(3, -1)
        reset, update = torch.sigmoid(x_reset + h_reset), torch.sigmoid(x_update + h_update)
        new = torch.tanh(x_new + reset * h_new)
        return new + update * (hidden - new)


class MaxoutReadout(nn.Module):
    """t~ = U s_i + V E y_{i-1} + C c_i, t = the larger of each pair of t~ (A.2.2)."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        self.state = nn.Linear(config.hidden_dim, 2 * config.readout_dim)
        self.embedding = nn.Linear(config.embedding_dim, 2 * config.readout_dim, bias=False)
        self.context = nn.Linear(2 * config.hidden_dim, 2 * config.readout_dim, bias=False)

    def forward(self, hidden: Tensor, embedded: Tensor, context: Tensor) -> Tensor:
        pairs = self.state(hidden) + self.embedding(embedded) + self.context(context)
        return pairs.unflatten(-1, (-1, 2)).amax(-1)


class Bahdanau(nn.Module):
    """The whole model; `forward` trains, `start` and `step` decode one token at a time."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        self.config = config
        if config.tied_embeddings:
            self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        else:
            self.source_embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
            self.target_embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
            self.output = nn.Linear(config.readout_dim, config.vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.encoder = nn.GRU(
            config.embedding_dim, config.hidden_dim, batch_first=True, bidirectional=True
        )
        self.initial = nn.Linear(config.hidden_dim, config.hidden_dim)
        self.attention = AdditiveAttention(config)
        self.decoder = DecoderCell(config)
        self.readout = MaxoutReadout(config)
        self.dropout = nn.Dropout(config.dropout)
        self.apply(_initialise)

    def forward(self, batch: Batch) -> Tensor:
        """Readouts for every target position: [batch, target, readout_dim]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        embedded = self.dropout(self._embed(batch.input_ids, "target"))
        inputs, hidden = self.decoder.input(embedded), state["hidden"]
        hiddens, contexts = [], []
        for projected in inputs.unbind(1):
            context, _ = self.attention(hidden, state["memory"], state["keys"], state["mask"])
            hidden = self.decoder(projected, context, hidden)
            hiddens.append(hidden)
            contexts.append(context)
        readout = self.readout(torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1))
        return self.dropout(readout)

    def project(self, readout: Tensor) -> Tensor:
        """Readouts -> logits over the vocabulary."""
        tied = self.config.tied_embeddings
        weight = self.embedding.weight if tied else self.output.weight
        return linear(readout, weight, self.output_bias)

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids; s_0 = tanh(W_s h<-_1) (A.2.2)."""
        mask = length_mask(source_lengths, source_ids.shape[1])
        embedded = self.dropout(self._embed(source_ids, "source"))
        packed = pack_padded_sequence(
            embedded, source_lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, last = self.encoder(packed)  # last [2, batch, H]: forward's end, backward's start
        memory, _ = pad_packed_sequence(outputs, batch_first=True, total_length=source_ids.shape[1])
        memory = self.dropout(memory)
        hidden = torch.tanh(self.initial(last[1]))
        return {
            "memory": memory,
            "keys": self.attention.key(memory),
            "mask": mask,
            "hidden": hidden,
        }

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, readout_dim] and next state."""
        embedded = self._embed(ids, "target")
        context, _ = self.attention(state["hidden"], state["memory"], state["keys"], state["mask"])
        hidden = self.decoder(self.decoder.input(embedded), context, state["hidden"])
        return self.readout(hidden, embedded, context), {**state, "hidden": hidden}

    def _embed(self, ids: Tensor, side: str) -> Tensor:
        tied = self.config.tied_embeddings
        return (self.embedding if tied else getattr(self, f"{side}_embedding"))(ids)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    elif isinstance(module, nn.GRU):
        for name, parameter in module.named_parameters():
            (nn.init.orthogonal_ if name.startswith("weight_hh") else _small)(parameter)


def _small(parameter: Tensor) -> None:
    (nn.init.xavier_uniform_ if parameter.dim() == 2 else nn.init.zeros_)(parameter)
