"""Fine-tuning of a translator on the texts of one domain, mixed with general ones.

The tables of words stay as they are: on two cores their gradients would take as long as those of a
small model's layers, and words that the domain lacks would forget what they mean. Where general
texts are given, what is kept is the state that is best on the domain and no worse on them.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import load_file
from tqdm import tqdm

from models.checkpoint import Checkpoint
from models.configs.base import TranslationModelConfig
from models.contract import TranslationModel
from models.conventions import AddedTokens
from models.data.batching import ParallelData
from models.layers.roles import ParameterKind, parameter_roles
from models.loading import build, put_weights
from models.safetensors import Array
from models.training.config import OptimizerConfig
from models.training.learning import Learner, training_batch
from models.training.optimizer import Optimizer, choose_arithmetic, learning_rate_scale
from models.training.state import Brake, Resumables, RunFolder, TrainingStopped
from models.training.validation import draw_curve, loss

Ids = list[list[int]]
Scope = Literal["decoder", "layers"]
_VALIDATIONS = 10
_PATIENCE = 4  # validations without a better state
_LABEL_SMOOTHING = 0.1
_DEV_TOKENS = 4096


@dataclass(frozen=True)
class TuningConfig:
    """How a translator is fine-tuned.

    minutes: of training and validation. scope: what is trained: all layers, or those of the decoder
        alone, which takes about two thirds of the time of a step.
    general_share: of the general texts among all, where there are any.
    """

    minutes: float = 10.0
    learning_rate: float = 1e-4
    scope: Scope = "layers"
    general_share: float = 0.3
    tokens_per_batch: int = 1024
    most_epochs: int = 10
    seed: int = 1


@dataclass(frozen=True)
class TuningTexts:
    """Ids of sentences and their translations, without special tokens."""

    sources: Ids
    targets: Ids

    def __len__(self) -> int:
        return len(self.sources)

    def select_fitting(self, config: TranslationModelConfig, added: AddedTokens) -> "TuningTexts":
        """Return the pairs that are not empty and not longer than the model's limits."""
        most_source = config.max_source_tokens - len(added.source_prefix + added.source_suffix)
        most_target = config.max_target_tokens - len(added.prompt_prefix)
        short_pairs = [
            number
            for number, (source, target) in enumerate(zip(self.sources, self.targets, strict=True))
            if 0 < len(source) <= most_source and 0 < len(target) <= most_target
        ]
        return TuningTexts(
            [self.sources[n] for n in short_pairs], [self.targets[n] for n in short_pairs]
        )


@dataclass(frozen=True)
class TuningData:
    """What a translator is fine-tuned on.

    domain_dev, general_dev: held out, to choose the best state. general, general_dev: may be empty.
    added: the special tokens of the pair of languages.
    """

    domain: TuningTexts
    domain_dev: TuningTexts
    general: TuningTexts
    general_dev: TuningTexts
    added: AddedTokens


class Tuner:
    """One run in one folder. Made again over the same folder, it resumes."""

    def __init__(
        self, checkpoint: Checkpoint, data: TuningData, config: TuningConfig, folder: Path
    ) -> None:
        torch.manual_seed(config.seed)
        folder.mkdir(parents=True, exist_ok=True)
        self.config, self.name = config, checkpoint.name
        self.arithmetic = choose_arithmetic("bf16")
        module = build(checkpoint.config).to(self.arithmetic.device)
        assert isinstance(module, TranslationModel)
        self.module = module.train()
        put_weights(self.module, checkpoint)
        freeze(self.module, config.scope)
        self.train, self.domain_dev, self.general_dev = self._datasets(checkpoint, data)
        settings = OptimizerConfig(learning_rate=config.learning_rate, warmup=0.05)
        self.optimizer = Optimizer(self.module, settings, self.arithmetic.products)
        self.learner = Learner(self.module, self.optimizer, self.arithmetic, _LABEL_SMOOTHING)
        self.files, self.brake = RunFolder(folder), Brake()
        self.parts: Resumables = {"optimizer": self.optimizer}
        self.progress = self.files.resume(self.module, self.parts)
        self.files.forget_after(self.progress.step)

    def _datasets(
        self, checkpoint: Checkpoint, data: TuningData
    ) -> tuple[ParallelData, ParallelData, ParallelData]:
        model = checkpoint.config
        assert isinstance(model, TranslationModelConfig)

        def parallel(texts: TuningTexts, repeats: np.ndarray) -> ParallelData:
            return ParallelData(texts.sources, texts.targets, repeats, model, added=data.added)

        domain, general = data.domain, data.general
        both = TuningTexts(domain.sources + general.sources, domain.targets + general.targets)
        share = self.config.general_share
        share_of_domain = share / (1 - share) * len(domain) / max(len(general), 1)
        repeats = np.repeat([1.0, min(share_of_domain, 1.0)], [len(domain), len(general)])
        domain_dev, general_dev = (
            parallel(pairs, np.ones(len(pairs))) for pairs in (data.domain_dev, data.general_dev)
        )
        return parallel(both, repeats), domain_dev, general_dev

    def run(self) -> Mapping[str, Array]:
        """Train up to a limit, or until it no longer helps; return the best weights.

        Raises TrainingStopped, with everything saved, if `brake` has received a signal.
        """
        if not self.files.rows():
            self._validate()  # what came before is to be beaten
        try:
            with tqdm(total=1.0, desc=self.name, bar_format=_BAR) as bar:
                while not self._is_over:
                    self._run_epoch(bar)
        except TrainingStopped:
            self._save()
            raise
        if self.files.rows()[-1]["step"] < self.progress.step:
            self._validate()
        weights = load_file(self.files.best)
        return {name: weight.float().numpy() for name, weight in weights.items()}

    def _run_epoch(self, bar: tqdm) -> None:
        progress = self.progress
        epoch = self.train.epoch(self.config.seed, progress.epoch, self.config.tokens_per_batch)
        progress.num_batches = len(epoch)
        for indices in epoch[progress.batch :]:
            self.brake.check()
            started, validated = time.monotonic(), int(self._fraction * _VALIDATIONS)
            self._learn(indices)
            progress.seconds += time.monotonic() - started
            if int(self._fraction * _VALIDATIONS) > validated:
                self._validate()
            self._show(bar)
            if self._is_over:
                return
        progress.epoch, progress.batch = progress.epoch + 1, 0

    def _learn(self, indices: np.ndarray) -> None:
        batch = training_batch(self.train.batch(indices)).to(self.arithmetic.device)
        scale = learning_rate_scale(self._fraction, self.optimizer.config.warmup)
        self.progress.losses.append(float(self.learner.learn(batch, scale)))
        self.progress.step += 1
        self.progress.batch += 1

    @property
    def _fraction(self) -> float:
        """Return how much of the run is done: of its time, or of its epochs if that is more."""
        progress = self.progress
        epochs = progress.epoch + progress.batch / max(progress.num_batches, 1)
        by_time = progress.seconds / 60 / self.config.minutes
        return min(1.0, max(by_time, epochs / self.config.most_epochs))

    @property
    def _is_over(self) -> bool:
        return self._fraction >= 1.0 or self.progress.validations_since_best >= _PATIENCE

    def _validate(self) -> None:
        """Validate, record, draw and save; keep the weights if they are the best so far."""
        started, progress = time.monotonic(), self.progress
        self.module.eval()
        with torch.inference_mode(), self.brake.safe():
            domain = loss(self.module, self.domain_dev, _DEV_TOKENS)
            general = 0.0
            if self.general_dev.sources:
                general = loss(self.module, self.general_dev, _DEV_TOKENS)
            self.module.train()
            self._record(domain, general)
            progress.validations_since_best += 1
            if (score := self._score(domain, general)) > progress.best_score:
                progress.best_score, progress.validations_since_best = score, 0
                progress.best_loss = domain
                self.files.keep_best(self.module)
            progress.losses.clear()
            progress.seconds += time.monotonic() - started
            self._save()

    def _score(self, domain: float, general: float) -> float:
        """Return how good a state is: by its loss on the domain, and by what the loss on general
        texts has risen since before.
        """
        before = self.files.rows()[0]["general_loss"]
        return -domain - max(0.0, general - before)

    def _record(self, domain: float, general: float) -> None:
        losses = self.progress.losses
        row = {
            "step": self.progress.step,
            "minutes": round(self.progress.seconds / 60, 2),
            "train_loss": round(sum(losses) / len(losses), 4) if losses else None,
            "dev_loss": round(domain, 4),
            "general_loss": round(general, 4),
            "bleu": None,
        }
        self.files.record(row)
        draw_curve(self.files.rows(), self.files.curve, self.name)

    def _save(self) -> None:
        self.files.save(self.module, self.parts, self.progress)

    def _show(self, bar: tqdm) -> None:
        row = self.files.rows()[-1]
        bar.n = round(self._fraction, 4)
        bar.set_postfix_str(
            f"step {self.progress.step}, domain {row['dev_loss']}, general {row['general_loss']}"
        )


def freeze(module: TranslationModel, scope: Scope) -> None:
    """Leave the tables of words and positions as they are, and the encoder if it is not in the
    scope.
    """
    roles = parameter_roles(module)
    for name, parameter in module.named_parameters():
        is_table = roles[name].role is ParameterKind.TABLE
        is_outside = scope == "decoder" and name.startswith("encoder.")
        parameter.requires_grad_(not (is_table or is_outside))


_BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed} < {remaining} {postfix}"
