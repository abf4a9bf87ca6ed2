"""The files of a training run: safetensors and JSON, replaced atomically, so that a killed run can
be resumed.

The folder of a run holds `state/` (the last state), `best.safetensors` (the weights with the best
validation), `metrics.jsonl`, `curve.png`, `tokenizer.json` and, at the end, `checkpoint/`.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.architectures.registry import AnyConfig
from models.checkpoint import Checkpoint
from models.errors import InputError


@dataclass
class TrainingProgress:
    """The position of a run.

    batch: how many of the epoch's `num_batches` are done.
    seconds: spent training, with validation; `validation_seconds` of them by all validations.
    losses: of the steps since the last validation.
    best_score: of the best weights: BLEU, or the negative loss.
    precision: of the matrix products so far.
    is_ending: whether the run uses the data with which the recipe ends.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    num_batches: int = 0
    seconds: float = 0.0
    validation_seconds: float = 0.0
    last_validation_seconds: float = 0.0
    best_loss: float = float("inf")
    best_score: float = float("-inf")
    validations_since_best: int = 0
    losses: list[float] = field(default_factory=list)
    precision: str | None = None
    is_ending: bool = False


class Resumable(Protocol):
    """An object whose state is saved besides the weights."""

    def state_tensors(self) -> dict[str, Tensor]: ...

    def load_state_tensors(self, tensors: dict[str, Tensor]) -> None: ...


Resumables = dict[str, Resumable]  # by the names of their files


class RunFolder:
    """Reads and writes the files of one training run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.old_state = folder / "state.old"
        self.best = folder / "best.safetensors"
        self.metrics = folder / "metrics.jsonl"
        self.curve = folder / "curve.png"
        self.tokenizer = folder / "tokenizer.json"
        self.checkpoint = folder / "checkpoint"

    @property
    def has_begun(self) -> bool:
        return self.state.exists() or self.old_state.exists()

    def save(self, module: nn.Module, parts: Resumables, progress: TrainingProgress) -> None:
        """Replace the saved state. If the process is killed, the old or the new state is
        complete.
        """
        fresh = self.folder / "state.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        save_file(_contiguous(module.state_dict()), fresh / "model.safetensors")
        for name, part in parts.items():
            save_file(_contiguous(part.state_tensors()), fresh / f"{name}.safetensors")
        (fresh / "progress.json").write_text(json.dumps(asdict(progress)))
        shutil.rmtree(self.old_state, ignore_errors=True)
        if self.state.exists():
            os.replace(self.state, self.old_state)
        os.replace(fresh, self.state)
        shutil.rmtree(self.old_state, ignore_errors=True)

    def resume(self, module: nn.Module, parts: Resumables) -> TrainingProgress:
        """Load the saved state, if there is one, and return the progress."""
        if not self.has_begun:
            return TrainingProgress()
        if not self.state.exists():  # killed between the two renames
            os.replace(self.old_state, self.state)
        module.load_state_dict(load_file(self.state / "model.safetensors"))
        for name, part in parts.items():
            part.load_state_tensors(load_file(self.state / f"{name}.safetensors"))
        return TrainingProgress(**json.loads((self.state / "progress.json").read_text()))

    def keep_best(self, module: nn.Module) -> None:
        """Replace the best weights."""
        fresh = self.folder / "best.new"
        save_file(_contiguous(module.state_dict()), fresh)
        os.replace(fresh, self.best)

    def record(self, row: dict) -> None:
        """Append one line to the metrics file."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> list[dict]:
        """Return all lines of the metrics file."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]

    def forget_after(self, step: int) -> None:
        """Drop the lines that a killed run wrote after the state from which it is resumed."""
        rows = [row for row in self.rows() if row["step"] <= step]
        if self.metrics.exists():
            fresh = self.folder / "metrics.new"
            fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.replace(fresh, self.metrics)


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


SIGNALS = (signal.SIGTERM, signal.SIGINT)


class TrainingStopped(Exception):
    """Raised when a run was asked to stop and has saved its state."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


class Brake:
    """Remembers a signal until it is safe to stop."""

    def __init__(self) -> None:
        self._pulled_by: int | None = None
        self._is_safe = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and Ctrl-C. A second signal has its usual effect."""
        self._before = {number: signal.signal(number, self._pull) for number in SIGNALS}
        try:
            yield
        finally:
            self._restore()

    @contextmanager
    def safe(self) -> Iterator[None]:
        """Return a context that may be left at any point. Raises TrainingStopped."""
        self.check()
        self._is_safe = True
        try:
            yield
        finally:
            self._is_safe = False

    def check(self) -> None:
        """Raise TrainingStopped if a signal has come."""
        if self._pulled_by is not None:
            raise TrainingStopped(self._pulled_by)

    def _pull(self, number: int, frame: FrameType | None) -> None:
        self._pulled_by = number
        self._restore()
        if self._is_safe:
            self.check()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


MAY_DIFFER = {
    "domain",
    "dropout",
    "source_languages",
    "target_languages",
}  # no weights are of these


def take_tokenizer(start: Checkpoint, model: AnyConfig, files: RunFolder) -> None:
    """Copy the tokenizer of the checkpoint that a run starts from into the run's folder. Raises
    InputError for another model.
    """
    mine, other = (config.model_dump(exclude=MAY_DIFFER) for config in (model, start.config))
    differences = [
        f"{name} is {other.get(name)}, in the recipe {mine.get(name)}"
        for name in {**other, **mine}
        if other.get(name) != mine.get(name)
    ]
    if differences:
        raise InputError(f"{start.folder}: this is another model: {'; '.join(differences)}")
    files.tokenizer.write_text(start.tokenizer, encoding="utf-8")
