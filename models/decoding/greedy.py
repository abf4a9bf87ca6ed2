"""Decodes batches greedily in torch, plainly, with a past that is kept: validation, and the bench's
peer. Rows of one batch start together and the batch ends when its longest row has ended.
"""

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor

from models.batch import device_of
from models.contract import GenerativeModel, LanguageModel, S, Translator
from models.conventions import AddedTokens, own_conventions
from models.decoding.beginning import encode_rows


def translate_batch(
    model: Translator,
    sources: Sequence[list[int]],
    max_new_tokens: int,
    added: AddedTokens | None = None,
) -> list[list[int]]:
    """Translate texts' ids, both without the `added` tokens."""
    added = added or own_conventions(model.config)
    rows = [[*added.source_prefix, *ids, *added.source_suffix] for ids in sources]
    given = torch.tensor([added.prompt_prefix] * len(rows), device=device_of(model))
    with torch.inference_mode():
        return _continue(model, given, encode_rows(model, rows), max_new_tokens, added.stop)


def continue_batch(
    model: LanguageModel,
    prompts: Sequence[list[int]],
    max_new_tokens: int,
    added: AddedTokens | None = None,
) -> list[list[int]]:
    """Continue prompts of one length (without what comes before them)."""
    added = added or own_conventions(model.config)
    rows = [[*added.prompt_prefix, *prompt] for prompt in prompts]
    given = torch.tensor(rows, device=device_of(model))
    with torch.inference_mode():
        return _continue(model, given, model.empty_state(), max_new_tokens, added.stop)


def translate_all(
    model: Translator,
    sources: list[list[int]],
    max_new_tokens: int,
    batch_size: int,
    added: AddedTokens | None = None,
) -> list[list[int]]:
    """Translate any number of sources, batched by length; in their order."""
    added = added or own_conventions(model.config)
    limit = model.config.max_source_tokens - len(added.source_prefix + added.source_suffix)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    out: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), batch_size):
        chunk = order[start : start + batch_size]
        rows = [sources[i][:limit] for i in chunk]
        targets = translate_batch(model, rows, max_new_tokens, added)
        for i, target in zip(chunk, targets, strict=True):
            out[i] = target
    return out


def _continue(
    model: GenerativeModel[S], given: Tensor, state: S, max_new_tokens: int, stop: tuple[int, ...]
) -> list[list[int]]:
    """Continue the rows of given ids [batch, given]; those that have ended are carried along."""
    stops, columns = torch.tensor(stop, device=given.device), []
    has_ended = torch.zeros(len(given), dtype=torch.bool, device=given.device)
    ids = given
    for _ in range(max_new_tokens):
        hidden, state = model.read(ids, state)
        ids = model.project(hidden[:, -1]).argmax(-1, keepdim=True)
        columns.append(ids)
        has_ended |= torch.isin(ids[:, 0], stops)
        if has_ended.all():
            break
    rows = torch.cat(columns, 1).tolist() if columns else [[] for _ in given]
    return [list(takewhile(lambda token: token not in stop, row)) for row in rows]
