"""Ends an encoder: dense layers over a text's vector, then its embedding or scores of labels."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu, normalize, relu, tanh

from models.configs.encoder import Dense, EmbeddingHead, LabelHead
from models.layers.dropout import Dropout

SQUASHING: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": relu,
    "gelu": gelu,
    "tanh": tanh,
}


class DenseLayer(nn.Module):
    """Computes activation(W x + b)."""

    def __init__(self, dim: int, config: Dense) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, config.dim, bias=config.bias)
        self.activation = SQUASHING[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


class HeadLayers(nn.Module):
    """Goes from a text's vector of `dim` to what the model puts out."""

    def __init__(self, dim: int, config: EmbeddingHead | LabelHead, dropout: float) -> None:
        super().__init__()
        dims = [dim, *(each.dim for each in config.dense)]
        sizes = zip(dims, config.dense, strict=False)
        self.dense = nn.ModuleList(DenseLayer(each, layer) for each, layer in sizes)
        self.dropout = Dropout(dropout)
        self.labels = None
        if isinstance(config, LabelHead):
            self.labels = nn.Linear(dims[-1], len(config.labels))
        self.is_normalised = isinstance(config, EmbeddingHead) and config.normalised

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., dim] to what `project` reads."""
        for layer in self.dense:
            x = layer(self.dropout(x))
        return self.dropout(x)

    def project(self, x: Tensor) -> Tensor:
        """Give the embedding [..., dim] or the logits [..., labels]."""
        if self.labels is not None:
            return self.labels(x)
        return normalize(x, dim=-1) if self.is_normalised else x
