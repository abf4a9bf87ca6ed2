"""What all language models say of themselves: their special tokens and limits."""

from export.graph import GraphWriter
from export.model import ExportedModel
from models.configs.base import LanguageModelConfig
from serving.bundle.manifest import Limits, StateSpec, Tokens


def language_model(
    config: LanguageModelConfig, graph: GraphWriter, states: tuple[StateSpec, ...]
) -> ExportedModel:
    """Of one graph, for prompts and what follows."""
    tokens = Tokens(
        pad=config.pad_id,
        bos=config.bos_id,
        eos=config.eos_id,
        source_prefix=(),
        source_suffix=(),
        prompt_prefix=(config.bos_id,),
        stop=(config.eos_id,),
    )
    limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
    return ExportedModel(graphs=(graph,), states=states, tokens=tokens, limits=limits)
