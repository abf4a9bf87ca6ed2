"""ConvS2S (Gehring, Auli, Grangier, Yarats and Dauphin 2017): convolutions and attention only.

Scaling and initial weights are those of the paper's 3.4 and 3.5. Weight normalisation is left
out: it is another parametrisation of the same model, made for plain gradient descent, and Muon
gives every matrix an update of the same size by itself.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, linear, pad

from models.batch import Batch, length_mask
from models.configs.translators.convs2s import ConvS2SConfig
from models.layers.dropout import Dropout

HALF_VARIANCE = math.sqrt(0.5)  # a sum of two times this varies as much as each (3.4)


class GatedConvolution(nn.Module):
    """v(W [x_1; ...; x_k] + b) with the gated linear unit v([A B]) = A * sigma(B) (3.2).

    W is kept as a matrix over the k positions side by side.
    """

    def __init__(self, dim: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.linear = _linear(kernel_size * dim, 2 * dim, variance=4 * (1 - dropout))

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, length + kernel_size - 1, dim] -> [batch, length, dim]."""
        length = x.shape[1] - self.kernel_size + 1
        windows = [x[:, first : first + length] for first in range(self.kernel_size)]
        return glu(self.linear(torch.cat(windows, -1)), -1)


class Encoder(nn.Module):
    """Position vectors of the source, and blocks that look at both sides of a word."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        dim, kernel_size = config.hidden_dim, config.encoder_kernel_size
        self.margin = kernel_size // 2
        self.dropout = Dropout(config.dropout)
        self.positions = _table(config.max_source_tokens, config.embedding_dim)
        self.input = _linear(config.embedding_dim, dim, variance=1 - config.dropout)
        self.blocks = nn.ModuleList(
            GatedConvolution(dim, kernel_size, config.dropout) for _ in range(config.encoder_layers)
        )
        self.output = _linear(dim, config.embedding_dim)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """embedded [batch, source, embedding_dim], mask [batch, source] -> z of the same shape.

        Beyond a row's end every block reads zeros, as it does before the beginning.
        """
        x, is_real = self.input(embedded), mask[..., None]
        for block in self.blocks:
            padded = pad(self.dropout(x) * is_real, (0, 0, self.margin, self.margin))
            x = (x + block(padded)) * HALF_VARIANCE
        return self.output(x)


class MultiStepAttention(nn.Module):
    """d_i = W_d h_i + b_d + g_i, a_ij = softmax_j(d_i . z_j), c_i = sum_j a_ij (z_j + e_j)
    (equations 1 and 2), mapped to the size of h_i.
    """

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.query = _linear(config.hidden_dim, config.embedding_dim)
        self.output = _linear(config.embedding_dim, config.hidden_dim)

    def forward(self, hidden: Tensor, embedded: Tensor, state: dict) -> Tensor:
        """hidden [batch, target, hidden_dim], embedded g [batch, target, embedding_dim]."""
        query = self.query(hidden) + embedded
        scores = query @ state["keys"].transpose(1, 2)
        weights = scores.masked_fill(~state["mask"][:, None], float("-inf")).softmax(-1)
        return self.output(weights @ state["values"])


class DecoderBlock(nn.Module):
    """A convolution over this word and those before it, then attention."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = GatedConvolution(
            config.hidden_dim, config.decoder_kernel_size, config.dropout
        )
        self.attention = MultiStepAttention(config)

    def forward(
        self, x: Tensor, embedded: Tensor, window: Tensor, state: dict
    ) -> tuple[Tensor, Tensor]:
        """x [batch, new, hidden_dim] after the inputs in `window` [batch, kernel - 1, hidden_dim].

        Returns the output and the window after it.
        """
        inputs = torch.cat([window, self.dropout(x)], 1)
        hidden = (x + self.convolution(inputs)) * HALF_VARIANCE
        hidden = (hidden + self.attention(hidden, embedded, state)) * HALF_VARIANCE
        return hidden, inputs[:, x.shape[1] :]


class Decoder(nn.Module):
    """Position vectors of the target, blocks, and the way in and out of them."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.positions = _table(config.max_target_tokens, config.embedding_dim)
        self.input = _linear(config.embedding_dim, dim, variance=1 - config.dropout)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        self.output = _linear(dim, config.embedding_dim)


class ConvS2S(nn.Module):
    """The whole model; `forward` trains, `start` and `step` decode one token at a time."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = Dropout(config.dropout)
        if config.tied_embeddings:
            self.embedding = _embedding(config)
        else:
            self.source_embedding, self.target_embedding = _embedding(config), _embedding(config)
            self.output = _linear(config.embedding_dim, config.vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def forward(self, batch: Batch) -> Tensor:
        """Readouts for every target position: [batch, target, embedding_dim]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        return self._decode(batch.input_ids, state)[0]

    def project(self, readout: Tensor) -> Tensor:
        """Readouts -> logits over the vocabulary."""
        tied = self.config.tied_embeddings
        weight = self.embedding.weight if tied else self.output.weight
        return linear(readout, weight, self.output_bias)

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids; the state that `step` carries from token to token.

        A mean over m words would vary 1/m as much as one of them, so that values are scaled by
        m sqrt(1/m). As every decoder layer attends, the encoder's gradient is divided by their
        number, the embeddings' not (3.4).
        """
        mask = length_mask(source_lengths, source_ids.shape[1])
        embedded = self._embed(source_ids, "source", self.encoder.positions)
        keys = self.encoder(embedded, mask)
        if keys.requires_grad:
            keys.register_hook(lambda gradient: gradient / self.config.decoder_layers)
        values = (keys + embedded) * source_lengths.to(embedded.dtype).sqrt()[:, None, None]
        window = keys.new_zeros(
            len(keys), self.config.decoder_kernel_size - 1, self.config.hidden_dim
        )
        windows = [window] * self.config.decoder_layers
        return {"keys": keys, "values": values, "mask": mask, "windows": windows, "position": 0}

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, embedding_dim], next state."""
        readout, state = self._decode(ids[:, None], state)
        return readout[:, 0], state

    def _decode(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        start, end = state["position"], state["position"] + ids.shape[1]
        embedded = self._embed(ids, "target", self.decoder.positions[start:end])
        x, windows = self.decoder.input(embedded), []
        for block, window in zip(self.decoder.blocks, state["windows"], strict=True):
            x, window = block(x, embedded, window, state)
            windows.append(window)
        readout = self.dropout(self.decoder.output(x))
        return readout, {**state, "windows": windows, "position": end}

    def _embed(self, ids: Tensor, side: str, positions: Tensor) -> Tensor:
        """Words plus their positions (3.1): [batch, length, embedding_dim]."""
        tied = self.config.tied_embeddings
        embedding = self.embedding if tied else getattr(self, f"{side}_embedding")
        return self.dropout(embedding(ids) + positions[: ids.shape[1]])


def _linear(in_dim: int, out_dim: int, variance: float = 1.0, *, bias: bool = True) -> nn.Linear:
    """Outputs vary `variance` times as much as inputs: N(0, sqrt(variance / in_dim)) (3.5).

    A gated linear unit makes a quarter of it, dropout one over what it keeps.
    """
    layer = nn.Linear(in_dim, out_dim, bias=bias)
    nn.init.normal_(layer.weight, std=math.sqrt(variance / in_dim))
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _table(num_rows: int, dim: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(num_rows, dim) * 0.1)  # 3.5


def _embedding(config: ConvS2SConfig) -> nn.Embedding:
    table = _table(config.vocab_size, config.embedding_dim)
    return nn.Embedding.from_pretrained(table, freeze=False)
