"""What a run needs to go on after a kill: safetensors and JSON, replaced atomically.

The folder of a run holds `state/` (the newest state), `snapshots/` (weights of the last
validations, for averaging), `metrics.jsonl`, `curve.png`, `tokenizer.json` and, at the end,
`checkpoint/`.
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from models.training.optimizer import Optimizer


@dataclass
class Progress:
    """Where a run is.

    seconds: spent training, validations included. losses: of the steps since the last validation.
    precision: of the matrix products so far.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    best_loss: float = float("inf")
    validations_since_best: int = 0
    losses: list[float] = field(default_factory=list)
    precision: str | None = None


class RunFolder:
    """The files of one training run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.snapshots = folder / "snapshots"
        self.metrics = folder / "metrics.jsonl"
        self.curve = folder / "curve.png"
        self.tokenizer = folder / "tokenizer.json"
        self.checkpoint = folder / "checkpoint"

    def save(self, module: nn.Module, optimizer: Optimizer, progress: Progress) -> None:
        """Replace the saved state; a kill at any moment leaves the old or the new one whole."""
        fresh = self.folder / "state.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        save_file(_contiguous(module.state_dict()), fresh / "model.safetensors")
        save_file(_contiguous(optimizer.state_tensors()), fresh / "optimizer.safetensors")
        (fresh / "progress.json").write_text(json.dumps(asdict(progress)))
        old = self.folder / "state.old"
        shutil.rmtree(old, ignore_errors=True)
        if self.state.exists():
            os.replace(self.state, old)
        os.replace(fresh, self.state)
        shutil.rmtree(old, ignore_errors=True)

    def resume(self, module: nn.Module, optimizer: Optimizer) -> Progress:
        """Load the saved state, if there is one, and say where the run is."""
        old = self.folder / "state.old"
        if old.exists() and not self.state.exists():  # killed between the two renames
            os.replace(old, self.state)
        if not self.state.exists():
            return Progress()
        module.load_state_dict(load_file(self.state / "model.safetensors"))
        optimizer.load_state_tensors(load_file(self.state / "optimizer.safetensors"))
        return Progress(**json.loads((self.state / "progress.json").read_text()))

    def add_snapshot(self, module: nn.Module, step: int, keep: int) -> None:
        """Keep this step's weights and forget all but the `keep` newest and the best."""
        self.snapshots.mkdir(parents=True, exist_ok=True)
        fresh = self.snapshots / "new"
        save_file(_contiguous(module.state_dict()), fresh)
        os.replace(fresh, self._snapshot(step))
        for path in self.last_snapshots()[:-keep]:
            path.unlink()

    def last_snapshots(self) -> list[Path]:
        """Oldest first."""
        return sorted(self.snapshots.glob("step-*.safetensors"))

    def best_snapshot(self) -> Path:
        return self.snapshots / "best.safetensors"

    def mark_best(self, step: int) -> None:
        fresh = self.snapshots / "new"
        shutil.copyfile(self._snapshot(step), fresh)
        os.replace(fresh, self.best_snapshot())

    def _snapshot(self, step: int) -> Path:
        return self.snapshots / f"step-{step:07d}.safetensors"

    def record(self, row: dict) -> None:
        """Append one line to the metrics file."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def rows(self) -> list[dict]:
        """All lines of the metrics file."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text().splitlines()]

    def forget_after(self, step: int) -> None:
        """Drop lines and snapshots a killed run wrote after the state it will go on from."""
        for path in self.last_snapshots():
            if path > self._snapshot(step):
                path.unlink()
        rows = [row for row in self.rows() if row["step"] <= step]
        if self.metrics.exists():
            fresh = self.folder / "metrics.new"
            fresh.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.replace(fresh, self.metrics)


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights in `paths`."""
    states = [load_file(path) for path in paths]
    return {name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]}


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
