"""Learns from one batch: one step, to new weights. Nothing here waits for a GPU.

A recurrent language model may read on where the last batch ended. This is truncated
back-propagation through time (Williams and Peng 1990): states go on from window to window,
gradients end where a window begins.
"""

import importlib.util
import shutil

from torch import Tensor

from models.architectures.transformer.config import TransformerConfig
from models.batch import Batch, FollowingBatch
from models.configs.base import ArchitectureConfig
from models.configs.decoder_only import DecoderOnlyConfig
from models.contract import AnyModel
from models.layers.recurrent_language_model import RecurrentLanguageModel, RecurrentState
from models.training.arithmetic import Arithmetic
from models.training.loading import TrainingBatch
from models.training.loss import SmoothedCrossEntropy
from models.training.optimizer import Optimizer

COMPILERS = ("cc", "gcc", "clang")


class Carry:
    """The state after the last batch, of all its rows; None: nothing has been read."""

    def __init__(self) -> None:
        self._state: RecurrentState | None = None

    def read(self, module: AnyModel, batch: Batch) -> Tensor:
        """Read a batch, of those that follow others after these: [batch, target, dim]."""
        if not isinstance(batch, FollowingBatch):
            hidden: Tensor = module(batch)
            return hidden
        assert isinstance(module, RecurrentLanguageModel)
        state = None if batch.begins else self._state
        before = module.empty_state() if state is None else state.to(batch.input_ids.device)
        hidden, after = module.read(batch.input_ids, before)
        self._state = after.each(Tensor.detach)
        return hidden

    def state_tensors(self) -> dict[str, Tensor]:
        """Name everything that a run needs to go on."""
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
        """Put back what `state_tensors` gave."""
        layers: dict[str, list[Tensor]] = {}
        for name in sorted(tensors.keys() - {"outputs"}, key=_numbers):
            layers.setdefault(name.split(".")[1], []).append(tensors[name])
        if tensors:
            cells = tuple(map(tuple, layers.values()))
            self._state = RecurrentState(cells, tensors.get("outputs"))


class Learner:
    """A module and what changes its weights."""

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

    def learn(self, given: TrainingBatch, scale: float) -> Tensor:
        """Update the weights at `scale` times the learning rate; the loss, where the batch is."""
        with self.arithmetic.autocast():
            hidden = self.carry.read(self.module, given.batch).flatten(0, 1)
            logits = self.module.project(hidden[given.places])
        value = SmoothedCrossEntropy.apply(logits, given.labels, self.label_smoothing)
        value.backward()
        self.optimizer.step(scale)
        loss: Tensor = value.detach()
        return loss


def compile_where_it_pays(module: AnyModel, arithmetic: Arithmetic) -> None:
    """Let torch compile how a Transformer is trained on a GPU, for batches of any shape.

    Recurrent modules are loops over positions, which it would unroll for every length.
    """
    if arithmetic.has_gpu and is_transformer(module.config) and can_compile():
        module.compile(dynamic=True)


def is_transformer(config: ArchitectureConfig) -> bool:
    return isinstance(config, TransformerConfig | DecoderOnlyConfig)


def can_compile() -> bool:
    """Return whether there is what torch compiles for GPUs with: Triton and a C compiler."""
    has_triton = importlib.util.find_spec("triton") is not None
    return has_triton and any(shutil.which(name) for name in COMPILERS)


def _numbers(name: str) -> list[int]:
    """Find a layer and a part, of `cells.2.0`."""
    return [int(number) for number in name.split(".")[1:]]
