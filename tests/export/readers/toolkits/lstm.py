"""fairseq's LSTM as its own source has it (fairseq/models/lstm.py, 0.12), under its own names;
without dropout.
"""

from argparse import Namespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from tests.export.readers.toolkits.fairseq import PAD, checkpoint_of

DEFAULTS: dict[str, Any] = {
    "arch": "lstm_wiseman_iwslt_de_en",
    "source_lang": "en",
    "target_lang": "fr",
    "encoder_embed_dim": 12,
    "encoder_hidden_size": 16,
    "encoder_layers": 2,
    "encoder_bidirectional": False,
    "decoder_embed_dim": 12,
    "decoder_hidden_size": 16,
    "decoder_layers": 2,
    "decoder_out_embed_dim": 16,
    "decoder_attention": "1",
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
}


class LSTMEncoder(nn.Module):
    def __init__(self, args: Namespace, embed_tokens: nn.Embedding) -> None:
        super().__init__()
        self.embed_tokens, self.args = embed_tokens, args
        self.lstm = nn.LSTM(
            args.encoder_embed_dim,
            args.encoder_hidden_size,
            args.encoder_layers,
            bidirectional=args.encoder_bidirectional,
        )
        self.output_units = args.encoder_hidden_size * (2 if args.encoder_bidirectional else 1)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, (hiddens, cells) = self.lstm(self.embed_tokens(ids).transpose(0, 1))
        return x, self.combine_bidir(hiddens), self.combine_bidir(cells)

    def combine_bidir(self, outs: Tensor) -> Tensor:
        if not self.args.encoder_bidirectional:
            return outs
        outs = outs.view(self.args.encoder_layers, 2, outs.shape[1], -1).transpose(1, 2)
        return outs.contiguous().view(self.args.encoder_layers, outs.shape[1], -1)


class AttentionLayer(nn.Module):
    def __init__(self, input_dim: int, source_dim: int, output_dim: int) -> None:
        super().__init__()
        self.input_proj = nn.Linear(input_dim, source_dim, bias=False)
        self.output_proj = nn.Linear(input_dim + source_dim, output_dim, bias=False)

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        scores = (source * self.input_proj(x).unsqueeze(0)).sum(dim=2).softmax(0)
        context = (scores.unsqueeze(2) * source).sum(dim=0)
        return torch.tanh(self.output_proj(torch.cat((context, x), dim=1)))


class LSTMDecoder(nn.Module):
    def __init__(self, args: Namespace, embed_tokens: nn.Embedding, units: int) -> None:
        super().__init__()
        self.embed_tokens, self.args, size = embed_tokens, args, args.decoder_hidden_size
        self.shares = args.share_all_embeddings or args.share_decoder_input_output_embed
        if units != size:
            self.encoder_hidden_proj = nn.Linear(units, size)
            self.encoder_cell_proj = nn.Linear(units, size)
        sizes = [size + args.decoder_embed_dim] + [size] * (args.decoder_layers - 1)
        self.layers = nn.ModuleList(nn.LSTMCell(each, size) for each in sizes)
        self.attention = AttentionLayer(size, units, size)
        out = args.decoder_out_embed_dim
        if size != out:
            self.additional_fc = nn.Linear(size, out)
        if not self.shares:
            self.fc_out = nn.Linear(out, embed_tokens.num_embeddings)

    def forward(self, ids: Tensor, memory: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        source, hiddens, cells = memory
        if hasattr(self, "encoder_hidden_proj"):
            hiddens, cells = self.encoder_hidden_proj(hiddens), self.encoder_cell_proj(cells)
        states = list(zip(hiddens, cells, strict=True))
        feed, outs = ids.new_zeros(len(ids), self.args.decoder_hidden_size).float(), []
        for word in self.embed_tokens(ids).unbind(1):
            x = torch.cat((word, feed), dim=1)
            for i, rnn in enumerate(self.layers):
                states[i] = rnn(x, states[i])
                x = states[i][0]
            feed = self.attention(x, source)
            outs.append(feed)
        x = torch.stack(outs, 1)
        x = self.additional_fc(x) if hasattr(self, "additional_fc") else x
        return linear(x, self.embed_tokens.weight) if self.shares else self.fc_out(x)


class LSTMModel(nn.Module):
    def __init__(self, num_source: int, num_target: int, **options: Any) -> None:
        super().__init__()
        self.args = args = Namespace(**DEFAULTS | options)
        source = nn.Embedding(num_source, args.encoder_embed_dim, PAD)
        target = nn.Embedding(num_target, args.decoder_embed_dim, PAD)
        self.encoder = LSTMEncoder(args, source)
        shared = source if args.share_all_embeddings else target
        self.decoder = LSTMDecoder(args, shared, self.encoder.output_units)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [batch, target, words] of sources of one length, </s> at their ends."""
        return self.decoder(target, self.encoder(source))

    def checkpoint(self) -> dict[str, Any]:
        return checkpoint_of(self)
