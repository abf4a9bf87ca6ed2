"""Reads a folder by its `model_type`, which names its Hugging Face family."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from export.readers.common.checkpoint_files import add_notes
from export.readers.common.decoders.families import FAMILIES as LANGUAGE_MODELS
from export.readers.common.options import read_options
from export.readers.common.rope import limit_context
from export.readers.hugging_face import (
    bart,
    deberta,
    m2m_100,
    marian,
    mbart,
    pegasus,
    t5,
    t5gemma,
    vision,
    whisper,
)
from export.readers.hugging_face.adapters import merge_adapters
from export.readers.hugging_face.encoder_families import FAMILIES as ENCODER_FAMILIES
from export.readers.hugging_face.encoders import read_encoder
from export.readers.hugging_face.folder import CONFIG_FILE, Folder, open_folder
from export.readers.hugging_face.language_models import read_language_model
from export.readers.hugging_face.modernbert import MODERNBERT
from export.readers.hugging_face.multimodal import MULTIMODAL, extract_language_model
from export.readers.hugging_face.nomic_bert import NOMIC_BERT
from export.readers.hugging_face.packed_experts import split_experts
from export.readers.hugging_face.rotary_encoders import read_rotary_encoder
from models.checkpoint import Checkpoint

ROTARY_ENCODERS = {"modernbert": MODERNBERT, "nomic_bert": NOMIC_BERT}
ENCODERS: dict[str, Callable[[Folder], Checkpoint]] = {
    **{name: partial(read_encoder, family) for name, family in ENCODER_FAMILIES.items()},
    "deberta": deberta.read_deberta,
    "deberta-v2": deberta.read_deberta_v2,
}
FAMILIES: dict[str, Callable[[Folder], Checkpoint]] = {
    **{name: partial(read_language_model, family) for name, family in LANGUAGE_MODELS.items()},
    **ENCODERS,
    **{name: partial(read_rotary_encoder, family) for name, family in ROTARY_ENCODERS.items()},
    "bart": bart.read_bart,
    "longt5": t5.read_t5,
    "m2m_100": m2m_100.read_m2m_100,
    "marian": marian.read_marian,
    "mbart": mbart.read_mbart,
    "mt5": t5.read_t5,
    "pegasus": pegasus.read_pegasus,
    "t5": t5.read_t5,
    "t5gemma": t5gemma.read_t5gemma,
    "umt5": t5.read_t5,
    "vision-encoder-decoder": vision.read_vision_encoder_decoder,
    "whisper": whisper.read_whisper,
}

REFUSED = {  # with the reason
    "led": "its first token attends to all others by projections of its own, which no graph has",
    "t5gemma2": "its decoder attends to source and target by one softmax, and it reads pictures",
}


def can_read(path: Path) -> bool:
    """Return whether there is a `config.json` with a `model_type`."""
    return "model_type" in read_options(path / CONFIG_FILE, [])


def read_checkpoint(
    path: Path, context_length: int | None = None, adapters: Sequence[Path] = ()
) -> Checkpoint:
    """Read the model of a folder, a language model for texts of up to `context_length` tokens, with
    the adapters of these folders merged. Raises CheckpointError with every problem.
    """
    folder = open_folder(path)
    if folder.config.get("model_type") in [*MULTIMODAL]:
        folder = extract_language_model(folder)
    kind = folder.config.get("model_type")
    if kind == "gpt_oss":
        folder.tensors.stored = split_experts(folder.tensors.stored)
    read_family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if read_family is None:
        reason = f"is none of {', '.join(sorted([*FAMILIES, *MULTIMODAL]))}"
        if isinstance(kind, str) and kind in REFUSED:
            reason = f"is not supported: {REFUSED[kind]}"
        folder.config.refuse("model_type", reason)
        folder.fail()
    merge_adapters(folder, adapters)
    encoders = {*ENCODERS, *ROTARY_ENCODERS}
    if kind not in LANGUAGE_MODELS:
        folder.config.only("is_causal", kind not in encoders)
    folder.config.only("is_encoder_decoder", kind not in {*encoders, *LANGUAGE_MODELS})
    if kind in LANGUAGE_MODELS:
        if (longest := LANGUAGE_MODELS[kind].context_length) is not None:
            folder.config.default_to(max_position_embeddings=longest)
        notes = limit_context(folder.config, context_length)
        return add_notes(read_family(folder), notes)
    if context_length is not None:
        folder.problems.append("context length can be set for language models only")
        folder.fail()
    return read_family(folder)
