"""A model's conventions as the manifest has them."""

from collections.abc import Mapping

from models import conventions
from models.configs.registry import AnyConfig
from models.conventions import Conventions
from serving.bundle.manifest import LanguageIds, Tokens


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


def _languages(found: Mapping[str, conventions.LanguageIds]) -> dict[str, LanguageIds]:
    return {code: LanguageIds(**vars(ids)) for code, ids in found.items()}
