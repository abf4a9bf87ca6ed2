"""A training run that `attendant train` has left, finished or not."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from export.zoo.errors import ZooError
from export.zoo.recipes import Recipe
from export.zoo.results import Look, Results, Training
from models.architectures.registry import AnyConfig
from models.configs.base import LanguageModelConfig
from models.configs.encoder import EncoderConfig
from models.storage.checkpoint import WEIGHTS_FILE, load_checkpoint


@dataclass(frozen=True)
class Run:
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def is_finished(self) -> bool:
        """Whether the last file is there that training writes, the checkpoint's card."""
        return (self.checkpoint / "README.md").is_file()

    @property
    def digest(self) -> str:
        """SHA-256 of the trained weights."""
        return hashlib.sha256((self.checkpoint / WEIGHTS_FILE).read_bytes()).hexdigest()

    def check(self, recipe: Recipe) -> None:
        """Raises ZooError where the recipe has changed since."""
        if self.is_finished and load_checkpoint(self.checkpoint).config != recipe.config.model:
            changed = f"{self.folder} was trained with another [model] than {recipe.path} has"
            raise ZooError([f"{changed}; remove it to train anew"])

    def results(self, recipe: Recipe) -> Results:
        """Return what is known after training."""
        checkpoint = load_checkpoint(self.checkpoint)
        config = checkpoint.config
        return Results(
            name=recipe.name,
            title=recipe.config.card.title or recipe.name,
            architecture=config.architecture,
            languages=_languages(config),
            parameters=sum(weight.size for weight in checkpoint.weights.values()),
            checkpoint=self.digest,
            training=self._training(recipe),
        )

    def _training(self, recipe: Recipe) -> Training:
        run = recipe.config.run
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        last = rows[-1]
        return Training(
            command=f"attendant train {recipe.path}",
            clock=run.clock,
            max_minutes=run.max_minutes,
            minutes=last["minutes"],
            tokens_per_batch=run.tokens_per_batch,
            steps=last["step"],
            epochs=round(self._epochs(), 1),
            dev_loss=last["dev_loss"],
            seed=run.seed,
            curve=tuple(
                Look(minutes=row["minutes"], dev_loss=row["dev_loss"], dev_bleu=row["bleu"])
                for row in rows
            ),
        )

    def _epochs(self) -> float:
        """Over the training data, the last one in part."""
        progress = json.loads((self.folder / "state" / "progress.json").read_text())
        num_batches = progress.get("num_batches")  # runs from before it was kept: whole epochs
        return progress["epoch"] + (progress["batch"] / num_batches if num_batches else 0.0)


def _languages(config: AnyConfig) -> str:
    assert not isinstance(config, EncoderConfig), "recipes are read as those of models that write"
    if isinstance(config, LanguageModelConfig):
        return "+".join(config.languages)
    return f"{'+'.join(config.source_languages)}-{'+'.join(config.target_languages)}"
