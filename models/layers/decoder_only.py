"""Builds what decoder-only language models, GPT-2 as Llama, have in common.

Pre-norm layers of causal attention, all of it or the `window` last positions (Beltagy et al. 2020,
3.1), and a feed-forward network. How positions enter is for each family to say.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from models.configs.decoder_only import DecoderOnlyConfig
from models.contract import LanguageModel, State
from models.layers.attention import Attention, Past, append, causal_mask
from models.layers.dropout import Dropout
from models.layers.vocabulary import Vocabulary

Rotate = Callable[[Tensor], Tensor]  # of queries or keys [batch, heads, new, head_dim]


@dataclass(frozen=True)
class DecoderOnlyState(State):
    """Holds every layer's keys and values of the tokens so far."""

    past: tuple[Past, ...]
    num_read: int  # tokens


class Block(nn.Module):
    """Runs sublayers one after the other, their inputs normalised and, of some, their outputs."""

    def __init__(
        self,
        attention: Attention,
        feed_forward: nn.Module,
        make_norm: Callable[[], nn.Module],
        dropout: float,
        *,
        is_sandwich: bool = False,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = make_norm()
        self.feed_forward = feed_forward
        self.feed_forward_norm = make_norm()
        self.attention_output_norm = make_norm() if is_sandwich else nn.Identity()
        self.feed_forward_output_norm = make_norm() if is_sandwich else nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, rotate: Rotate, mask: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Read x [batch, new, d_model] after the past: the output, and the past with it."""
        update, past = self.attend(x, rotate, mask, past)
        x = x + self.dropout(self.attention_output_norm(update))
        update = self.feed_forward(self.feed_forward_norm(x))
        return x + self.dropout(self.feed_forward_output_norm(update)), past

    def attend(self, x: Tensor, rotate: Rotate, mask: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Compute what attention says of x, and the past with it."""
        y = self.attention_norm(x)
        keys, values = self.attention.keys_values(y)
        seen = append(past, (rotate(keys), values))
        return self.attention.attend(rotate(self.attention.queries(y)), seen, mask), seen


class ParallelBlock(Block):
    """Lets both sublayers read the same x (Wang and Komatsuzaki 2021, GPT-J)."""

    def forward(self, x: Tensor, rotate: Rotate, mask: Tensor, past: Past) -> tuple[Tensor, Past]:
        update, past = self.attend(x, rotate, mask, past)
        return x + self.dropout(update + self.feed_forward(self.feed_forward_norm(x))), past


class DecoderOnly(Vocabulary, LanguageModel[DecoderOnlyState]):
    """Is the base of the families, which say how they embed, rotate and normalise."""

    config: DecoderOnlyConfig

    def __init__(
        self,
        config: DecoderOnlyConfig,
        blocks: Iterable[Block],
        norm: nn.Module,
        scale: float = 1.0,
        logit_cap: float | None = None,
    ) -> None:
        super().__init__(config, config.d_model, scale=scale, cap=logit_cap)
        self.layers = nn.ModuleList(blocks)
        self.norm = norm

    def embed_at(self, ids: Tensor, start: int) -> Tensor:
        """Look up ids [batch, new] of positions `start`..: the first layer's input."""
        return self.embed(ids)

    def rotate(self, x: Tensor, start: int, layer: int) -> Tensor:
        """Turn queries or keys [batch, heads, new, head_dim] by their positions, `start`..."""
        return x

    def empty_state(self) -> DecoderOnlyState:
        return DecoderOnlyState(((),) * len(self.layers), num_read=0)

    def read(self, ids: Tensor, state: DecoderOnlyState) -> tuple[Tensor, DecoderOnlyState]:
        start, end = state.num_read, state.num_read + ids.shape[1]
        x, pasts = self.embed_at(ids, start), []
        for index, (layer, past) in enumerate(zip(self.layers, state.past, strict=True)):
            mask = causal_mask(start, end, self.config.window_of(index), ids.device)
            rotate = partial(self.rotate, start=start, layer=index)
            x, past = layer(x, rotate, mask, past)
            pasts.append(past)
        return self.norm(x), DecoderOnlyState(tuple(pasts), end)


def initialise(module: nn.Module) -> None:
    """Draw weights as GPT-2 does."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
