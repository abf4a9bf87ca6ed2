"""Asks a model what it says of texts that are given: teacher forcing."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.batch import device_of
from models.contract import AnyModel, LanguageModel
from models.data.prose import Window
from models.decoding.beginning import first_state

WINDOWS_AT_ONCE = 8


@torch.inference_mode()
def teacher_forced_log_probabilities(
    model: AnyModel, source: Sequence[int], target: Sequence[int]
) -> Tensor:
    """Compute log p of every vocabulary entry after each id of a target: [target, vocabulary].

    Source, of a translator, and target are complete, with <s> and </s>.
    """
    ids = torch.tensor([target], device=device_of(model))
    hidden, _ = model.read(ids, first_state(model, source))
    return model.project(hidden)[0].float().log_softmax(-1)


@torch.inference_mode()
def nats(
    model: LanguageModel, windows: Sequence[Window], prefix: tuple[int, ...]
) -> NDArray[np.float64]:
    """Compute minus the log-probabilities of what `windows`, all alike, do not know:
    [windows, tokens].
    """
    parts, first = [], max(len(prefix) - 1, 0)
    for start in range(0, len(windows), WINDOWS_AT_ONCE):
        some = windows[start : start + WINDOWS_AT_ONCE]
        rows = [[*prefix, *each.token_ids] for each in some]
        ids = torch.tensor(rows, device=device_of(model))
        labels, num_known = ids[:, first + 1 :], some[0].num_known - (not prefix)
        hidden, _ = model.read(ids[:, :-1], model.empty_state())
        logits = model.project(hidden[:, first + num_known :].flatten(0, 1)).float()
        wanted = labels[:, num_known:]
        lost = cross_entropy(logits, wanted.flatten(), reduction="none")
        parts.append(lost.view_as(wanted).double().cpu().numpy())
    return np.concatenate(parts)
