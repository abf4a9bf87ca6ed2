"""Holds what all language models say of themselves: their limits."""

from export.graph.model import ExportedModel
from export.graph.writer import GraphWriter
from models.configs.base import LanguageModelConfig
from serving.bundle.manifest import Limits, StateSpec


def language_model(
    config: LanguageModelConfig, graphs: tuple[GraphWriter, ...], states: tuple[StateSpec, ...]
) -> ExportedModel:
    """Make a model of a step graph, for prompts and what follows, and perhaps one that verifies."""
    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    return ExportedModel(graphs=graphs, states=states, limits=limits)
