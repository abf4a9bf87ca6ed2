"""What decoder-only language models share, from GPT-2 to Llama.

Pre-norm layers of causal attention, to all positions or to the last `window` (Beltagy et al. 2020,
3.1), and a feed-forward network. Subclasses say how positions enter.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from models.configs.transformer import DecoderOnlyConfig
from models.contract import DecoderState, LanguageModel
from models.layers.attention import Attention, Past, append, causal_mask
from models.layers.basic import Dropout, VocabularyLayers

Rotate = Callable[[Tensor], Tensor]  # of queries or keys [batch, heads, new, head_dim]


@dataclass(frozen=True)
class DecoderOnlyState(DecoderState):
    """Keys and values of every layer for the tokens so far."""

    past: tuple[Past, ...]
    num_read: int  # tokens


class DecoderBlock(nn.Module):
    """Attention, then feed-forward. Inputs of both are normalised, in some models outputs too."""

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
        """Read x [batch, new, d_model] after the past. Return the output, and the past with x."""
        update, past = self.attend(x, rotate, mask, past)
        x = x + self.dropout(self.attention_output_norm(update))
        update = self.feed_forward(self.feed_forward_norm(x))
        return x + self.dropout(self.feed_forward_output_norm(update)), past

    def attend(self, x: Tensor, rotate: Rotate, mask: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Return the attention's output for x, and the past with x."""
        y = self.attention_norm(x)
        keys, values = self.attention.keys_values(y)
        past_and_new = append(past, (rotate(keys), values))
        return self.attention.attend(
            rotate(self.attention.queries(y)), past_and_new, mask
        ), past_and_new


class ParallelBlock(DecoderBlock):
    """Attention and feed-forward network read the same x (Wang and Komatsuzaki 2021, GPT-J)."""

    def forward(self, x: Tensor, rotate: Rotate, mask: Tensor, past: Past) -> tuple[Tensor, Past]:
        update, past = self.attend(x, rotate, mask, past)
        return x + self.dropout(update + self.feed_forward(self.feed_forward_norm(x))), past


class NormedResidualBlock(DecoderBlock):
    """The residual sums are with the normalised inputs (an option of BLOOM)."""

    def forward(self, x: Tensor, rotate: Rotate, mask: Tensor, past: Past) -> tuple[Tensor, Past]:
        update, past = self.attend(x, rotate, mask, past)
        x = self.feed_forward_norm(self.attention_norm(x) + self.dropout(update))
        return x + self.dropout(self.feed_forward(x)), past


class DecoderOnly(VocabularyLayers, LanguageModel[DecoderOnlyState]):
    """The base of decoder-only models. Subclasses embed, rotate and normalise."""

    config: DecoderOnlyConfig

    def __init__(
        self,
        config: DecoderOnlyConfig,
        blocks: Iterable[DecoderBlock],
        norm: nn.Module,
        scale: float = 1.0,
        logit_cap: float | None = None,
    ) -> None:
        super().__init__(config, config.d_model, scale=scale, cap=logit_cap)
        self.layers = nn.ModuleList(blocks)
        self.norm = norm

    def embed_at(self, ids: Tensor, start: int) -> Tensor:
        """Return the first layer's input for ids [batch, new] at positions from `start` on."""
        return self.embed(ids)

    def rotate(self, x: Tensor, start: int, layer: int) -> Tensor:
        """Rotate queries or keys [batch, heads, new, head_dim] by their positions, from
        `start` on.
        """
        return x

    def mask(self, allowed: Tensor) -> Tensor:
        """Return the mask of scores for the keys that queries may attend to, bool [query, key];
        see `Attention.attend`.
        """
        return allowed

    def empty_state(self) -> DecoderOnlyState:
        return DecoderOnlyState(((),) * len(self.layers), num_read=0)

    def read(self, ids: Tensor, state: DecoderOnlyState) -> tuple[Tensor, DecoderOnlyState]:
        start, end = state.num_read, state.num_read + ids.shape[1]
        x, pasts = self.embed_at(ids, start), []
        for index, (layer, past) in enumerate(zip(self.layers, state.past, strict=True)):
            mask = self.mask(causal_mask(start, end, self.config.window_of(index), ids.device))
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
