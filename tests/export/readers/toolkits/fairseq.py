"""fairseq 0.12.2's Transformer in plain torch: its modules' names and what they compute, as in
fairseq/models/transformer/transformer_{encoder,decoder}.py and fairseq/modules/{transformer_layer,
multihead_attention,sinusoidal_positional_embedding,learned_positional_embedding}.py. No dropout.
"""

import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

PAD, EOS, SPECIAL = 1, 2, 4
ACTIVATIONS: dict[str, Any] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_accurate": lambda x: gelu(x, approximate="tanh"),
    "swish": silu,
}
DEFAULTS: dict[str, Any] = {
    "arch": "transformer",
    "source_lang": "en",
    "target_lang": "fr",
    "encoder_embed_dim": 32,
    "encoder_ffn_embed_dim": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_normalize_before": False,
    "encoder_learned_pos": False,
    "decoder_ffn_embed_dim": 24,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_normalize_before": False,
    "decoder_learned_pos": False,
    "activation_fn": "relu",
    "adaptive_softmax_cutoff": None,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
    "no_token_positional_embeddings": False,
    "no_scale_embedding": False,
    "layernorm_embedding": False,
    "max_source_positions": 50,
    "max_target_positions": 60,
}


class SinusoidalPositionalEmbedding(nn.Module):
    def __init__(self, dim: int, init_size: int) -> None:
        super().__init__()
        step = math.log(10000) / (dim // 2 - 1)
        frequencies = torch.exp(torch.arange(dim // 2).float() * -step)
        angles = torch.arange(init_size).float()[:, None] * frequencies
        self.weights = torch.cat([torch.sin(angles), torch.cos(angles)], 1)
        self.register_buffer("_float_tensor", torch.zeros(1))

    def forward(self, ids: Tensor) -> Tensor:
        return self.weights[PAD + 1 : PAD + 1 + ids.shape[1]]


class LearnedPositionalEmbedding(nn.Embedding):
    def forward(self, ids: Tensor) -> Tensor:
        return self.weight[PAD + 1 : PAD + 1 + ids.shape[1]]


class MultiheadAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.k_proj, self.v_proj, self.q_proj = (nn.Linear(dim, dim) for _ in range(3))
        self.out_proj = nn.Linear(dim, dim)

    def split(self, x: Tensor) -> Tensor:
        return x.view(len(x), x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (
            self.split(projection(x))
            for projection, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, key))
        )
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(2, 3))
        scores = scores if mask is None else scores.masked_fill(mask, float("-inf"))
        return self.out_proj(torch.matmul(scores.softmax(-1), v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """TransformerEncoderLayer; with `encoder_attn` TransformerDecoderLayer."""

    def __init__(self, args: Namespace, stack: str) -> None:
        super().__init__()
        dim, heads = args.encoder_embed_dim, getattr(args, f"{stack}_attention_heads")
        wide = getattr(args, f"{stack}_ffn_embed_dim")
        self.self_attn, self.self_attn_layer_norm = (
            MultiheadAttention(dim, heads),
            nn.LayerNorm(dim),
        )
        if stack == "decoder":
            self.encoder_attn = MultiheadAttention(dim, heads)
            self.encoder_attn_layer_norm = nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, wide), nn.Linear(wide, dim)
        self.final_layer_norm = nn.LayerNorm(dim)
        self.normalize_before = getattr(args, f"{stack}_normalize_before")
        self.activation: Any = ACTIVATIONS[args.activation_fn]

    def around(self, x: Tensor, norm: nn.Module, function: Any) -> Tensor:
        if self.normalize_before:
            return x + function(norm(x))
        return norm(x + function(x))

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        x = self.around(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, y, mask))
        if memory is not None:
            norm = self.encoder_attn_layer_norm
            x = self.around(x, norm, lambda y: self.encoder_attn(y, memory))
        return self.around(
            x, self.final_layer_norm, lambda y: self.fc2(self.activation(self.fc1(y)))
        )


class Stack(nn.Module):
    """TransformerEncoder and TransformerDecoder."""

    def __init__(self, args: Namespace, stack: str, embed_tokens: nn.Embedding) -> None:
        super().__init__()
        dim = args.encoder_embed_dim
        self.register_buffer("version", torch.tensor([3.0]))
        self.embed_tokens = embed_tokens
        self.embed_scale = 1.0 if args.no_scale_embedding else math.sqrt(dim)
        size = getattr(args, f"max_{'source' if stack == 'encoder' else 'target'}_positions")
        is_learned = getattr(args, f"{stack}_learned_pos")
        self.embed_positions: nn.Module = (
            LearnedPositionalEmbedding(size + PAD + 1, dim, PAD)
            if is_learned
            else SinusoidalPositionalEmbedding(dim, size + PAD + 1)
        )
        if args.layernorm_embedding:
            self.layernorm_embedding = nn.LayerNorm(dim)
        count = getattr(args, f"{stack}_layers")
        self.layers = nn.ModuleList(Layer(args, stack) for _ in range(count))
        if getattr(args, f"{stack}_normalize_before"):
            self.layer_norm = nn.LayerNorm(dim)

    def forward(self, ids: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        x = self.embed_scale * self.embed_tokens(ids) + self.embed_positions(ids)
        x = self.layernorm_embedding(x) if hasattr(self, "layernorm_embedding") else x
        for layer in self.layers:
            x = layer(x, memory, mask)
        return self.layer_norm(x) if hasattr(self, "layer_norm") else x


class TransformerModel(nn.Module):
    def __init__(self, num_source: int, num_target: int, **options: Any) -> None:
        super().__init__()
        self.args = args = Namespace(**DEFAULTS | options)
        dim = args.encoder_embed_dim
        source = nn.Embedding(num_source, dim, PAD)
        target = source if args.share_all_embeddings else nn.Embedding(num_target, dim, PAD)
        self.encoder, self.decoder = Stack(args, "encoder", source), Stack(args, "decoder", target)
        self.decoder.output_projection = nn.Linear(dim, num_target, bias=False)
        if args.share_all_embeddings or args.share_decoder_input_output_embed:
            self.decoder.output_projection.weight = target.weight
        for name, parameter in self.named_parameters():
            is_norm = "norm" in name and name.endswith("weight")
            nn.init.normal_(parameter, mean=float(is_norm), std=0.3)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [batch, target, words] of sources of one length, </s> at their ends."""
        memory = self.encoder(source, None, None)
        mask = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        return self.decoder.output_projection(self.decoder(target, memory, mask))

    def checkpoint(self) -> dict[str, Any]:
        return checkpoint_of(self)


def checkpoint_of(model: Any) -> dict[str, Any]:
    """Make what fairseq/trainer.py, `state_dict`, gives to torch.save, as before 0.10."""
    return {
        "args": model.args,
        "model": model.state_dict(),
        "optimizer_history": [{"num_updates": 1, "criterion_name": "CrossEntropyCriterion"}],
        "extra_state": {"epoch": 1, "best": 3.5},
        "last_optimizer_state": None,
    }


def save(model: Any, folder: Path, num_source: int, num_target: int) -> Path:
    """Write a model's checkpoint beside dictionaries of so many words; return its path."""
    for language, number in (("en", num_source), ("fr", num_target)):
        words = "".join(f"w{i} {1000 - i}\n" for i in range(number - 4))
        (folder / f"dict.{language}.txt").write_text(words)
    torch.save(model.checkpoint(), folder / "checkpoint_best.pt")
    return folder / "checkpoint_best.pt"


def change_saved(path: Path, change: Callable[[Any], object]) -> Path:
    """Let `change` at what a checkpoint holds."""
    tree = torch.load(path, weights_only=False)
    change(tree)
    torch.save(tree, path)
    return path
