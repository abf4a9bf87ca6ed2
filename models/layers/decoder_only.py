"""Decoder-only language models: what GPT-2 and Llama have in common.

Pre-norm layers of causal attention, all of it or the `window` last positions (Beltagy et al. 2020,
3.1), and a feed-forward network. How positions enter is for each family to say.
"""

from collections.abc import Callable, Iterable
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import linear

from models.batch import Batch
from models.configs.language_models.decoder_only import DecoderOnlyConfig
from models.layers.attention import Attention, KeyValue, append, causal_mask
from models.layers.dropout import Dropout


class Block(nn.Module):
    """Sublayers one after the other, their inputs normalised and, of some models, their outputs."""

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

    def forward(
        self, x: Tensor, place: Callable[[Tensor], Tensor], mask: Tensor, cache: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """x [batch, new, d_model] after `cache`d positions -> output and the grown cache."""
        update, kv = self.attend(x, place, mask, cache)
        x = x + self.dropout(self.attention_output_norm(update))
        update = self.feed_forward(self.feed_forward_norm(x))
        return x + self.dropout(self.feed_forward_output_norm(update)), kv

    def attend(
        self, x: Tensor, place: Callable[[Tensor], Tensor], mask: Tensor, cache: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """What attention says of x, and the grown cache."""
        y = self.attention_norm(x)
        key, value = self.attention.keys_values(y)
        kv = append(cache, (place(key), value))
        return self.attention.attend(place(self.attention.queries(y)), kv, mask), kv


class ParallelBlock(Block):
    """Both sublayers read the same x (Wang and Komatsuzaki 2021, GPT-J)."""

    def forward(
        self, x: Tensor, place: Callable[[Tensor], Tensor], mask: Tensor, cache: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """x [batch, new, d_model] after `cache`d positions -> output and the grown cache."""
        update, kv = self.attend(x, place, mask, cache)
        return x + self.dropout(update + self.feed_forward(self.feed_forward_norm(x))), kv


class DecoderOnly(nn.Module):
    """The whole model; `forward` trains, `start` and `step` decode with a key-value cache."""

    def __init__(self, config: DecoderOnlyConfig, blocks: Iterable[Block], norm: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(blocks)
        self.norm = norm
        if not config.tied_embeddings:
            self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)

    def embed(self, ids: Tensor, start: int) -> Tensor:
        """Ids [batch, new] of positions `start`.. -> the first layer's input."""
        return self.embedding(ids)

    def place(self, x: Tensor, start: int, layer: int) -> Tensor:
        """Queries or keys [batch, heads, new, head_dim] of positions `start`.. as they score."""
        return x

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states for every position: [batch, length, d_model]."""
        return self._decode(batch.input_ids, self.empty_state())[0]

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden states -> logits over the vocabulary."""
        if self.config.tied_embeddings:
            return linear(hidden, self.embedding.weight)
        return self.output(hidden)

    def empty_state(self) -> dict:
        """The state before any token."""
        return {"self": [None] * len(self.layers), "position": 0}

    def start(self, prompt_ids: Tensor) -> tuple[Tensor, dict]:
        """Read prompts of one length [batch, length]: hidden of the last position and state."""
        hidden, state = self._decode(prompt_ids, self.empty_state())
        return hidden[:, -1], state

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> hidden [batch, d_model] and the next state."""
        hidden, state = self._decode(ids[:, None], state)
        return hidden[:, 0], state

    def _decode(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        start, end = state["position"], state["position"] + ids.shape[1]
        x, caches = self.embed(ids, start), []
        for index, layer in enumerate(self.layers):
            mask = causal_mask(start, end, self.config.window_of(index), ids.device)
            place = partial(self.place, start=start, layer=index)
            x, cache = layer(x, place, mask, state["self"][index])
            caches.append(cache)
        return self.norm(x), {"self": caches, "position": end}


def initialise(module: nn.Module) -> None:
    """GPT-2's."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
