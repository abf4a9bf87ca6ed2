"""JoeyNMT's models as its own source has them (joeynmt/model.py, encoders.py, decoders.py,
attention.py, transformer_layers.py, 2.3), under its own names; without dropout.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

PAD, BOS, EOS = 1, 2, 3
NORM = {"eps": 1e-6}
RECURRENT: dict[str, Any] = {
    "encoder": {
        "type": "recurrent",
        "rnn_type": "gru",
        "bidirectional": True,
        "embeddings": {"embedding_dim": 12, "scale": False},
        "hidden_size": 16,
        "num_layers": 1,
    },
    "decoder": {
        "type": "recurrent",
        "rnn_type": "gru",
        "embeddings": {"embedding_dim": 12, "scale": False},
        "hidden_size": 20,
        "num_layers": 2,
        "attention": "bahdanau",
        "init_hidden": "bridge",
        "input_feeding": True,
    },
}
STACK: dict[str, Any] = {
    "type": "transformer",
    "embeddings": {"embedding_dim": 32, "scale": True},
    "hidden_size": 32,
    "ff_size": 48,
    "num_layers": 2,
    "num_heads": 4,
    "layer_norm": "pre",
}
TRANSFORMER: dict[str, Any] = {"encoder": STACK, "decoder": STACK}


class Embeddings(nn.Module):
    def __init__(self, embedding_dim: int, scale: bool, vocab_size: int) -> None:
        super().__init__()
        self.factor = math.sqrt(embedding_dim) if scale else 1.0
        self.lut = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)

    def forward(self, ids: Tensor) -> Tensor:
        return self.lut(ids) * self.factor


class RecurrentEncoder(nn.Module):
    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__()
        kind: Any = nn.GRU if cfg["rnn_type"] == "gru" else nn.LSTM
        sizes = cfg["embeddings"]["embedding_dim"], cfg["hidden_size"], cfg["num_layers"]
        self.rnn = kind(*sizes, batch_first=True, bidirectional=True)
        self.output_size = 2 * cfg["hidden_size"]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output, hidden = self.rnn(x)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        layerwise = hidden.view(self.rnn.num_layers, 2, len(x), self.rnn.hidden_size)
        return output, torch.cat([layerwise[-1:, 0], layerwise[-1:, 1]], dim=2).squeeze(0)


class BahdanauAttention(nn.Module):
    def __init__(self, hidden_size: int, key_size: int) -> None:
        super().__init__()
        self.key_layer = nn.Linear(key_size, hidden_size, bias=False)
        self.query_layer = nn.Linear(hidden_size, hidden_size, bias=False)
        self.energy_layer = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, query: Tensor, values: Tensor) -> Tensor:
        energy = torch.tanh(self.query_layer(query) + self.key_layer(values))
        return self.energy_layer(energy).squeeze(2).unsqueeze(1).softmax(-1) @ values


class LuongAttention(nn.Module):
    def __init__(self, hidden_size: int, key_size: int) -> None:
        super().__init__()
        self.key_layer = nn.Linear(key_size, hidden_size, bias=False)

    def forward(self, query: Tensor, values: Tensor) -> Tensor:
        return (query @ self.key_layer(values).transpose(1, 2)).softmax(-1) @ values


class RecurrentDecoder(nn.Module):
    def __init__(self, cfg: dict[str, Any], key_size: int, vocab_size: int) -> None:
        super().__init__()
        self.cfg, size = cfg, cfg["hidden_size"]
        kind: Any = nn.GRU if cfg["rnn_type"] == "gru" else nn.LSTM
        into = cfg["embeddings"]["embedding_dim"] + (size if cfg["input_feeding"] else 0)
        self.rnn = kind(into, size, cfg["num_layers"], batch_first=True)
        self.att_vector_layer = nn.Linear(size + key_size, size)
        self.output_layer = nn.Linear(size, vocab_size, bias=False)
        attention: Any = {"bahdanau": BahdanauAttention, "luong": LuongAttention}
        self.attention = attention[cfg["attention"]](size, key_size)
        if cfg["init_hidden"] == "bridge":
            self.bridge_layer = nn.Linear(key_size, size)

    def init_hidden(self, final: Tensor) -> Any:
        kind, layers = self.cfg["init_hidden"], self.cfg["num_layers"]
        start = final[:, : self.cfg["hidden_size"]]
        if kind == "bridge":
            start = torch.tanh(self.bridge_layer(final))
        elif kind == "zero":
            start = torch.zeros(len(final), self.cfg["hidden_size"])
        hidden = start.unsqueeze(0).repeat(layers, 1, 1)
        return (hidden, hidden) if isinstance(self.rnn, nn.LSTM) else hidden

    def forward(self, embedded: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
        values, final = memory
        hidden, found = self.init_hidden(final), []
        vector = torch.zeros(len(final), 1, self.cfg["hidden_size"])
        for i in range(embedded.shape[1]):
            x = embedded[:, i : i + 1]
            x = torch.cat([x, vector], dim=2) if self.cfg["input_feeding"] else x
            _, hidden = self.rnn(x, hidden)
            query = (hidden[0] if isinstance(hidden, tuple) else hidden)[-1].unsqueeze(1)
            context = self.attention(query, values)
            vector = torch.tanh(self.att_vector_layer(torch.cat([query, context], dim=2)))
            found.append(vector)
        return self.output_layer(torch.cat(found, 1))


class MultiHeadedAttention(nn.Module):
    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.heads = heads
        self.k_layer, self.v_layer = nn.Linear(size, size), nn.Linear(size, size)
        self.q_layer, self.output_layer = nn.Linear(size, size), nn.Linear(size, size)

    def shape(self, x: Tensor) -> Tensor:
        return x.view(len(x), x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, memory: Tensor, x: Tensor, mask: Tensor | None = None) -> Tensor:
        k, v = self.shape(self.k_layer(memory)), self.shape(self.v_layer(memory))
        q = self.shape(self.q_layer(x))
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(2, 3)
        scores = scores if mask is None else scores.masked_fill(mask, float("-inf"))
        return self.output_layer((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Sublayers(nn.Module):
    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__()
        self.is_pre = cfg.get("layer_norm") == "pre"

    def around(self, x: Tensor, norm: nn.Module, sublayer: Any) -> Tensor:
        return x + sublayer(norm(x)) if self.is_pre else norm(x + sublayer(x))


class PositionwiseFeedForward(Sublayers):
    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__(cfg)
        size, wide = cfg["hidden_size"], cfg["ff_size"]
        activation = nn.GELU() if cfg.get("activation") == "gelu" else nn.ReLU()
        self.layer_norm = nn.LayerNorm(size, **NORM)
        layers = nn.Linear(size, wide), activation, nn.Dropout(0), nn.Linear(wide, size)
        self.pwff_layer = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.around(x, self.layer_norm, self.pwff_layer)


class TransformerEncoderLayer(Sublayers):
    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__(cfg)
        self.layer_norm = nn.LayerNorm(cfg["hidden_size"], **NORM)
        self.src_src_att = MultiHeadedAttention(cfg["num_heads"], cfg["hidden_size"])
        self.feed_forward = PositionwiseFeedForward(cfg)

    def forward(self, x: Tensor) -> Tensor:
        x = self.around(x, self.layer_norm, lambda y: self.src_src_att(y, y))
        return self.feed_forward(x)


class TransformerDecoderLayer(Sublayers):
    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__(cfg)
        heads, size = cfg["num_heads"], cfg["hidden_size"]
        self.trg_trg_att = MultiHeadedAttention(heads, size)
        self.src_trg_att = MultiHeadedAttention(heads, size)
        self.feed_forward = PositionwiseFeedForward(cfg)
        self.x_layer_norm = nn.LayerNorm(size, **NORM)
        self.dec_layer_norm = nn.LayerNorm(size, **NORM)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        x = self.around(x, self.x_layer_norm, lambda y: self.trg_trg_att(y, y, mask))
        x = self.around(x, self.dec_layer_norm, lambda y: self.src_trg_att(memory, y))
        return self.feed_forward(x)


class PositionalEncoding(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        step = torch.exp(torch.arange(0, size, 2).float() * -(math.log(10000.0) / size))
        angles = torch.arange(50)[:, None].float() * step
        table = torch.stack([torch.sin(angles), torch.cos(angles)], 2).flatten(1)
        self.register_buffer("pe", table.unsqueeze(0))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.shape[1]]


class Stack(nn.Module):
    def __init__(self, cfg: dict[str, Any], layer: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(cfg) for _ in range(cfg["num_layers"]))
        self.pe = PositionalEncoding(cfg["hidden_size"])
        has_norm = cfg.get("layer_norm") == "pre"
        self.layer_norm = nn.LayerNorm(cfg["hidden_size"], **NORM) if has_norm else None

    def run(self, x: Tensor, *context: Tensor) -> Tensor:
        x = self.pe(x)
        for layer in self.layers:
            x = layer(x, *context)
        return x if self.layer_norm is None else self.layer_norm(x)


class TransformerEncoder(Stack):
    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__(cfg, TransformerEncoderLayer)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.run(x), None


class TransformerDecoder(Stack):
    def __init__(self, cfg: dict[str, Any], vocab_size: int) -> None:
        super().__init__(cfg, TransformerDecoderLayer)
        self.output_layer = nn.Linear(cfg["hidden_size"], vocab_size, bias=False)

    def forward(self, x: Tensor, memory: tuple[Tensor, None]) -> Tensor:
        mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return self.output_layer(self.run(x, memory[0], mask))


class Model(nn.Module):
    def __init__(self, cfg: dict[str, Any], num_source: int, num_target: int) -> None:
        super().__init__()
        encoder, decoder = cfg["encoder"], cfg["decoder"]
        self.src_embed = Embeddings(**encoder["embeddings"], vocab_size=num_source)
        self.trg_embed = Embeddings(**decoder["embeddings"], vocab_size=num_target)
        self.trg_embed = self.src_embed if cfg.get("tied_embeddings") else self.trg_embed
        if encoder["type"] == "transformer":
            self.encoder: nn.Module = TransformerEncoder(encoder)
            self.decoder: Any = TransformerDecoder(decoder, num_target)
        else:
            self.encoder = RecurrentEncoder(encoder)
            self.decoder = RecurrentDecoder(decoder, self.encoder.output_size, num_target)
        if cfg.get("tied_softmax"):
            self.decoder.output_layer.weight = self.trg_embed.lut.weight
        for name, parameter in self.named_parameters():
            is_norm = "norm" in name and name.endswith("weight")
            nn.init.normal_(parameter, mean=float(is_norm), std=0.3)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [batch, target, words] of sources of one length, </s> at their ends."""
        return self.decoder(self.trg_embed(target), self.encoder(self.src_embed(source)))
