"""Leads from an architecture's name to what builds its graphs."""

from collections.abc import Callable
from typing import Any

from export.families.language_models import key_value_lm, ngram_lm, recurrent_lm
from export.families.language_models.gpt2 import GPT2
from export.families.language_models.gpt_neox import GPTNeoX
from export.families.language_models.llama import Llama
from export.families.translators import lstmn
from export.families.translators.bahdanau import Bahdanau
from export.families.translators.cho import Cho
from export.families.translators.convs2s import ConvS2S
from export.families.translators.luong import Luong
from export.families.translators.rctm import Rctm
from export.families.translators.sutskever import Sutskever
from export.families.translators.transformer import Transformer
from export.families.translators.transformer_ssru import TransformerSSRU
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from serving.bundle.manifest import Precision

BUILDERS: dict[str, Callable[[Any, Weights, Precision], ExportedModel]] = {
    "bahdanau": Bahdanau.build,
    "cho": Cho.build,
    "convs2s": ConvS2S.build,
    "gpt-neox": GPTNeoX.build,
    "gpt2": GPT2.build,
    "key-value-lm": key_value_lm.build,
    "llama": Llama.build,
    "lstmn": lstmn.build,
    "luong": Luong.build,
    "ngram-lm": ngram_lm.build,
    "rctm": Rctm.build,
    "recurrent-lm": recurrent_lm.build,
    "sutskever": Sutskever.build,
    "transformer": Transformer.build,
    "transformer-ssru": TransformerSSRU.build,
}
