"""Granite 3 and 4's dense models (Granite Team 2024): Llama with four multipliers, all but the
embedding's folded into weights.
"""

import math
from typing import Any

from export.readers.common.decoders.family import IGNORED, LanguageFamily
from export.readers.common.decoders.llama import NAMES, NORMS, configure_llama
from export.readers.common.options import Options, merge_options
from export.readers.common.weights import Change, Table, scale_by
from models.architectures.llama.config import LlamaConfig


def configure(config: Options) -> dict[str, Any]:
    scale = config.positive("embedding_multiplier", 1.0)
    return merge_options(configure_llama(config), {"imported": {"embedding_scale": scale}})


def table(options: Options, config: LlamaConfig) -> Table:
    of_scores = options.positive("attention_multiplier", 1.0) * math.sqrt(config.head_size)
    of_sums = scale_by(options.positive("residual_multiplier", 1.0))
    changes: dict[str, Change] = {
        "norm": scale_by(1 / options.positive("logits_scaling", 1.0)),
        "layers.*.attention.query": scale_by(of_scores),
        "layers.*.attention.output": of_sums,
        "layers.*.feed_forward.down": of_sums,
    }
    return Table(NAMES | NORMS, changes, IGNORED, prefix="model.")


FAMILIES = {"granite": LanguageFamily(configure, table)}
