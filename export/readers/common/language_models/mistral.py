"""Mistral (Jiang et al. 2023): Llama, where a layer may see a window of the last positions."""

from typing import Any

from export.readers.common.language_models import llama
from export.readers.common.language_models.family import LanguageFamily
from export.readers.common.options import Options, joined


def configure(config: Options) -> dict[str, Any]:
    config.default_to(sliding_window=4096)
    return joined(llama.sizes(config), llama.rotary(config), llama.windows(config))


FAMILY = LanguageFamily(configure, llama.table)
