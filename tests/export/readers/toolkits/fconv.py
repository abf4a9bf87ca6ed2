"""fairseq's convolutional model as its own source has it (fairseq/models/fconv.py, 0.12), under its
own names; without dropout.
"""

import math
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, pad

from tests.export.readers.toolkits.fairseq import PAD, checkpoint_of

DEFAULTS: dict[str, Any] = {
    "arch": "fconv_iwslt_de_en",
    "source_lang": "en",
    "target_lang": "fr",
    "encoder_embed_dim": 12,
    "encoder_layers": "[(16, 3)] * 2",
    "decoder_embed_dim": 12,
    "decoder_layers": "[(16, 3)] * 2",
    "decoder_out_embed_dim": 12,
    "decoder_attention": "True",
    "share_input_output_embed": False,
}
Spec = tuple[int, int]


class Normed(nn.Module):
    """Does as torch.nn.utils.weight_norm does: lengths are those along axis `dim`."""

    def __init__(self, *shape: int, dim: int) -> None:
        super().__init__()
        self.dim, lengths = dim, [1] * len(shape)
        lengths[dim] = shape[dim]
        self.weight_g, self.weight_v = (
            nn.Parameter(torch.ones(lengths)),
            nn.Parameter(torch.ones(shape)),
        )
        self.bias = nn.Parameter(torch.zeros(shape[0] if len(shape) == 2 else shape[2]))

    @property
    def weight(self) -> Tensor:
        axes = [axis for axis in range(self.weight_v.dim()) if axis != self.dim]
        return self.weight_v * (self.weight_g / self.weight_v.norm(dim=axes, keepdim=True))


class Linear(Normed):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(out_features, in_features, dim=0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


class ConvTBC(Normed):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__(kernel_size, in_channels, out_channels, dim=2)
        self.kernel_size = kernel_size

    def forward(self, x: Tensor) -> Tensor:
        """Convolve [time + kernel - 1, batch, in_channels]."""
        return torch.conv_tbc(x.contiguous(), self.weight, self.bias, 0)


def positions_of(table: nn.Embedding, ids: Tensor) -> Tensor:
    return table(torch.arange(ids.shape[1]) + PAD + 1)


class Stack(nn.Module):
    def __init__(self, num_words: int, dim: int, layers: Sequence[Spec]) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(num_words, dim, PAD)
        self.embed_positions = nn.Embedding(30, dim, PAD)
        channels = layers[0][0]
        self.fc1 = Linear(dim, channels)
        self.projections, self.convolutions = nn.ModuleList(), nn.ModuleList()
        for out, kernel in layers:
            self.projections.append(Linear(channels, out) if channels != out else None)
            self.convolutions.append(ConvTBC(channels, 2 * out, kernel))
            channels = out

    def embed(self, ids: Tensor) -> Tensor:
        return self.embed_tokens(ids) + positions_of(self.embed_positions, ids)


class Encoder(Stack):
    def __init__(self, num_words: int, dim: int, layers: Sequence[Spec]) -> None:
        super().__init__(num_words, dim, layers)
        self.fc2 = Linear(layers[-1][0], dim)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.embed(ids)
        x = self.fc1(embedded).transpose(0, 1)
        for projection, convolution in zip(self.projections, self.convolutions, strict=True):
            residual = x if projection is None else projection(x)
            kernel = convolution.kernel_size
            padded = pad(x, (0, 0, 0, 0, (kernel - 1) // 2, kernel // 2))
            x = (glu(convolution(padded), 2) + residual) * math.sqrt(0.5)
        x = self.fc2(x.transpose(0, 1))
        return x, (x + embedded) * math.sqrt(0.5)


class AttentionLayer(nn.Module):
    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.in_projection, self.out_projection = Linear(channels, dim), Linear(dim, channels)

    def forward(self, x: Tensor, embedded: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
        query = (self.in_projection(x) + embedded) * math.sqrt(0.5)
        scores = torch.bmm(query, memory[0].transpose(1, 2)).softmax(-1)
        length = memory[1].shape[1]
        found = torch.bmm(scores, memory[1]) * (length * math.sqrt(1.0 / length))
        return (self.out_projection(found) + x) * math.sqrt(0.5)


class Decoder(Stack):
    def __init__(
        self, num_words: int, args: Namespace, layers: Sequence[Spec], attends: list[bool]
    ) -> None:
        dim, out = args.decoder_embed_dim, args.decoder_out_embed_dim
        super().__init__(num_words, dim, layers)
        self.register_buffer("version", torch.Tensor([2]))
        pairs = zip(layers, attends, strict=True)
        self.attention = nn.ModuleList(
            AttentionLayer(channels, dim) if attend else None for (channels, _), attend in pairs
        )
        self.fc2 = Linear(layers[-1][0], out)
        if args.share_input_output_embed:
            self.fc3: nn.Module = nn.Linear(out, num_words)
            self.fc3.weight = self.embed_tokens.weight
        else:
            self.fc3 = Linear(out, num_words)

    def forward(self, ids: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
        embedded = self.embed(ids)
        x = self.fc1(embedded).transpose(0, 1)
        for projection, convolution, attention in zip(
            self.projections, self.convolutions, self.attention, strict=True
        ):
            residual = x if projection is None else projection(x)
            x = glu(convolution(pad(x, (0, 0, 0, 0, convolution.kernel_size - 1, 0))), 2)
            if attention is not None:
                x = attention(x.transpose(0, 1), embedded, memory).transpose(0, 1)
            x = (x + residual) * math.sqrt(0.5)
        return self.fc3(self.fc2(x.transpose(0, 1)))


class FConvModel(nn.Module):
    def __init__(self, num_source: int, num_target: int, **options: Any) -> None:
        super().__init__()
        self.args = args = Namespace(**DEFAULTS | options)
        encoder, decoder = eval(args.encoder_layers), eval(args.decoder_layers)
        attends = eval(args.decoder_attention)
        attends = attends if isinstance(attends, list) else [attends] * len(decoder)
        self.encoder = Encoder(num_source, args.encoder_embed_dim, encoder)
        self.decoder = Decoder(num_target, args, decoder, attends)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [batch, target, words] of sources of one length, </s> at their ends."""
        return self.decoder(target, self.encoder(source))

    def checkpoint(self) -> dict[str, Any]:
        return checkpoint_of(self)
