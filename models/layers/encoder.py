"""The end of an encoder: pooling of tokens' vectors (Reimers and Gurevych 2019, 3), dense layers,
and an embedding, scores of labels or of masked words.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize, relu, tanh

from models.batch import length_mask
from models.configs.base import Dense, EmbeddingHead, LabelHead, MaskedWordHead, TokenLabelHead
from models.layers.basic import ACTIVATIONS, Dropout

SQUASHING: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": relu,
    "gelu": gelu,
    "tanh": tanh,
}


class DenseLayer(nn.Module):
    """Computes activation(W x + b), normalised if the configuration says so."""

    def __init__(self, dim: int, config: Dense) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, config.dim, bias=config.bias)
        self.activation = SQUASHING[config.activation]
        epsilon = config.norm_epsilon
        self.norm = nn.Identity() if epsilon is None else nn.LayerNorm(config.dim, eps=epsilon)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.linear(x)))


class HeadLayers(nn.Module):
    """The layers from a text's vector, or a token's, of `dim` to the model's output."""

    def __init__(
        self, dim: int, config: EmbeddingHead | LabelHead | TokenLabelHead, dropout: float
    ) -> None:
        super().__init__()
        dims = [dim, *(dense.dim for dense in config.dense)]
        sizes = zip(dims, config.dense, strict=False)
        self.dense = nn.ModuleList(DenseLayer(dense, layer) for dense, layer in sizes)
        self.dropout = Dropout(dropout)
        self.labels = None
        if isinstance(config, LabelHead | TokenLabelHead):
            self.labels = nn.Linear(dims[-1], len(config.labels))
        self.is_normalised = isinstance(config, EmbeddingHead) and config.normalised

    def forward(self, x: Tensor) -> Tensor:
        """Return the input of `project` for vectors [..., dim]."""
        for layer in self.dense:
            x = layer(self.dropout(x))
        return self.dropout(x)

    def project(self, x: Tensor) -> Tensor:
        """Return the embedding [..., dim] or the logits [..., labels]."""
        if self.labels is not None:
            return self.labels(x)
        return normalize(x, dim=-1) if self.is_normalised else x


class MaskedWordLayers(nn.Module):
    """The layers from tokens' vectors of `dim` to scores of the vocabulary. Their last matrix is
    the table of the model's embeddings.
    """

    def __init__(self, dim: int, config: MaskedWordHead, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = nn.LayerNorm(dim, eps=config.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


def pool(x: Tensor, lengths: Tensor, ways: Sequence[str]) -> Tensor:
    """Return vectors [batch, len(ways) * dim] of tokens [batch, source, dim] with `lengths`
    [batch].
    """
    return torch.cat([POOLING[way](x, lengths) for way in ways], -1)


def _sum(x: Tensor, lengths: Tensor) -> Tensor:
    return (x * length_mask(lengths, x.shape[1])[..., None]).sum(1)


def _max(x: Tensor, lengths: Tensor) -> Tensor:
    is_real = length_mask(lengths, x.shape[1])[..., None]
    return x.masked_fill(~is_real, -torch.inf).amax(1)


POOLING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda x, lengths: x[:, 0],
    "last": lambda x, lengths: x[torch.arange(len(x), device=x.device), lengths - 1],
    "max": _max,
    "mean": lambda x, lengths: _sum(x, lengths) / lengths[:, None],
    "mean_sqrt_length": lambda x, lengths: _sum(x, lengths) / lengths[:, None].sqrt(),
}
