"""All families of language models, by the `model_type` of their `config.json`."""

from collections.abc import Mapping

from export.readers.common.decoders import (
    bloom,
    cohere,
    deepseek,
    experts,
    gemma,
    glm,
    gpt2,
    gpt_neox,
    gpt_oss,
    gptj,
    granite,
    hunyuan,
    like_llama,
    llama,
    mamba,
    ministral,
    olmo,
    stablelm,
)
from export.readers.common.decoders.family import LanguageFamily

FAMILIES: Mapping[str, LanguageFamily] = {
    **bloom.FAMILIES,
    **cohere.FAMILIES,
    **deepseek.FAMILIES,
    **experts.FAMILIES,
    **gemma.FAMILIES,
    **glm.FAMILIES,
    **gpt2.FAMILIES,
    **gpt_neox.FAMILIES,
    **gpt_oss.FAMILIES,
    **gptj.FAMILIES,
    **granite.FAMILIES,
    **hunyuan.FAMILIES,
    **like_llama.FAMILIES,
    **llama.FAMILIES,
    **mamba.FAMILIES,
    **ministral.FAMILIES,
    **olmo.FAMILIES,
    **stablelm.FAMILIES,
}
