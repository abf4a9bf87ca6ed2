"""Sockeye 3's Transformers as its own source has them (sockeye/model.py, transformer.py, layers.py,
3.1), under its own names; without dropout.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

BOS, EOS, SPECIAL = 2, 3, ["<pad>", "<unk>", "<s>", "</s>"]
STACK: dict[str, Any] = {
    "model_size": 32,
    "attention_heads": 4,
    "feed_forward_num_hidden": 48,
    "act_type": "relu",
    "num_layers": 2,
    "positional_embedding_type": "fixed",
    "preprocess_sequence": "n",
    "postprocess_sequence": "dr",
    "max_seq_len_source": 30,
    "max_seq_len_target": 30,
    "decoder_type": "transformer",
    "use_lhuc": False,
    "use_glu": False,
}


class ProcessBlock(nn.Module):
    def __init__(self, sequence: str, size: int) -> None:
        super().__init__()
        self.sequence = sequence
        if "n" in sequence:
            self.layer_norm = nn.LayerNorm(size, eps=1e-6)

    def forward(self, data: Tensor, prev: Tensor | None = None) -> Tensor:
        for step in self.sequence:
            if step == "r":
                assert prev is not None
                data = data + prev
            elif step == "n":
                data = self.layer_norm(data)
        return data


class Attention(nn.Module):
    """Attends with x to memory, both [batch, length, size]."""

    def __init__(self, size: int, heads: int, is_self: bool) -> None:
        super().__init__()
        self.heads, self.is_self = heads, is_self
        self.ff_out = nn.Linear(size, size, bias=False)
        if is_self:
            self.ff_in = nn.Linear(size, 3 * size, bias=False)
        else:
            self.ff_q = nn.Linear(size, size, bias=False)
            self.ff_kv = nn.Linear(size, 2 * size, bias=False)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.is_self:
            q, k, v = self.ff_in(x).chunk(3, -1)
        else:
            q, (k, v) = self.ff_q(x), self.ff_kv(memory).chunk(2, -1)
        q, k, v = (y.view(len(y), y.shape[1], self.heads, -1).transpose(1, 2) for y in (q, k, v))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(2, 3)
        scores = scores if mask is None else scores.masked_fill(mask, float("-inf"))
        return self.ff_out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def interleave_kv(self) -> None:
        """Put keys and values of the first head before those of the second, as they are saved."""
        weight = (self.ff_in if self.is_self else self.ff_kv).weight
        size = weight.shape[1]
        k, v = (part.view(self.heads, -1, size) for part in weight.data[-2 * size :].chunk(2))
        weight.data[-2 * size :] = torch.cat((k, v), dim=1).reshape(2 * size, size)


class SSRU(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.forget_gate, self.linear = nn.Linear(size, size), nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        rates = torch.sigmoid(self.forget_gate(x))
        inputs, cell, found = (1 - rates) * self.linear(x), torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            cell = rates[:, t] * cell + inputs[:, t]
            found.append(torch.relu(cell))
        return torch.stack(found, 1)


class FeedForward(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        size, wide = config["model_size"], config["feed_forward_num_hidden"]
        self.ff1, self.ff2 = nn.Linear(size, wide), nn.Linear(wide, size)
        acts = {"relu": nn.ReLU(), "swish1": nn.SiLU(), "gelu": nn.GELU()}
        self.act = acts[config["act_type"]]
        if config["use_glu"]:
            self.linear = nn.Linear(size, wide)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.ff1(x))
        return self.ff2(h * self.linear(x) if hasattr(self, "linear") else h)


class Block(nn.Module):
    def __init__(self, config: dict[str, Any], sublayers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.names = list(sublayers)
        for name, sublayer in sublayers.items():
            for when in ("pre", "post"):
                sequence = config[f"{when}process_sequence"]
                self.add_module(f"{when}_{name}", ProcessBlock(sequence, config["model_size"]))
            self.add_module(name, sublayer)

    def around(self, name: str, x: Tensor, *context: Any) -> Tensor:
        found = self.get_submodule(name)(self.get_submodule(f"pre_{name}")(x), *context)
        return self.get_submodule(f"post_{name}")(found, x)


class PositionalEmbeddings(nn.Module):
    def __init__(self, config: dict[str, Any], longest: int) -> None:
        super().__init__()
        size = config["model_size"]
        self.weight = nn.Parameter(torch.randn(longest, size))
        if config["positional_embedding_type"] == "fixed":
            channels = torch.arange(size // 2).unsqueeze(0)
            angles = torch.arange(longest).unsqueeze(1) / 10000 ** (2 * channels / size)
            self.weight = nn.Parameter(torch.cat([angles.sin(), angles.cos()], 1), False)

    def forward(self, x: Tensor) -> Tensor:
        return x * math.sqrt(x.shape[-1]) + self.weight[: x.shape[1]]


class Stack(nn.Module):
    def __init__(self, config: dict[str, Any], is_decoder: bool) -> None:
        super().__init__()
        size, heads = config["model_size"], config["attention_heads"]
        side = "target" if is_decoder else "source"
        self.pos_embedding = PositionalEmbeddings(config, config[f"max_seq_len_{side}"])
        self.layers = nn.ModuleList()
        for _ in range(config["num_layers"]):
            own: nn.Module = Attention(size, heads, True)
            own = SSRU(size) if config["decoder_type"] != "transformer" and is_decoder else own
            sublayers = {"autoregr_layer" if is_decoder else "self_attention": own}
            if is_decoder:
                sublayers["enc_attention"] = Attention(size, heads, False)
            self.layers.append(Block(config, sublayers | {"ff": FeedForward(config)}))
        self.final_process = ProcessBlock(config["preprocess_sequence"], size)

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        x = self.pos_embedding(x)
        for block in self.layers:
            first = block.names[0]
            x = block.around(first, x, x, mask)
            x = block.around("enc_attention", x, memory) if memory is not None else x
            x = block.around("ff", x)
        return self.final_process(x)


class Embedding(nn.Module):
    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.embedding = table


class SockeyeModel(nn.Module):
    def __init__(self, num_source: int, num_target: int, tying: str, **options: Any) -> None:
        super().__init__()
        self.config, self.tying = STACK | options, tying
        size = self.config["model_size"]
        target = nn.Embedding(num_target, size)
        source = target if tying.startswith("src_trg") else nn.Embedding(num_source, size)
        self.embedding_source, self.embedding_target = Embedding(source), Embedding(target)
        self.encoder, self.decoder = Stack(self.config, False), Stack(self.config, True)
        self.output_layer = nn.Linear(size, num_target)
        if tying.endswith("softmax"):
            self.output_layer.weight = target.weight
        for name, parameter in self.named_parameters():
            is_norm = "norm" in name and name.endswith("weight")
            if parameter.requires_grad:
                nn.init.normal_(parameter, mean=float(is_norm), std=0.3)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [batch, target, words] of sources of one length, </s> at their ends."""
        memory = self.encoder(self.embedding_source.embedding(source), None, None)
        mask = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        hidden = self.decoder(self.embedding_target.embedding(target), memory, mask)
        return self.output_layer(hidden)

    def saved(self) -> dict[str, Tensor]:
        """Make what `save_parameters` gives to torch.save."""
        self._interleave()
        state = {name: tensor.clone() for name, tensor in self.state_dict().items()}
        self._separate()
        return state

    def _interleave(self) -> None:
        self._kept = {name: tensor.clone() for name, tensor in self.state_dict().items()}
        for module in self.modules():
            if isinstance(module, Attention):
                module.interleave_kv()

    def _separate(self) -> None:
        self.load_state_dict(self._kept)
