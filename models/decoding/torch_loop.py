"""Plain batched greedy decoding in torch with a key-value cache: validation, and the bench's peer.

Rows of one batch start together and the batch ends when its longest row has ended.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from models.batch import Batch, device_of
from models.conventions import Around, own_conventions
from models.data.batching import pad_rows
from models.data.prose import Window

WINDOWS_AT_ONCE = 8


@torch.inference_mode()
def translate_batch(
    module: nn.Module,
    sources: list[list[int]],
    max_new_tokens: int,
    around: Around | None = None,
) -> list[list[int]]:
    """Greedy translations of texts' ids, both without what goes `around` them."""
    config, device = module.config, device_of(module)
    around = around or own_conventions(config)
    rows = [[*around.source_prefix, *ids, *around.source_suffix] for ids in sources]
    lengths = torch.tensor([len(row) for row in rows], device=device)
    state = module.start(pad_rows(rows, config.pad_id).to(device), lengths)
    *given, last = around.prompt_prefix
    for token in given:
        _, state = module.step(torch.full((len(rows),), token, device=device), state)
    ids = torch.full((len(rows),), last, device=device)
    return _greedy(module, ids, state, max_new_tokens, around.stop, ids != ids)


@torch.inference_mode()
def continue_batch(
    module: nn.Module,
    prompts: list[list[int]],
    max_new_tokens: int,
    around: Around | None = None,
) -> list[list[int]]:
    """Greedy continuations of prompts of one length (without what comes before them)."""
    around = around or own_conventions(module.config)
    device = device_of(module)
    prompt = torch.tensor([[*around.prompt_prefix, *p] for p in prompts], device=device)
    hidden, state = module.start(prompt)
    first = module.project(hidden).argmax(-1)
    ended = torch.isin(first, torch.tensor(around.stop, device=device))
    rest = _greedy(module, first, state, max_new_tokens - 1, around.stop, ended)
    return [
        [] if token in around.stop else [token, *row]
        for token, row in zip(first.tolist(), rest, strict=True)
    ]


def translate_all(
    module: nn.Module,
    sources: list[list[int]],
    max_new_tokens: int,
    batch_size: int,
    around: Around | None = None,
) -> list[list[int]]:
    """Greedy translations of any number of sources, batched by length, in their order."""
    around = around or own_conventions(module.config)
    limit = module.config.max_source_tokens - len(around.source_prefix + around.source_suffix)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    out: list[list[int]] = [[] for _ in sources]
    for chunk in _chunks(order, batch_size):
        rows = [sources[i][:limit] for i in chunk]
        for i, row in zip(
            chunk, translate_batch(module, rows, max_new_tokens, around), strict=True
        ):
            out[i] = row
    return out


@torch.inference_mode()
def teacher_forced_log_probabilities(module: nn.Module, batch: Batch) -> torch.Tensor:
    """log p of every vocabulary entry at every target position: [batch, target, vocab]."""
    return module.project(module(batch)).float().log_softmax(-1)


@torch.inference_mode()
def nats(module: nn.Module, windows: Sequence[Window], prefix: tuple[int, ...]) -> float:
    """Minus the sum of the log-probabilities of what `windows`, all alike, do not know."""
    total, first = 0.0, max(len(prefix) - 1, 0)
    for start in range(0, len(windows), WINDOWS_AT_ONCE):
        some = windows[start : start + WINDOWS_AT_ONCE]
        rows = [[*prefix, *each.token_ids] for each in some]
        ids = torch.tensor(rows, device=device_of(module))
        labels, num_known = ids[:, first + 1 :], some[0].num_known - (not prefix)
        hidden = module(Batch(None, None, ids[:, :-1], ids[:, 1:]))[:, first:]
        logits = module.project(hidden[:, num_known:].flatten(0, 1)).float()
        wanted = labels[:, num_known:].flatten()
        total += float(cross_entropy(logits, wanted, reduction="sum"))
    return total


def _greedy(
    module: nn.Module,
    ids: torch.Tensor,
    state: dict,
    max_new_tokens: int,
    stop: tuple[int, ...],
    ended: torch.Tensor,
) -> list[list[int]]:
    """Rows that have `ended` [batch] before are only carried along."""
    stops, tokens = torch.tensor(stop, device=ids.device), []
    for _ in range(max_new_tokens):
        hidden, state = module.step(ids, state)
        ids = module.project(hidden).argmax(-1)
        ended = ended | torch.isin(ids, stops)
        tokens.append(ids)
        if ended.all():
            break
    columns = torch.stack(tokens, 1).tolist() if tokens else [[] for _ in ids]
    return [_before(row, stop) for row in columns]


def _before(row: list[int], stop: tuple[int, ...]) -> list[int]:
    """The tokens before the first that ends a text."""
    end = next((i for i, token in enumerate(row) if token in stop), len(row))
    return row[:end]


def _chunks(items: list[int], size: int) -> Iterator[list[int]]:
    return (items[i : i + size] for i in range(0, len(items), size))
