"""Changes to saved folders, for tests of what their files may say."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from export.readers.hugging_face.families import read_checkpoint
from models.checkpoint import CheckpointError


def change(path: Path, **values: Any) -> None:
    """Set values of a JSON file; None takes one away."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    known = {name: value for name, value in (known | values).items() if value is not None}
    path.write_text(json.dumps(known))


def change_weights(folder: Path, **values: Any) -> None:
    """Set tensors, dots as double underscores; None takes one away."""
    path = folder / "model.safetensors"
    weights = load_file(path) | {name.replace("__", "."): each for name, each in values.items()}
    kept = {name: each for name, each in weights.items() if each is not None}
    save_file(kept, path, metadata={"format": "pt"})


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    return caught.value.problems
