"""All families of language models, by the `model_type` of their `config.json`."""

from collections.abc import Mapping

from export.readers.common.decoders import (
    bloom,
    cohere,
    gemma,
    gpt2,
    gpt_neox,
    gptj,
    llama,
    mamba,
    stablelm,
)
from export.readers.common.decoders.family import LanguageFamily

FAMILIES: Mapping[str, LanguageFamily] = {
    **bloom.FAMILIES,
    **cohere.FAMILIES,
    **gemma.FAMILIES,
    **gpt2.FAMILIES,
    **gpt_neox.FAMILIES,
    **gptj.FAMILIES,
    **llama.FAMILIES,
    **mamba.FAMILIES,
    **stablelm.FAMILIES,
}
