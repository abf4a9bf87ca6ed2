"""OpenNMT-py 3.5.1's models in plain torch: their modules' names and what they compute, as in
onmt/encoders/{rnn_encoder,transformer}.py, onmt/decoders/{decoder,transformer}.py and
onmt/modules/{embeddings,global_attention,multi_headed_attn,position_ffn,stacked_rnn}.py.
Inference only: no dropout, one source length at a time.
"""

import math
from argparse import Namespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

ACTIVATIONS = {"relu": relu, "gelu": gelu, "silu": silu, "gated-gelu": gelu}

DEFAULTS: dict[str, Any] = {
    "model_task": "seq2seq",
    "model_type": "text",
    "encoder_type": "rnn",
    "decoder_type": "rnn",
    "rnn_type": "LSTM",
    "input_feed": 1,
    "bridge": False,
    "context_gate": None,
    "coverage_attn": False,
    "copy_attn": False,
    "global_attention": "general",
    "global_attention_function": "softmax",
    "generator_function": "softmax",
    "share_embeddings": False,
    "share_decoder_embeddings": False,
    "position_encoding": False,
    "position_encoding_type": "SinusoidalInterleaved",
    "max_relative_positions": 0,
    "self_attn_type": "scaled-dot",
    "pos_ffn_activation_fn": "relu",
    "layer_norm": "standard",
    "norm_eps": 1e-6,
    "heads": 4,
    "num_kv": 0,
    "add_qkvbias": False,
    "add_ffnbias": False,
    "layers": 2,
    "hidden_size": 16,
    "word_vec_size": 12,
    "transformer_ff": 24,
}


class PositionalEncoding(nn.Module):
    def __init__(self, dim: int, kind: str, max_len: int = 5000) -> None:
        super().__init__()
        position = torch.arange(max_len).float()[:, None]
        if kind == "SinusoidalConcat":
            step = math.log(10000) / (dim // 2 - 1)
            angles = position * torch.exp(torch.arange(dim // 2).float() * -step)
            pe = torch.cat([torch.sin(angles), torch.cos(angles)], 1)
        else:
            angles = position * torch.exp(
                torch.arange(0, dim, 2).float() * -(math.log(10000) / dim)
            )
            pe = torch.stack([torch.sin(angles), torch.cos(angles)], 2).flatten(1)
        self.register_buffer("pe", pe[:, None])
        self.dim = dim

    def forward(self, emb: Tensor) -> Tensor:
        return emb * math.sqrt(self.dim) + self.pe.transpose(0, 1)[:, : emb.shape[1]]


class Embeddings(nn.Module):
    def __init__(self, opt: Namespace, num_words: int) -> None:
        super().__init__()
        self.make_embedding = nn.Sequential()
        table = nn.Embedding(num_words, opt.word_vec_size, padding_idx=1)
        self.make_embedding.add_module("emb_luts", nn.Sequential(table))
        if opt.position_encoding:
            pe = PositionalEncoding(opt.word_vec_size, opt.position_encoding_type)
            self.make_embedding.add_module("pe", pe)

    @property
    def word_lut(self) -> Any:
        return self.make_embedding[0][0]

    def forward(self, ids: Tensor) -> Tensor:
        return self.make_embedding(ids)


class RNNEncoder(nn.Module):
    def __init__(self, opt: Namespace, num_words: int) -> None:
        super().__init__()
        is_both = opt.encoder_type == "brnn"
        size = opt.hidden_size // (2 if is_both else 1)
        self.embeddings = Embeddings(opt, num_words)
        kind = getattr(nn, opt.rnn_type)
        self.rnn = kind(
            opt.word_vec_size, size, opt.layers, batch_first=True, bidirectional=is_both
        )
        if opt.bridge:
            total = size * opt.layers
            count = 2 if opt.rnn_type == "LSTM" else 1
            self.bridge = nn.ModuleList(nn.Linear(total, total) for _ in range(count))

    def forward(self, source: Tensor) -> tuple[Tensor, list[Tensor]]:
        memory, last = self.rnn(self.embeddings(source))
        states = list(last) if isinstance(last, tuple) else [last]
        if hasattr(self, "bridge"):
            states = [self.cross(bridge, s) for bridge, s in zip(self.bridge, states, strict=True)]
        return memory, states

    def cross(self, bridge: Any, state: Tensor) -> Tensor:
        state = state.permute(1, 0, 2).contiguous()
        result = relu(bridge(state.view(-1, bridge.in_features))).view(state.shape)
        return result.permute(1, 0, 2).contiguous()


class GlobalAttention(nn.Module):
    def __init__(self, dim: int, attn_type: str) -> None:
        super().__init__()
        self.attn_type = attn_type
        if attn_type == "general":
            self.linear_in = nn.Linear(dim, dim, bias=False)
        elif attn_type == "mlp":
            self.linear_context = nn.Linear(dim, dim, bias=False)
            self.linear_query = nn.Linear(dim, dim)
            self.v = nn.Linear(dim, 1, bias=False)
        self.linear_out = nn.Linear(dim * 2, dim, bias=attn_type == "mlp")

    def score(self, h_t: Tensor, h_s: Tensor) -> Tensor:
        if self.attn_type == "mlp":
            pairs = self.linear_query(h_t)[:, :, None] + self.linear_context(h_s)[:, None]
            return self.v(torch.tanh(pairs)).squeeze(-1)
        h_t = self.linear_in(h_t) if self.attn_type == "general" else h_t
        return torch.bmm(h_t, h_s.transpose(1, 2))

    def forward(self, h_t: Tensor, memory: Tensor) -> Tensor:
        context = torch.bmm(self.score(h_t, memory).softmax(-1), memory)
        attn_h = self.linear_out(torch.cat([context, h_t], 2))
        return attn_h if self.attn_type == "mlp" else torch.tanh(attn_h)


class StackedRNN(nn.Module):
    def __init__(self, kind: str, num_layers: int, input_size: int, hidden_size: int) -> None:
        super().__init__()
        cell: Any = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell}[kind]
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(cell(size, hidden_size) for size in sizes)

    def forward(self, x: Tensor, states: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        following = []
        for i, layer in enumerate(self.layers):
            parts = [state[i] for state in states]
            found = layer(x, tuple(parts)) if len(parts) == 2 else (layer(x, parts[0]),)
            following.append(found)
            x = found[0]
        return x, [torch.stack(parts) for parts in zip(*following, strict=True)]


class RNNDecoder(nn.Module):
    """InputFeedRNNDecoder and StdRNNDecoder."""

    def __init__(self, opt: Namespace, num_words: int) -> None:
        super().__init__()
        self.opt, size = opt, opt.hidden_size
        self.embeddings = Embeddings(opt, num_words)
        self.rnn: nn.Module = (
            StackedRNN(opt.rnn_type, opt.layers, opt.word_vec_size + size, size)
            if opt.input_feed
            else getattr(nn, opt.rnn_type)(opt.word_vec_size, size, opt.layers, batch_first=True)
        )
        self.attn = GlobalAttention(size, opt.global_attention)

    def forward(self, target: Tensor, memory: Tensor, states: list[Tensor]) -> Tensor:
        if self.opt.encoder_type == "brnn":
            states = [torch.cat([state[0::2], state[1::2]], 2) for state in states]
        emb = self.embeddings(target)
        if not self.opt.input_feed:
            outputs, _ = self.rnn(emb, tuple(states) if len(states) == 2 else states[0])
            return self.attn(outputs, memory)
        feed, found = emb.new_zeros(len(emb), self.opt.hidden_size), []
        for emb_t in emb.unbind(1):
            output, states = self.rnn(torch.cat([emb_t, feed], 1), states)
            feed = self.attn(output[:, None], memory)[:, 0]
            found.append(feed)
        return torch.stack(found, 1)


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def norm(opt: Namespace) -> nn.Module:
    kind: Any = RMSNorm if opt.layer_norm == "rms" else nn.LayerNorm
    return kind(opt.hidden_size, eps=opt.norm_eps)


class MultiHeadedAttention(nn.Module):
    def __init__(self, opt: Namespace) -> None:
        super().__init__()
        dim, bias = opt.hidden_size, opt.add_qkvbias
        self.dim_per_head, self.heads = dim // opt.heads, opt.heads
        kv_dim = self.dim_per_head * (opt.num_kv or opt.heads)
        self.linear_keys = nn.Linear(dim, kv_dim, bias=bias)
        self.linear_values = nn.Linear(dim, kv_dim, bias=bias)
        self.linear_query = nn.Linear(dim, dim, bias=bias)
        self.final_linear = nn.Linear(dim, dim, bias=bias)

    def shape(self, x: Tensor) -> Tensor:
        x = x.view(len(x), x.shape[1], -1, self.dim_per_head).transpose(1, 2)
        return x.repeat_interleave(self.heads // x.shape[1], 1)

    def forward(self, key: Tensor, query: Tensor, mask: Tensor | None = None) -> Tensor:
        k, v = self.shape(self.linear_keys(key)), self.shape(self.linear_values(key))
        q = self.shape(self.linear_query(query)) / math.sqrt(self.dim_per_head)
        scores = torch.matmul(q, k.transpose(2, 3))
        scores = scores if mask is None else scores.masked_fill(mask, -1e18)
        mixed = torch.matmul(scores.softmax(-1), v).transpose(1, 2).flatten(2)
        return self.final_linear(mixed)


class PositionwiseFeedForward(nn.Module):
    def __init__(self, opt: Namespace) -> None:
        super().__init__()
        dim, wide, bias = opt.hidden_size, opt.transformer_ff, opt.add_ffnbias
        self.w_1 = nn.Linear(dim, wide, bias=bias)
        self.w_2 = nn.Linear(wide, dim, bias=bias)
        self.layer_norm = norm(opt)
        self.activation: Any = ACTIVATIONS[opt.pos_ffn_activation_fn]
        if opt.pos_ffn_activation_fn in ("silu", "gated-gelu"):
            self.w_3 = nn.Linear(dim, wide, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.layer_norm(x)
        inter = self.activation(self.w_1(normed))
        inter = inter * self.w_3(normed) if hasattr(self, "w_3") else inter
        return self.w_2(inter) + x


class TransformerEncoderLayer(nn.Module):
    def __init__(self, opt: Namespace) -> None:
        super().__init__()
        self.self_attn, self.feed_forward = MultiHeadedAttention(opt), PositionwiseFeedForward(opt)
        self.layer_norm = norm(opt)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.layer_norm(x)
        return self.feed_forward(self.self_attn(normed, normed) + x)


class TransformerEncoder(nn.Module):
    def __init__(self, opt: Namespace, num_words: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(opt, num_words)
        layers = (TransformerEncoderLayer(opt) for _ in range(opt.layers))
        self.transformer = nn.ModuleList(layers)
        self.layer_norm = norm(opt)

    def forward(self, source: Tensor) -> tuple[Tensor, None]:
        x = self.embeddings(source)
        for layer in self.transformer:
            x = layer(x)
        return self.layer_norm(x), None


class TransformerDecoderLayer(nn.Module):
    def __init__(self, opt: Namespace) -> None:
        super().__init__()
        self.self_attn, self.context_attn = MultiHeadedAttention(opt), MultiHeadedAttention(opt)
        self.feed_forward = PositionwiseFeedForward(opt)
        self.layer_norm_1, self.layer_norm_2 = norm(opt), norm(opt)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        normed = self.layer_norm_1(x)
        query = self.self_attn(normed, normed, mask) + x
        return self.feed_forward(self.context_attn(memory, self.layer_norm_2(query)) + query)


class TransformerDecoder(nn.Module):
    def __init__(self, opt: Namespace, num_words: int) -> None:
        super().__init__()
        self.embeddings = Embeddings(opt, num_words)
        layers = (TransformerDecoderLayer(opt) for _ in range(opt.layers))
        self.transformer_layers = nn.ModuleList(layers)
        self.layer_norm = norm(opt)

    def forward(self, target: Tensor, memory: Tensor, states: None) -> Tensor:
        x = self.embeddings(target)
        mask = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        for layer in self.transformer_layers:
            x = layer(x, memory, mask)
        return self.layer_norm(x)


class NMTModel(nn.Module):
    def __init__(self, num_source: int, num_target: int, **options: Any) -> None:
        super().__init__()
        self.opt = opt = Namespace(**DEFAULTS | options)
        is_transformer = opt.encoder_type == "transformer"
        encoder: Any = TransformerEncoder if is_transformer else RNNEncoder
        decoder: Any = TransformerDecoder if is_transformer else RNNDecoder
        self.encoder, self.decoder = encoder(opt, num_source), decoder(opt, num_target)
        self.generator = nn.Linear(opt.hidden_size, num_target)
        if opt.share_embeddings:
            self.decoder.embeddings.word_lut.weight = self.encoder.embeddings.word_lut.weight
        if opt.share_decoder_embeddings:
            self.generator.weight = self.decoder.embeddings.word_lut.weight
        for name, parameter in self.named_parameters():
            is_norm = "layer_norm" in name and name.endswith("weight")
            nn.init.normal_(parameter, mean=float(is_norm), std=0.3)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [batch, target, words] of sources of one length."""
        memory, states = self.encoder(source)
        return self.generator(self.decoder(target, memory, states))

    def checkpoint(self, source: list[str], target: list[str]) -> dict[str, Any]:
        """Make what onmt/models/model_saver.py, `_save`, gives to torch.save."""
        state = self.state_dict()
        return {
            "model": {k: v for k, v in state.items() if not k.startswith("generator.")},
            "generator": self.generator.state_dict(),
            "vocab": {
                "src": source,
                "tgt": target,
                "data_task": "seq2seq",
                "decoder_start_token": "<s>",
            },
            "opt": self.opt,
            "optim": {"training_step": 1, "decay_fn": None},
        }
