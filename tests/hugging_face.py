"""Lets Hugging Face's `generate` drive a torch module of ours: the outside reference."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from models.batch import LanguageBatch, TargetBatch, TranslationBatch
from models.contract import AnyModel


@dataclass(frozen=True)
class Generated:
    """One returned sequence: its generated tokens, the stop token included where it came."""

    token_ids: list[int]
    score: float | None


class HuggingFaceModel(PreTrainedModel, GenerationMixin):
    """Everything is computed anew for every token. `source`: ids without </s>, of a translator."""

    config_class = PreTrainedConfig

    def __init__(self, module: AnyModel, source: list[int] | None = None) -> None:
        config = module.config
        super().__init__(PreTrainedConfig())
        self.generation_config = GenerationConfig(
            bos_token_id=config.bos_id, eos_token_id=config.eos_id, pad_token_id=config.eos_id
        )
        self.module = module
        self._source = None if source is None else torch.tensor([[*source, config.eos_id]])

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> CausalLMOutput:
        batch: TargetBatch = LanguageBatch(input_ids, input_ids)
        if self._source is not None:
            rows, length = len(input_ids), self._source.shape[1]
            source, lengths = self._source.repeat(rows, 1), torch.tensor([length] * rows)
            batch = TranslationBatch(input_ids, input_ids, source, lengths)
        hidden = self.module(batch)
        return CausalLMOutput(logits=self.module.project(hidden))


def generate(
    module: AnyModel, source: list[int] | None, prompt: list[int], **options: Any
) -> list[Generated]:
    """Return what `generate` gives for a prompt after <s>, best first, by its own options."""
    target = torch.tensor([[module.config.bos_id, *prompt]])
    found = HuggingFaceModel(module, source).generate(
        target,
        attention_mask=torch.ones_like(target),
        do_sample=False,
        use_cache=False,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    stop_ids = options.get("eos_token_id", [module.config.eos_id])
    rows = [_until_end(row, stop_ids) for row in found.sequences[:, target.shape[1] :].tolist()]
    scores = found.get("sequences_scores")
    return [
        Generated(row, score)
        for row, score in zip(
            rows, [None] * len(rows) if scores is None else scores.tolist(), strict=True
        )
    ]


def _until_end(row: list[int], stop_ids: list[int]) -> list[int]:
    ends = [i for i, token_id in enumerate(row) if token_id in stop_ids]
    return row[: ends[0] + 1] if ends else row
