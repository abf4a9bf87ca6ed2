"""Turns a model's conventions into what the manifest has."""

from collections.abc import Mapping
from dataclasses import replace

from models import conventions
from models.architectures.registry import AnyConfig
from models.configs.encoder import EmbeddingHead, EncoderConfig
from models.conventions import Conventions
from serving.bundle.manifest import Activation, EncoderSpec, LanguageIds, Tokens


def tokens_of(config: AnyConfig, around: Conventions) -> Tokens:
    return Tokens(
        pad=config.pad_id,
        bos=config.bos_id,
        eos=config.eos_id,
        source_prefix=around.source_prefix,
        source_suffix=around.source_suffix,
        prompt_prefix=around.prompt_prefix,
        stop=around.stop,
        unk=around.unk,
        forced_eos=around.forced_eos,
        sources=_languages(around.sources),
        targets=_languages(around.targets),
    )


def encoder_of(config: AnyConfig, around: Conventions) -> EncoderSpec | None:
    """Say what comes out of a model that only encodes; None of others."""
    if not isinstance(config, EncoderConfig):
        return None
    spec = EncoderSpec(
        separator=around.separator,
        prompts=dict(around.prompts),
        default_prompt=around.default_prompt,
    )
    head = config.head
    if isinstance(head, EmbeddingHead):
        return replace(spec, dimension=config.dense_dim, is_normalised=head.normalised)
    return replace(spec, labels=head.labels, activation=Activation(head.scores))


def _languages(found: Mapping[str, conventions.LanguageIds]) -> dict[str, LanguageIds]:
    return {code: LanguageIds(**vars(ids)) for code, ids in found.items()}
