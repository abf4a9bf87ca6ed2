"""Leads from an architecture's name to what builds its graphs."""

from collections.abc import Callable
from typing import Any

from export.families.encoders.self_attentive import SelfAttentiveGraph
from export.families.encoders.transformer_encoder import TransformerEncoderGraph
from export.families.language_models import key_value_lm, mamba2, ngram_lm, recurrent_lm
from export.families.language_models.gpt2 import GPT2Graph
from export.families.language_models.gpt_neox import GPTNeoXGraph
from export.families.language_models.llama import LlamaGraph
from export.families.translators import lstmn
from export.families.translators.bahdanau import BahdanauGraph
from export.families.translators.cho import ChoGraph
from export.families.translators.convs2s import ConvS2SGraph
from export.families.translators.fconv import FConvGraph
from export.families.translators.luong.luong import LuongGraph
from export.families.translators.nematus import NematusGraph
from export.families.translators.rctm import RctmGraph
from export.families.translators.sutskever import SutskeverGraph
from export.families.translators.transformer import TransformerGraph
from export.families.translators.transformer_ssru import TransformerSSRUGraph
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from serving.bundle.manifest import Precision

BUILDERS: dict[str, Callable[[Any, Weights, Precision], ExportedModel]] = {
    "bahdanau": BahdanauGraph.build,
    "cho": ChoGraph.build,
    "convs2s": ConvS2SGraph.build,
    "fconv": FConvGraph.build,
    "gpt-neox": GPTNeoXGraph.build,
    "gpt2": GPT2Graph.build,
    "key-value-lm": key_value_lm.build,
    "llama": LlamaGraph.build,
    "lstmn": lstmn.build,
    "luong": LuongGraph.build,
    "mamba2": mamba2.build,
    "nematus": NematusGraph.build,
    "ngram-lm": ngram_lm.build,
    "rctm": RctmGraph.build,
    "recurrent-lm": recurrent_lm.build,
    "self-attentive": SelfAttentiveGraph.build,
    "sutskever": SutskeverGraph.build,
    "transformer": TransformerGraph.build,
    "transformer-encoder": TransformerEncoderGraph.build,
    "transformer-ssru": TransformerSSRUGraph.build,
}
