"""What the sequence-to-sequence families share: the source's inputs, special tokens and limits."""

from export.graph import GraphWriter, Value
from export.model import ExportedModel
from models.configs.base import TranslationModelConfig
from serving.bundle.manifest import SOURCE, Limits, StateSpec, Tokens


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
    tokens = Tokens(
        pad=config.pad_id,
        bos=config.bos_id,
        eos=config.eos_id,
        source_prefix=(),
        source_suffix=(config.eos_id,),
        prompt_prefix=(config.bos_id,),
        stop=(config.eos_id,),
    )
    limits = Limits(config.max_source_tokens, config.max_target_tokens)
    return ExportedModel(graphs, states, tokens, limits, alignment_heads)
