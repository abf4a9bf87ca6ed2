"""Lists all families of language models by the `model_type` of their `config.json`."""

from export.readers.common.language_models import (
    gemma,
    gpt2,
    gpt_neox,
    llama,
    mamba2,
    mistral,
    phi,
    phi3,
    qwen,
    smollm3,
)
from export.readers.common.language_models.family import LanguageFamily

FAMILIES: dict[str, LanguageFamily] = {
    "gemma": gemma.GEMMA,
    "gemma2": gemma.GEMMA2,
    "gemma3_text": gemma.GEMMA3,
    "gpt2": gpt2.FAMILY,
    "gpt_neox": gpt_neox.FAMILY,
    "llama": llama.FAMILY,
    "mamba2": mamba2.FAMILY,
    "mistral": mistral.FAMILY,
    "phi": phi.FAMILY,
    "phi3": phi3.FAMILY,
    "qwen2": qwen.QWEN2,
    "qwen3": qwen.QWEN3,
    "smollm3": smollm3.FAMILY,
}
