"""One training step: load a batch, compute the smoothed loss and its gradient, update the weights.
Nothing here waits for a GPU.

A recurrent language model may keep its state from batch to batch. That is truncated
back-propagation through time (Williams and Peng 1990): states are carried from window to window,
gradients end at the start of a window.
"""

import importlib.util
import shutil
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.architectures.transformer.config import TransformerConfig
from models.batch import IGNORED_LABEL, FollowingBatch, TargetBatch, TensorFields
from models.configs.base import ArchitectureConfig
from models.configs.transformer import DecoderOnlyConfig
from models.contract import AnyModel
from models.data.batching import Dataset
from models.layers.recurrent_language_model import RecurrentLanguageModel, RecurrentState
from models.training.optimizer import Arithmetic, Optimizer

BUILT_AHEAD = 4


@dataclass(frozen=True)
class TrainingBatch(TensorFields):
    """A batch and the places of its labels. They are found on the host: on a device, finding them
    would wait for it.

    places: of the tokens to predict among all positions [batch * target].
    labels: of these tokens.
    """

    batch: TargetBatch
    places: Tensor
    labels: Tensor

    @property
    def num_tokens(self) -> int:
        return len(self.labels)


def training_batch(batch: TargetBatch) -> TrainingBatch:
    labels = batch.labels.flatten()
    places = (labels != IGNORED_LABEL).nonzero()[:, 0]
    return TrainingBatch(batch, places, labels[places])


class BatchLoader:
    """Loads batches of a dataset onto a device. For a GPU a thread builds batches ahead in pinned
    memory.
    """

    def __init__(self, data: Dataset, device: torch.device, *, builds_ahead: bool) -> None:
        self._data, self._device, self._builds_ahead = data, device, builds_ahead

    def batches(self, epoch: Iterable[np.ndarray]) -> Generator[TrainingBatch, None, None]:
        """Yield the batches in order. Close the generator, because a thread may be running."""
        built = self._build_ahead(epoch) if self._builds_ahead else map(self._build, epoch)
        for batch in built:
            yield batch.to(self._device)

    def _build(self, indices: np.ndarray) -> TrainingBatch:
        batch = training_batch(self._data.batch(indices))
        return batch.pin_memory() if self._device.type == "cuda" else batch

    def _build_ahead(self, epoch: Iterable[np.ndarray]) -> Generator[TrainingBatch, None, None]:
        with ThreadPoolExecutor(1, "batches") as pool:
            waiting: deque[Future[TrainingBatch]] = deque()
            for indices in epoch:
                waiting.append(pool.submit(self._build, indices))
                if len(waiting) > BUILT_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()


ROWS_PER_SLICE = 64
NUMBERS_PER_SLICE_ON_GPU = 2**26


class SmoothedCrossEntropy(torch.autograd.Function):
    """The mean of -sum_v q(v) log p(v) over tokens, with q = (1 - smoothing) onehot + smoothing / V
    (Szegedy et al. 2016).

    The gradient is computed with the loss, in slices of rows that stay in the cache of a CPU;
    torch's own goes over [tokens, vocabulary] about ten times in fp32. Slices on a GPU are larger,
    to keep it busy with a part of the memory.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """Return the loss of logits [tokens, vocab] of any float type and labels [tokens]: a scalar
        in fp32.
        """
        gradient = torch.empty_like(logits)
        total = torch.zeros((), device=logits.device)
        size = rows_per_slice(logits)
        for start in range(0, len(labels), size):
            rows = slice(start, start + size)
            total += _slice_loss(logits[rows], labels[rows], smoothing, gradient[rows])
        ctx.save_for_backward(gradient)
        ctx.scale = 1.0 / max(1, len(labels))
        return total * ctx.scale

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(upstream[0] * ctx.scale), None, None


def rows_per_slice(logits: Tensor) -> int:
    return max(NUMBERS_PER_SLICE_ON_GPU // logits.shape[1], 1) if logits.is_cuda else ROWS_PER_SLICE


def _slice_loss(logits: Tensor, labels: Tensor, smoothing: float, gradient: Tensor) -> Tensor:
    """Return the sum of the losses of some rows; write d loss / d logits = p - q into
    `gradient`.
    """
    log_p = logits.float().log_softmax(-1)
    mine = labels[:, None]
    at_label = log_p.gather(1, mine)
    p = log_p.exp()
    p.sub_(smoothing / logits.shape[1])
    p.scatter_add_(1, mine, torch.full_like(at_label, smoothing - 1.0))
    gradient.copy_(p)
    return -((1.0 - smoothing) * at_label.sum() + smoothing * log_p.mean(-1).sum())


COMPILERS = ("cc", "gcc", "clang")


class Carry:
    """The state of all rows after the last batch; None if there was none."""

    def __init__(self) -> None:
        self._state: RecurrentState | None = None

    def read(self, module: AnyModel, batch: TargetBatch) -> Tensor:
        """Read a batch after the last one: [batch, target, dim]."""
        if not isinstance(batch, FollowingBatch):
            hidden: Tensor = module(batch)
            return hidden
        assert isinstance(module, RecurrentLanguageModel)
        state = None if batch.begins else self._state
        before = module.empty_state() if state is None else state.to(batch.input_ids.device)
        hidden, after = module.read(batch.input_ids, before)
        self._state = after.map_tensors(Tensor.detach)
        return hidden

    def state_tensors(self) -> dict[str, Tensor]:
        """Return everything that a resumed run needs, by name."""
        if self._state is None:
            return {}
        cells = {
            f"cells.{layer}.{part}": tensor
            for layer, parts in enumerate(self._state.cells)
            for part, tensor in enumerate(parts)
        }
        outputs = self._state.outputs
        return cells if outputs is None else {**cells, "outputs": outputs}

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state_tensors` returned."""
        layers: dict[str, list[Tensor]] = {}
        for name in sorted(tensors.keys() - {"outputs"}, key=_numbers):
            layers.setdefault(name.split(".")[1], []).append(tensors[name])
        if tensors:
            cells = tuple(map(tuple, layers.values()))
            self._state = RecurrentState(cells, tensors.get("outputs"))


class Learner:
    """A module with its loss and optimizer."""

    def __init__(
        self,
        module: AnyModel,
        optimizer: Optimizer,
        arithmetic: Arithmetic,
        label_smoothing: float,
    ) -> None:
        self.module, self.optimizer, self.arithmetic = module, optimizer, arithmetic
        self.label_smoothing = label_smoothing
        self.carry = Carry()

    def learn(self, batch: TrainingBatch, scale: float) -> Tensor:
        """Update the weights with `scale` times the learning rate. Return the loss, on the device
        of the batch.
        """
        with self.arithmetic.autocast():
            hidden = self.carry.read(self.module, batch.batch).flatten(0, 1)
            logits = self.module.project(hidden[batch.places])
        value = SmoothedCrossEntropy.apply(logits, batch.labels, self.label_smoothing)
        value.backward()
        self.optimizer.step(scale)
        loss: Tensor = value.detach()
        return loss


def compile_where_it_pays(module: AnyModel, arithmetic: Arithmetic) -> None:
    """Compile the training of a Transformer on a GPU, for batches of any shape. Recurrent modules
    are not compiled: torch would unroll their loops for every length.
    """
    if arithmetic.has_gpu and is_transformer(module.config) and can_compile():
        module.compile(dynamic=True)


def is_transformer(config: ArchitectureConfig) -> bool:
    return isinstance(config, TransformerConfig | DecoderOnlyConfig)


def can_compile() -> bool:
    """Return whether Triton and a C compiler are installed, with which torch compiles for GPUs."""
    has_triton = importlib.util.find_spec("triton") is not None
    return has_triton and any(shutil.which(name) for name in COMPILERS)


def _numbers(name: str) -> list[int]:
    """Return the layer and the part in a name such as `cells.2.0`."""
    return [int(number) for number in name.split(".")[1:]]
