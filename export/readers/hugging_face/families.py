"""All Hugging Face families by their `model_type`, and how a folder is read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from export.readers.hugging_face import (
    bart,
    gemma,
    gpt2,
    gpt_neox,
    llama,
    m2m_100,
    marian,
    mbart,
    mistral,
    phi,
    phi3,
    qwen,
    smollm3,
    t5,
)
from export.readers.hugging_face.context import fit, noted
from export.readers.hugging_face.decoder_only import Family
from export.readers.hugging_face.folder import CONFIG_FILE, Folder, open_folder
from export.readers.hugging_face.language import read_language_model
from export.readers.hugging_face.options import read_options
from models.storage.checkpoint import Checkpoint

DECODER_ONLY: dict[str, Family] = {
    "gemma": gemma.GEMMA,
    "gemma2": gemma.GEMMA2,
    "gemma3_text": gemma.GEMMA3,
    "gpt2": gpt2.FAMILY,
    "gpt_neox": gpt_neox.FAMILY,
    "llama": llama.FAMILY,
    "mistral": mistral.FAMILY,
    "phi": phi.FAMILY,
    "phi3": phi3.FAMILY,
    "qwen2": qwen.QWEN2,
    "qwen3": qwen.QWEN3,
    "smollm3": smollm3.FAMILY,
}
FAMILIES: dict[str, Callable[[Folder], Checkpoint]] = {
    **{name: partial(read_language_model, family) for name, family in DECODER_ONLY.items()},
    "bart": bart.read,
    "m2m_100": m2m_100.read,
    "marian": marian.read,
    "mbart": mbart.read,
    "mt5": t5.read,
    "t5": t5.read,
}


def looks_like(path: Path) -> bool:
    """Whether there is a `config.json` that tells a `model_type`."""
    return "model_type" in read_options(path / CONFIG_FILE, [])


def read(path: Path, context_length: int | None = None) -> Checkpoint:
    """The model of a folder; a language model reads no more than `context_length` tokens, if one is
    given. Raises CheckpointError with every problem.
    """
    folder = open_folder(path)
    kind = folder.config.values.get("model_type")
    read_family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if read_family is None:
        folder.config.refuse("model_type", f"is none of {', '.join(sorted(FAMILIES))}")
        folder.fail()
    if kind in DECODER_ONLY:
        notes = fit(folder.config, context_length)
        return noted(read_family(folder), notes)
    if context_length is not None:
        folder.problems.append("context length can be set for language models only")
        folder.fail()
    return read_family(folder)
