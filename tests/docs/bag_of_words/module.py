"""A gated decoder that attends to the source's words, whatever their order."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.batch import length_mask
from models.contract import DecoderState, TranslationModel
from models.layers.basic import VocabularyLayers

from .config import BagOfWordsConfig


@dataclass(frozen=True)
class BagState(DecoderState):
    words: Tensor  # of the source [batch, source, dim]
    is_real: Tensor  # which of them are no padding [batch, source]
    hidden: Tensor  # [batch, dim]


class BagOfWords(VocabularyLayers, TranslationModel[BagState]):
    def __init__(self, config: BagOfWordsConfig) -> None:
        super().__init__(config, config.dim)
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.gates = nn.Linear(2 * config.dim, 2 * config.dim)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> BagState:
        words, is_real = self.embed(source_ids), length_mask(source_lengths, source_ids.shape[1])
        return BagState(words, is_real, hidden=torch.zeros_like(words[:, 0]))

    def read(self, ids: Tensor, state: BagState) -> tuple[Tensor, BagState]:
        hidden, hiddens = state.hidden, []
        for word in self.embed(ids).unbind(1):  # [batch, dim]
            scores = (self.query(hidden + word)[:, None] * state.words).sum(-1)  # [batch, source]
            weights = scores.masked_fill(~state.is_real, -torch.inf).softmax(-1)
            context = (weights[:, None] @ state.words)[:, 0]  # [batch, dim]
            keep, candidate = self.gates(torch.cat([word, context], -1)).chunk(2, -1)
            hidden = torch.lerp(candidate.tanh(), hidden, keep.sigmoid())
            hiddens.append(hidden)
        return torch.stack(hiddens, 1), replace(state, hidden=hidden)
