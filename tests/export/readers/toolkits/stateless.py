"""Models that know only whole sequences, as the plain beam search wants them: token by token."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn

Logits = Callable[[Tensor, Tensor], Tensor]  # source [b, s] and target [b, t] -> [b, t, vocab]


class Stateless(nn.Module):
    """Reads everything again at each step. `beam_search` puts </s> behind sources; a model whose
    sources have none does without.
    """

    def __init__(self, logits: Logits, bos_id: int, eos_id: int, *, keeps_eos: bool) -> None:
        super().__init__()
        self.logits, self.keeps_eos = logits, keeps_eos
        self.config = SimpleNamespace(bos_id=bos_id, eos_id=eos_id)

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        source = source_ids if self.keeps_eos else source_ids[:, :-1]
        return {"source": source, "target": torch.empty(1, 0, dtype=torch.long)}

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        target = torch.cat([state["target"], ids[:, None]], 1)
        return self.logits(state["source"], target)[:, -1], {**state, "target": target}

    def project(self, hidden: Tensor) -> Tensor:
        return hidden
