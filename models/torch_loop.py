"""Plain batched greedy decoding in torch with a key-value cache: validation, and the bench's peer.

Rows of one batch start together and the batch ends when its longest row has ended.
"""

from collections.abc import Iterator

import torch
from torch import nn

from models.batch import Batch
from models.data.batching import pad_rows


@torch.inference_mode()
def translate_batch(
    module: nn.Module, sources: list[list[int]], max_new_tokens: int
) -> list[list[int]]:
    """Greedy translations of source ids (without </s>), each without its </s>."""
    config = module.config
    rows = [[*s, config.eos_id] for s in sources]
    state = module.start(pad_rows(rows, config.pad_id), torch.tensor([len(r) for r in rows]))
    ids = torch.full((len(rows),), config.bos_id)
    return _greedy(module, ids, state, max_new_tokens)


@torch.inference_mode()
def continue_batch(
    module: nn.Module, prompts: list[list[int]], max_new_tokens: int
) -> list[list[int]]:
    """Greedy continuations of prompts of one length (without <s>)."""
    config = module.config
    prompt = torch.tensor([[config.bos_id, *p] for p in prompts])
    hidden, state = module.start(prompt)
    first = module.project(hidden).argmax(-1)
    rest = _greedy(module, first, state, max_new_tokens - 1)
    return [
        [] if token == config.eos_id else [token, *row]
        for token, row in zip(first.tolist(), rest, strict=True)
    ]


def translate_all(
    module: nn.Module, sources: list[list[int]], max_new_tokens: int, batch_size: int
) -> list[list[int]]:
    """Greedy translations of any number of sources, batched by length, in their order."""
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    out: list[list[int]] = [[] for _ in sources]
    for chunk in _chunks(order, batch_size):
        rows = [sources[i][: module.config.max_source_tokens - 1] for i in chunk]
        for i, row in zip(chunk, translate_batch(module, rows, max_new_tokens), strict=True):
            out[i] = row
    return out


@torch.inference_mode()
def teacher_forced_log_probabilities(module: nn.Module, batch: Batch) -> torch.Tensor:
    """log p of every vocabulary entry at every target position: [batch, target, vocab]."""
    return module.project(module(batch)).float().log_softmax(-1)


def _greedy(
    module: nn.Module, ids: torch.Tensor, state: dict, max_new_tokens: int
) -> list[list[int]]:
    eos_id = module.config.eos_id
    tokens, ended = [], ids == eos_id
    for _ in range(max_new_tokens):
        hidden, state = module.step(ids, state)
        ids = module.project(hidden).argmax(-1)
        ended |= ids == eos_id
        tokens.append(ids)
        if ended.all():
            break
    columns = torch.stack(tokens, 1).tolist() if tokens else [[] for _ in ids]
    return [row[: row.index(eos_id)] if eos_id in row else row for row in columns]


def _chunks(items: list[int], size: int) -> Iterator[list[int]]:
    return (items[i : i + size] for i in range(0, len(items), size))
