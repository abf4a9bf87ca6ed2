"""Reads a folder by its `model_type`, which names its Hugging Face family."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from export.readers.common.language_models import FAMILIES as LANGUAGE_MODELS
from export.readers.common.options import noted, read_options
from export.readers.common.rope import fit
from export.readers.hugging_face import bart, marian, t5
from export.readers.hugging_face.encoder_families import FAMILIES as ENCODERS
from export.readers.hugging_face.encoders import read_encoder
from export.readers.hugging_face.folder import CONFIG_FILE, Folder, open_folder
from export.readers.hugging_face.language_models import read_language_model
from models.storage.checkpoint import Checkpoint

FAMILIES: dict[str, Callable[[Folder], Checkpoint]] = {
    **{name: partial(read_language_model, family) for name, family in LANGUAGE_MODELS.items()},
    **{name: partial(read_encoder, family) for name, family in ENCODERS.items()},
    "bart": bart.read_bart,
    "m2m_100": bart.read_m2m_100,
    "marian": marian.read,
    "mbart": bart.read_mbart,
    "mt5": t5.read,
    "t5": t5.read,
}


def looks_like(path: Path) -> bool:
    """Tell whether there is a `config.json` that tells a `model_type`."""
    return "model_type" in read_options(path / CONFIG_FILE, [])


def read(path: Path, context_length: int | None = None) -> Checkpoint:
    """Read the model of a folder, a language model for texts of up to `context_length` tokens.

    Raises CheckpointError with every problem.
    """
    folder = open_folder(path)
    kind = folder.config.get("model_type")
    read_family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if read_family is None:
        folder.config.refuse("model_type", f"is none of {', '.join(sorted(FAMILIES))}")
        folder.fail()
    folder.config.only("is_causal", kind not in ENCODERS)
    folder.config.only("is_encoder_decoder", kind not in {*ENCODERS, *LANGUAGE_MODELS})
    if kind in LANGUAGE_MODELS:
        if (longest := LANGUAGE_MODELS[kind].context_length) is not None:
            folder.config.default_to(max_position_embeddings=longest)
        notes = fit(folder.config, context_length)
        return noted(read_family(folder), notes)
    if context_length is not None:
        folder.problems.append("context length can be set for language models only")
        folder.fail()
    return read_family(folder)
