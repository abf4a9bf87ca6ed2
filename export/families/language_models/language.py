"""What all language models say of themselves: their limits."""

from export.graph.model import ExportedModel
from export.graph.writer import GraphWriter
from models.configs.base import LanguageModelConfig
from serving.bundle.manifest import Limits, StateSpec


def language_model(
    config: LanguageModelConfig, graph: GraphWriter, states: tuple[StateSpec, ...]
) -> ExportedModel:
    """Of one graph, for prompts and what follows."""
    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    return ExportedModel(graphs=(graph,), states=states, limits=limits)
