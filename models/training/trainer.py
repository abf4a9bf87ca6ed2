"""The training loop: read a batch, learn, and at intervals validate and save."""

import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from statistics import mean

import torch
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from models.checkpoint import Checkpoint, save_checkpoint, write_words
from models.data.batching import Dataset
from models.loading import build, put_weights
from models.safetensors import Storage
from models.training.config import TrainingConfig
from models.training.learning import BatchLoader, Learner, TrainingBatch, compile_where_it_pays
from models.training.optimizer import (
    Arithmetic,
    Average,
    Optimizer,
    choose_arithmetic,
    learning_rate_scale,
)
from models.training.prepare import prepare
from models.training.state import Brake, Resumables, RunFolder, TrainingStopped, take_tokenizer
from models.training.validation import Validation, draw_curve, validate, write_card


class Trainer:
    """One run in one folder. Made again over the same folder, it resumes.

    start: a checkpoint of the same shape whose weights and tokenizer a new run begins with.
    """

    def __init__(
        self,
        config: TrainingConfig,
        data: Path,
        folder: Path,
        arithmetic: Arithmetic | None = None,
        start: Checkpoint | None = None,
    ) -> None:
        torch.manual_seed(config.run.seed)
        folder.mkdir(parents=True, exist_ok=True)
        self.config, self.run_config = config, config.run
        self.arithmetic = arithmetic or choose_arithmetic(config.run.precision)
        self.files = RunFolder(folder)
        start = None if self.files.has_begun else start
        if start:
            take_tokenizer(start, config.model, self.files)
        self.data = prepare(config, data, self.files.tokenizer)
        self.module = build(config.model).to(self.arithmetic.device).train()
        if start:
            put_weights(self.module, start)
        self.optimizer = Optimizer(self.module, config.optimizer, self.arithmetic.products)
        self.average = Average(self.module, config.run.averaged_share)
        self.learner = Learner(
            self.module, self.optimizer, self.arithmetic, config.run.label_smoothing
        )
        compile_where_it_pays(self.module, self.arithmetic)
        self.parts = self._parts()
        self.progress = self.files.resume(self.module, self.parts)
        self.files.forget_after(self.progress.step)
        torch.manual_seed(config.run.seed + self.progress.step)
        self.opening = self._opening(start)
        self.progress.precision = self.arithmetic.name
        self.quality: dict = {}
        self.brake = Brake()
        self._clock = CLOCKS[config.run.clock]
        self._unread: list[Tensor] = []  # losses that may not be computed yet

    def run(self) -> None:
        """Train up to a limit or until validation no longer improves, then write checkpoint and
        card. Raises TrainingStopped, with everything saved, if `brake` has received a signal.
        """
        try:
            self._train()
        except TrainingStopped:
            self._save()
            raise
        with self.brake.safe():
            self._finish()

    def _train(self) -> None:
        self._counted_until = self._clock()
        intervals = self._intervals_done
        with closing(self._batches()) as batches:  # its bar ends before anything else is said
            while not self._is_over():
                self.brake.check()
                self._unread.append(self._learn(next(batches)))
                self.progress.step += 1
                self.average.update(self.progress.step)
                if len(self._unread) >= (STEPS_AHEAD if self.arithmetic.has_gpu else 1):
                    self._read_losses()
                self._count()
                if self._intervals_done > intervals:
                    intervals = self._intervals_done
                    if self._has_time_to_validate():
                        self._validate()
                    else:
                        self._save()
        if not self._is_validated():
            self._validate()

    def _parts(self) -> Resumables:
        """Return what is saved besides weights, by name. Runs that carry no state save none."""
        parts: Resumables = {"average": self.average, "optimizer": self.optimizer}
        carries = self.config.data.carried_window is not None
        return {**parts, "carry": self.learner.carry} if carries else parts

    def _opening(self, start: Checkpoint | None) -> str:
        """Return the first line of the log."""
        step, precision = self.progress.step, self.progress.precision
        if not step:
            weights = f", from the weights of {start.folder}" if start else ""
            return f"training in {self.arithmetic}{weights}"
        before = f" (in {precision} until now)" if precision else ""
        return f"training goes on after step {step:,}{before} in {self.arithmetic}"

    @property
    def closing(self) -> str:
        """Return the last lines of the log: how good the model is, and what comes next."""
        checkpoint = self.files.checkpoint
        return (
            f"{checkpoint}{_describe_quality(self.quality)}\n"
            f"next: attendant export {checkpoint} -o build/bundles/{self.config.name}"
        )

    def _count(self) -> None:
        """Add the time since the last call."""
        now = self._clock()
        self.progress.seconds += now - self._counted_until
        self._counted_until = now

    @property
    def fraction_done(self) -> float:
        by_steps = self.progress.step / self.run_config.max_steps
        return min(1.0, max(by_steps, self._fraction_of_minutes))

    @property
    def _fraction_of_minutes(self) -> float:
        return self.progress.seconds / 60 / self.run_config.max_minutes

    @property
    def _intervals_done(self) -> int:
        """Return how many validations are due by now."""
        return int(self.fraction_done * self.run_config.validations + ROUNDING)

    def _has_time_to_validate(self) -> bool:
        """Return whether validations stay within their share of the time, with one more that takes
        as long as the last one. Where steps limit a run, its validations do not depend on time.
        """
        progress = self.progress
        if self._fraction_of_minutes < progress.step / self.run_config.max_steps:
            return True
        after = progress.validation_seconds + progress.last_validation_seconds
        return after <= VALIDATION_SHARE * progress.seconds

    def _read_losses(self) -> None:
        """Wait until all steps so far are computed, and return their losses."""
        if self._unread:
            self.progress.losses += torch.stack(self._unread).tolist()
            self._unread.clear()

    def _batches(self) -> Generator[TrainingBatch, None, None]:
        """Yield batches from the current position on, epoch after epoch, with a progress bar."""
        name, done = self.config.name, self.fraction_done
        device, has_gpu = self.arithmetic.device, self.arithmetic.has_gpu
        with tqdm(total=1.0, initial=done, desc=name, bar_format=BAR) as bar:
            while True:
                data = self._data_now()
                self._begin_ending(data)
                loader = BatchLoader(data, device, builds_ahead=has_gpu)
                epoch = data.epoch(
                    self.run_config.seed, self.progress.epoch, self.run_config.tokens_per_batch
                )
                self.progress.num_batches = len(epoch)
                with closing(loader.batches(epoch[self.progress.batch :])) as batches:
                    for batch in batches:
                        self.progress.batch += 1
                        seconds = self.progress.seconds
                        yield batch
                        spent = max(1e-9, self.progress.seconds - seconds)
                        self._show(bar, batch.num_tokens / spent)
                        if self._data_now() is not data:
                            break
                self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0

    def _data_now(self) -> Dataset:
        """Return the data at this point of the run; a recipe may end with other data."""
        ending = self.config.data.ending
        if ending is None or self.fraction_done < 1.0 - ending.share:
            return self.data.train
        assert self.data.ending is not None
        return self.data.ending

    def _begin_ending(self, data: Dataset) -> None:
        """Begin a new epoch with the data of the ending, also if the run was killed at the
        change.
        """
        if data is self.data.ending and not self.progress.is_ending:
            self.progress.is_ending = True
            if self.progress.batch:
                self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0

    def _learn(self, batch: TrainingBatch) -> Tensor:
        scale = learning_rate_scale(self.fraction_done, self.config.optimizer.warmup)
        return self.learner.learn(batch, scale)

    def _validate(self) -> None:
        """Validate, record, plot and save. A kill after this loses nothing."""
        progress = self.progress
        self._read_losses()
        begun = progress.seconds
        with self.arithmetic.autocast(), self.brake.safe(), self.average.in_place():
            result = validate(
                self.module,
                self.data.tokenizer,
                self.data.dev,
                self.data.pairs,
                self.run_config.tokens_per_batch,
            )
            self._keep_if_best(result)
        self._count()
        progress.last_validation_seconds = progress.seconds - begun
        progress.validation_seconds += progress.last_validation_seconds
        self.files.record(
            {
                "step": progress.step,
                "epoch": progress.epoch,
                "minutes": round(progress.seconds / 60, 2),
                "train_loss": round(mean(progress.losses), 4),
                "dev_loss": round(result.loss, 4),
                "bleu": None if result.bleu is None else round(result.bleu, 2),
            }
        )
        progress.losses.clear()
        draw_curve(self.files.rows(), self.files.curve, self.config.name)
        self._save()

    def _keep_if_best(self, result: Validation) -> None:
        """Save the module's weights if they are the best so far, and count validations without
        improvement.
        """
        progress = self.progress
        by_bleu = self.run_config.choose_by == "bleu"
        score = -result.loss if result.bleu is None or not by_bleu else result.bleu
        if score > progress.best_score:
            progress.best_score = score
            self.files.keep_best(self.module)
        progress.validations_since_best += 1
        if result.loss < progress.best_loss:
            progress.best_loss, progress.validations_since_best = result.loss, 0

    def _save(self) -> None:
        self._read_losses()
        self.files.save(self.module, self.parts, self.progress)

    def _is_validated(self) -> bool:
        rows = self.files.rows()
        return bool(rows) and rows[-1]["step"] == self.progress.step

    def _is_over(self) -> bool:
        stalled = self.progress.validations_since_best >= self.run_config.patience
        return self.fraction_done >= 1.0 or stalled

    def _finish(self) -> None:
        """Write the best weights and their card."""
        weights = load_file(self.files.best)
        save_checkpoint(
            self.files.checkpoint,
            self.config.model,
            {name: w.float().cpu().numpy() for name, w in weights.items()},
            self.data.tokenizer.to_str(),
            Storage.FP16,
        )
        if self.data.words:
            words = "".join(f"{word}\n" for word in self.data.words)
            write_words(self.files.checkpoint, words.encode())
        self.quality = write_card(self.config, self.data, self.files, self.arithmetic)

    def _show(self, bar: tqdm, tokens_per_second: float) -> None:
        losses = self.progress.losses
        recent = f"{mean(losses[-20:]):.3f}" if losses else "-"
        bar.n = round(self.fraction_done, 4)
        bar.set_postfix_str(
            f"step {self.progress.step}, loss {recent} (dev {self.progress.best_loss:.3f}), "
            f"{tokens_per_second:,.0f} tokens/s"
        )


def _describe_quality(quality: dict) -> str:
    """Return the main figure of a `quality.json`, after a colon; nothing if it has another form."""
    if scores := quality.get("scores"):
        score = scores[0]
        return (
            f": BLEU {score['bleu']:.1f}, chrF {score['chrf']:.1f} of {score['sentences']:,} pairs"
        )
    bits = quality.get("bits_per_byte")
    return "" if bits is None else f": {bits:.2f} bits per byte of held-out text"


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.monotonic, "processor": time.process_time}
VALIDATION_SHARE = 0.1  # of the time, of all validations but the last
ROUNDING = 1e-9  # of shares of a run
STEPS_AHEAD = 20  # of the host before a GPU: so many losses are read at once
BAR = "{desc} {percentage:3.0f}%|{bar}| {elapsed} < {remaining} {postfix}"
