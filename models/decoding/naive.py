"""The reference: greedy decoding of one example, everything computed anew for every token."""

import torch
from torch import nn

from models.batch import Batch, device_of


@torch.inference_mode()
def greedy(
    module: nn.Module, source: list[int] | None, prompt: list[int], max_new_tokens: int
) -> list[int]:
    """Continue `prompt` (ids after <s>) for `source` ids (without </s>; None for a language model).

    Ends before </s> or after `max_new_tokens`.
    """
    config, device = module.config, device_of(module)
    source_ids = source_lengths = None
    if source is not None:
        source_ids = torch.tensor([[*source, config.eos_id]], device=device)
        source_lengths = torch.tensor([source_ids.shape[1]], device=device)
    target = [config.bos_id, *prompt]
    for _ in range(max_new_tokens):
        ids = torch.tensor([target], device=device)
        hidden = module(Batch(source_ids, source_lengths, ids, ids))
        token = int(module.project(hidden[0, -1]).argmax())
        if token == config.eos_id:
            break
        target.append(token)
    return target[1 + len(prompt) :]
