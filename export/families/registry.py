"""From an architecture's name to what builds its graphs."""

from collections.abc import Callable
from typing import Any

from export.families.language_models import (
    gpt2,
    gpt_neox,
    key_value_lm,
    llama,
    ngram_lm,
    recurrent_lm,
)
from export.families.translators import (
    bahdanau,
    cho,
    convs2s,
    lstmn,
    luong,
    rctm,
    sutskever,
    transformer,
    transformer_ssru,
)
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from serving.bundle.manifest import Precision

BUILDERS: dict[str, Callable[[Any, Weights, Precision], ExportedModel]] = {
    "bahdanau": bahdanau.build,
    "cho": cho.build,
    "convs2s": convs2s.build,
    "gpt-neox": gpt_neox.build,
    "gpt2": gpt2.build,
    "key-value-lm": key_value_lm.build,
    "llama": llama.build,
    "lstmn": lstmn.build,
    "luong": luong.build,
    "ngram-lm": ngram_lm.build,
    "rctm": rctm.build,
    "recurrent-lm": recurrent_lm.build,
    "sutskever": sutskever.build,
    "transformer": transformer.build,
    "transformer-ssru": transformer_ssru.build,
}
