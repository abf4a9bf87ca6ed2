"""What the sequence-to-sequence families share: the source's inputs and limits."""

from export.graph.model import ExportedModel
from export.graph.writer import GraphWriter, Value
from models.configs.base import TranslationModelConfig
from serving.bundle.manifest import SOURCE, Limits, StateSpec


def source_inputs(graph: GraphWriter) -> tuple[Value, Value]:
    """``source_ids`` [batch, source] and ``source_lengths`` [batch]."""
    ids = graph.input("source_ids", "int64", (SOURCE,))
    return ids, graph.input("source_lengths", "int32", ())


def translation_model(
    config: TranslationModelConfig,
    graphs: tuple[GraphWriter, ...],
    states: tuple[StateSpec, ...],
    alignment_heads: tuple[int, ...] = (),
) -> ExportedModel:
    """Of a graph `encode`, a graph `step` and, where there is attention, `step_attention`."""
    limits = Limits(config.max_source_tokens, config.max_target_tokens)
    return ExportedModel(graphs, states, limits, alignment_heads)
