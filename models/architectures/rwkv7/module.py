"""RWKV-7 (Peng et al. 2025, "RWKV-7 Goose with Expressive Dynamic State Evolution").

A layer mixes tokens over time, then channels; each reads its input mixed with that of the token
before. Each head keeps a matrix S [K, V], from keys to values. A token makes from its input a decay
w for each key channel, a key k to write under, the same key of length 1 to remove from under, and
a rate a at which it is removed (equations 12 to 17):

    S_t = diag(w_t) S_{t-1} - (a_t * removed_t) (removed_t^T S_{t-1}) + k_t v_t^T    y_t = S_t^T r_t

Values of later layers are mixed with those of the first. A text costs the same memory however long
it is.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from models.architectures.rwkv7.config import FASTEST_DECAY, RWKV7Config
from models.contract import DecoderState, LanguageModel
from models.layers.basic import Dropout, VocabularyLayers
from models.layers.decoder_only import initialise

MIXED = ("receptance", "decay", "key", "value", "rate", "gate")  # with the token before
LayerState = tuple[Tensor, Tensor, Tensor]  # last inputs [batch, d_model] twice, and matrices


@dataclass(frozen=True)
class RWKV7State(DecoderState):
    """The states of every layer; empty: zeros."""

    layers: tuple[LayerState, ...] = ()


class LowRank(nn.Module):
    """Computes up(activation(down(x)))."""

    def __init__(self, dim: int, rank: int, activation: nn.Module, *, bias: bool) -> None:
        super().__init__()
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, dim, bias=bias)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.activation(self.down(x)))


class TimeMixing(nn.Module):
    """Reads a token into the heads' matrices, and reads these."""

    def __init__(self, config: RWKV7Config, *, is_first: bool) -> None:
        super().__init__()
        self.config, dim = config, config.d_model
        self.mix = nn.Parameter(torch.rand(len(MIXED), dim))
        self.receptance, self.key, self.value, self.output = (
            nn.Linear(dim, dim, bias=False) for _ in range(4)
        )
        none = nn.Identity()
        self.decay = LowRank(dim, config.decay_rank, nn.Tanh(), bias=True)
        self.rate = LowRank(dim, config.rate_rank, none, bias=True)
        self.gate = LowRank(dim, config.gate_rank, nn.Sigmoid(), bias=False)
        self.value_share = None if is_first else LowRank(dim, config.value_rank, none, bias=True)
        self.removal, self.rate_share = (nn.Parameter(torch.ones(dim)) for _ in range(2))
        self.bonus = nn.Parameter(torch.zeros(dim))
        self.head_norm = nn.GroupNorm(config.num_heads, dim, eps=config.head_epsilon)

    def forward(
        self, x: Tensor, last: Tensor, matrices: Tensor, first_value: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read x [batch, new, d_model] after the token with input `last`. Return the update, the
        next matrices [batch, heads, K, V], and the first layer's values.
        """
        before = shift_inputs(x, last) - x
        mixed = dict(zip(MIXED, (x + before * share for share in self.mix), strict=True))
        r, k = self.receptance(mixed["receptance"]), self.key(mixed["key"])
        v = self.value(mixed["value"])
        if self.value_share is not None and first_value is not None:
            v = v + (first_value - v) * self.value_share(mixed["value"]).sigmoid()
        rate = self.rate(mixed["rate"]).sigmoid()
        decay = (-FASTEST_DECAY * self.decay(mixed["decay"]).sigmoid()).exp()
        removed = normalize(self._heads(k * self.removal), dim=-1)
        k = k * (1 + (rate - 1) * self.rate_share)
        r, decay, k, v, rate = (self._heads(part) for part in (r, decay, k, v, rate))
        y, matrices = scan(HeadInputs(r, decay, k, v, rate, removed), matrices)
        y = self.head_norm(y.flatten(2).flatten(0, 1)).view_as(x)
        likeness = (r * k * self._heads(self.bonus)).sum(-1, keepdim=True)
        y = y + (likeness * v).flatten(2)
        value_of_first = v.flatten(2) if first_value is None else first_value
        return self.output(y * self.gate(mixed["gate"])), matrices, value_of_first

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.config.num_heads, self.config.head_dim))


class HeadInputs(NamedTuple):
    """What a text does to the matrices of each head; each [batch, length, heads, head_dim]."""

    receptance: Tensor
    decay: Tensor
    key: Tensor
    value: Tensor
    rate: Tensor
    removed: Tensor


def scan(read: HeadInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return y [batch, length, heads, V] of all positions, and the last state [batch, heads, K,
    V].
    """
    outputs = []
    for inputs in zip(*(part.unbind(1) for part in read), strict=True):
        r, decay, k, v, rate, removed = inputs
        removed_value = removed[:, :, None] @ state
        state = state * decay[..., None] - (rate * removed)[..., None] * removed_value
        state = state + k[..., None] * v[:, :, None]
        outputs.append((r[:, :, None] @ state)[:, :, 0])
    return torch.stack(outputs, 1), state


class ChannelMixing(nn.Module):
    """Computes value(relu(key(x))^2)."""

    def __init__(self, config: RWKV7Config) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(config.d_model))
        self.key = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.value = nn.Linear(config.ffn_dim, config.d_model, bias=False)

    def forward(self, x: Tensor, last: Tensor) -> Tensor:
        x = x + (shift_inputs(x, last) - x) * self.mix
        return self.value(relu(self.key(x)) ** 2)


def shift_inputs(x: Tensor, last: Tensor) -> Tensor:
    """Return the input before each of x [batch, new, d_model]; of the first, `last`."""
    return torch.cat([last[:, None], x[:, :-1]], 1)


class Rwkv7Layer(nn.Module):
    """Both mixings, each with a normalised input and a residual sum."""

    def __init__(self, config: RWKV7Config, *, is_first: bool) -> None:
        super().__init__()
        sizes = config.d_model, config.norm_epsilon
        self.time_norm, self.channels_norm = (nn.LayerNorm(*sizes) for _ in range(2))
        self.time = TimeMixing(config, is_first=is_first)
        self.channels = ChannelMixing(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, state: LayerState, first_value: Tensor | None
    ) -> tuple[Tensor, LayerState, Tensor]:
        last_time, last_channels, matrices = state
        normed = self.time_norm(x)
        update, matrices, first_value = self.time(normed, last_time, matrices, first_value)
        x = x + self.dropout(update)
        read = self.channels_norm(x)
        x = x + self.dropout(self.channels(read, last_channels))
        return x, (normed[:, -1], read[:, -1], matrices), first_value


class RWKV7(VocabularyLayers, LanguageModel[RWKV7State]):
    """Layers between embedding and output."""

    config: RWKV7Config

    def __init__(self, config: RWKV7Config) -> None:
        super().__init__(config, config.d_model)
        self.embedding_norm, self.norm = (
            nn.LayerNorm(config.d_model, config.norm_epsilon) for _ in range(2)
        )
        self.layers = nn.ModuleList(
            Rwkv7Layer(config, is_first=number == 0) for number in range(config.num_layers)
        )
        self.apply(initialise)

    def empty_state(self) -> RWKV7State:
        return RWKV7State()

    def read(self, ids: Tensor, state: RWKV7State) -> tuple[Tensor, RWKV7State]:
        x, following, first = self.embedding_norm(self.embed(ids)), [], None
        for layer, before in zip(self.layers, state.layers or self._zeros(x), strict=True):
            x, after, first = layer(x, before, first)
            following.append(after)
        return self.norm(x), RWKV7State(tuple(following))

    def _zeros(self, x: Tensor) -> tuple[LayerState, ...]:
        config, batch = self.config, x.shape[0]
        last = x.new_zeros(batch, config.d_model)
        sizes = config.num_heads, config.head_dim, config.head_dim
        return ((last, last, x.new_zeros(batch, *sizes)),) * config.num_layers
