"""Decoder-only language model in the shape of Llama (Touvron et al. 2023).

RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021), grouped-query attention (Ainslie et al.
2023) and SwiGLU (Shazeer 2020), no biases. A `window` makes it Mistral (Jiang et al. 2023, 2).
"""

from torch import Tensor, nn
from torch.nn.functional import linear, silu

from models.batch import Batch
from models.configs.llama import LlamaConfig
from models.layers.attention import Attention, KeyValue, append, causal_mask
from models.layers.positions import rotary_tables, rotate


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.up = nn.Linear(config.d_model, config.ffn_dim, bias=False)
        self.down = nn.Linear(config.ffn_dim, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention = Attention(
            config.d_model, config.num_heads, config.num_kv_heads, bias=False
        )
        self.attention_norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        self.feed_forward = SwiGLU(config)
        self.feed_forward_norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, cache: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """x [batch, new, d_model] after `cache`d positions -> output and the grown cache."""
        y = self.attention_norm(x)
        key, value = self.attention.keys_values(y)
        kv = append(cache, (rotate(key, *rotary), value))
        query = rotate(self.attention.queries(y), *rotary)
        x = x + self.dropout(self.attention.attend(query, kv, mask))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x))), kv


class Llama(nn.Module):
    """The whole model; `forward` trains, `start` and `step` decode with a key-value cache."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList([Block(config) for _ in range(config.num_layers)])
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        if not config.tied_embeddings:
            self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        cos, sin = rotary_tables(config.context_length, config.head_dim, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(_initialise)

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
        rotary = (self.cos[start:end], self.sin[start:end])
        mask = causal_mask(start, end, self.config.window, ids.device)
        x, caches = self.embedding(ids), []
        for layer, cache in zip(self.layers, state["self"], strict=True):
            x, cache = layer(x, rotary, mask, cache)
            caches.append(cache)
        return self.norm(x), {"self": caches, "position": end}


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
