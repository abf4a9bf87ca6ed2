"""Makes the state from which a model goes on to write."""

from collections.abc import Sequence

import torch

from models.batch import device_of
from models.contract import LanguageModel, S, Translator
from models.data.batching import pad_rows


def first_state(model: Translator[S] | LanguageModel[S], source: Sequence[int]) -> S:
    """Begin one text: of a translator after reading a source's ids, all of them."""
    if isinstance(model, LanguageModel):
        return model.empty_state()
    return encode_rows(model, [source])


def encode_rows(model: Translator[S], sources: Sequence[Sequence[int]]) -> S:
    """Read sources of any lengths, side by side."""
    device = device_of(model)
    lengths = torch.tensor([len(source) for source in sources], device=device)
    return model.encode(pad_rows(sources, model.config.pad_id).to(device), lengths)
