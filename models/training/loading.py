"""Brings batches to where they are learned from. For a GPU they are built ahead, on a thread, in
memory that it copies from by itself; a CPU has nobody else to build them.
"""

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from models.batch import IGNORED_LABEL, Batch, Tensors
from models.data.batching import Dataset

BUILT_AHEAD = 4


@dataclass(frozen=True)
class TrainingBatch(Tensors):
    """Holds a batch, and what its loss is taken of: found before it is on a device, whose answer to
    where labels are real would have to be waited for.

    places: of the tokens to predict among all positions [batch * target]. labels: of these.
    """

    batch: Batch
    places: Tensor
    labels: Tensor

    @property
    def num_tokens(self) -> int:
        return len(self.labels)


def training_batch(batch: Batch) -> TrainingBatch:
    labels = batch.labels.flatten()
    places = (labels != IGNORED_LABEL).nonzero()[:, 0]
    return TrainingBatch(batch, places, labels[places])


class Loader:
    """Loads batches of a dataset onto a device."""

    def __init__(self, data: Dataset, device: torch.device, *, builds_ahead: bool) -> None:
        self._data, self._device, self._builds_ahead = data, device, builds_ahead

    def batches(self, epoch: Iterable[np.ndarray]) -> Generator[TrainingBatch, None, None]:
        """Yield them in their order. Close it: a thread may be at work."""
        built = self._ahead(epoch) if self._builds_ahead else map(self._build, epoch)
        for each in built:
            yield each.to(self._device)

    def _build(self, indices: np.ndarray) -> TrainingBatch:
        made = training_batch(self._data.batch(indices))
        return made.pinned() if self._device.type == "cuda" else made

    def _ahead(self, epoch: Iterable[np.ndarray]) -> Generator[TrainingBatch, None, None]:
        with ThreadPoolExecutor(1, "batches") as pool:
            waiting: deque[Future[TrainingBatch]] = deque()
            for indices in epoch:
                waiting.append(pool.submit(self._build, indices))
                if len(waiting) > BUILT_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
