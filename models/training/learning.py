"""Learns from one batch: one step, to new weights. Nothing here waits for a GPU."""

import importlib.util
import shutil

from torch import Tensor

from models.configs.base import ArchitectureConfig
from models.configs.language_models.decoder_only import DecoderOnlyConfig
from models.configs.translators.transformer import TransformerConfig
from models.contract.models import AnyModel
from models.training.arithmetic import Arithmetic
from models.training.carrying import Carry
from models.training.loading import TrainingBatch
from models.training.loss import SmoothedCrossEntropy
from models.training.optimizer import Optimizer

COMPILERS = ("cc", "gcc", "clang")


class Learner:
    """Holds a module and what changes its weights."""

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
    """Tell whether there is what torch compiles for GPUs with: Triton and a C compiler."""
    has_triton = importlib.util.find_spec("triton") is not None
    return has_triton and any(shutil.which(name) for name in COMPILERS)
