"""Models that know only whole sequences, as the plain beam search wants them: token by token."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from models.contract import DecoderState, TranslationModel

Logits = Callable[[Tensor, Tensor], Tensor]  # source [b, s] and target [b, t] -> [b, t, vocab]


@dataclass(frozen=True)
class WholeTexts(DecoderState):
    source: Tensor
    target: Tensor


class Stateless(TranslationModel[WholeTexts]):
    """Reads everything again at each step. `beam_search` puts </s> behind sources; a model whose
    sources have none does without.
    """

    def __init__(self, logits: Logits, bos_id: int, eos_id: int, *, keeps_eos: bool) -> None:
        super().__init__()
        self.logits, self.keeps_eos = logits, keeps_eos
        self.config: Any = SimpleNamespace(bos_id=bos_id, eos_id=eos_id, pad_id=eos_id)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> WholeTexts:
        source = source_ids if self.keeps_eos else source_ids[:, :-1]
        return WholeTexts(source, torch.empty(1, 0, dtype=torch.long))

    def read(self, ids: Tensor, state: WholeTexts) -> tuple[Tensor, WholeTexts]:
        target = torch.cat([state.target, ids], 1)
        new = self.logits(state.source, target)[:, -ids.shape[1] :]
        return new, replace(state, target=target)

    def project(self, hidden: Tensor) -> Tensor:
        return hidden
