"""Holds what all language models say of themselves: their limits."""

from collections.abc import Mapping
from types import MappingProxyType

from export.graph.model import ExportedModel
from export.graph.writer import GraphWriter
from models.configs.base import LanguageModelConfig
from serving.bundle.manifest import AttentionShape, Limits, StateSpec

NOTHING_TOLD: Mapping[str, AttentionShape] = MappingProxyType({})


def language_model(
    config: LanguageModelConfig,
    graphs: tuple[GraphWriter, ...],
    states: tuple[StateSpec, ...],
    attention: Mapping[str, AttentionShape] = NOTHING_TOLD,
) -> ExportedModel:
    """Make a model of a step graph, for prompts and what follows, and perhaps one that tells of
    attention and one that verifies.
    """
    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    return ExportedModel(graphs=graphs, states=states, limits=limits, attention=attention)
