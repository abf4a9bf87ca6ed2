"""All families of language models, by the `model_type` of their `config.json`."""

from collections.abc import Mapping

from export.readers.common.decoders import gemma, gpt2, gpt_neox, llama, mamba, olmo
from export.readers.common.decoders.family import LanguageFamily

FAMILIES: Mapping[str, LanguageFamily] = {
    **gemma.FAMILIES,
    **gpt2.FAMILIES,
    **gpt_neox.FAMILIES,
    **llama.FAMILIES,
    **mamba.FAMILIES,
    **olmo.FAMILIES,
}
