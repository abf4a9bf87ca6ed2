"""Asks an encoder what it makes of texts, one by one, so that nothing is padded."""

from collections.abc import Sequence

import torch

from models.arrays import Array
from models.batch import device_of
from models.contract import Encoder


@torch.inference_mode()
def vectors_of(
    model: Encoder, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]]
) -> list[Array]:
    """Compute embeddings or logits of texts, complete with their special tokens.

    types: each token's segment.
    """
    device = device_of(model)
    found = []
    for ids, segments in zip(rows, types, strict=True):
        lengths = torch.tensor([len(ids)], device=device)
        given = (torch.tensor([each], device=device) for each in (ids, segments))
        source, source_types = given
        hidden = model.encode(source, lengths, source_types)
        found.append(model.project(hidden)[0].float().cpu().numpy())
    return found
