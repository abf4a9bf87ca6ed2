"""Decodes one example greedily, everything computed anew for every token: the reference."""

import torch

from models.batch import LanguageBatch, TranslationBatch, device_of
from models.contract import AnyModel


@torch.inference_mode()
def greedy(
    model: AnyModel, source: list[int] | None, prompt: list[int], max_new_tokens: int
) -> list[int]:
    """Continue `prompt` (ids after <s>) for `source` ids (without </s>; None for a language model).

    Ends before </s> or after `max_new_tokens`.
    """
    eos_id, device = model.config.eos_id, device_of(model)
    target = [model.config.bos_id, *prompt]
    for _ in range(max_new_tokens):
        ids = torch.tensor([target], device=device)
        if source is None:
            hidden = model(LanguageBatch(ids, ids))
        else:
            source_ids = torch.tensor([[*source, eos_id]], device=device)
            lengths = torch.tensor([len(source) + 1], device=device)
            hidden = model(TranslationBatch(ids, ids, source_ids, lengths))
        token = int(model.project(hidden[0, -1]).argmax())
        if token == eos_id:
            break
        target.append(token)
    return target[1 + len(prompt) :]
