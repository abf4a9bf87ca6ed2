"""Begins a run where a checkpoint ends: to go on from there, or to learn other data."""

from models.architectures.registry import AnyConfig
from models.storage.checkpoint import Checkpoint
from models.training.state import RunFolder

MAY_DIFFER = {"dropout", "source_languages", "target_languages"}  # no weights are of these


def take_tokenizer(start: Checkpoint, model: AnyConfig, files: RunFolder) -> None:
    """Put the tokenizer where the run looks for its own. Raises ValueError for another model."""
    mine, other = (each.model_dump(exclude=MAY_DIFFER) for each in (model, start.config))
    differences = [
        f"{name} is {other.get(name)}, in the recipe {mine.get(name)}"
        for name in {**other, **mine}
        if other.get(name) != mine.get(name)
    ]
    if differences:
        raise ValueError(f"{start.folder}: this is another model: {'; '.join(differences)}")
    files.tokenizer.write_text(start.tokenizer, encoding="utf-8")
