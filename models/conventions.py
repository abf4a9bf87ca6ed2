"""What a model expects around its texts, beyond its configuration: in token ids, no text."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from models.configs.base import ArchitectureConfig, LanguageModelConfig


@dataclass(frozen=True)
class LanguageIds:
    """What one language adds around a text; see `Conventions`."""

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Conventions:
    """A source is what its target language and its own put before it, `source_prefix`, the text,
    `source_suffix`, and what its own language puts after it. A target begins with `prompt_prefix`
    and what its language puts there, and ends before one of `stop`.

    unk: stands for what the vocabulary cannot say, if anything does.
    sources, targets: by language code, of models that read or write several.
    chat_template: in Jinja, as Hugging Face's tokenizers have them.
    generation: what requests that do not say otherwise are decoded by, under their own names:
        `temperature`, `num_beams`, `length_penalty`, `max_new_tokens` ...
    """

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    unk: int | None = None
    sources: Mapping[str, LanguageIds] = field(default_factory=dict)
    targets: Mapping[str, LanguageIds] = field(default_factory=dict)
    chat_template: str | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)

    def between(self, source: str, target: str) -> "Conventions":
        """Those of one pair of languages; of a model without language tokens the same."""
        own = self.sources.get(source, LanguageIds())
        other = self.targets.get(target, LanguageIds())
        return replace(
            self,
            source_prefix=other.source_prefix + own.source_prefix + self.source_prefix,
            source_suffix=self.source_suffix + own.source_suffix,
            prompt_prefix=self.prompt_prefix + other.prompt_prefix,
        )


def own_conventions(config: ArchitectureConfig) -> Conventions:
    """Those of the models that are trained here: sources end with </s>, targets begin with <s>."""
    is_language_model = isinstance(config, LanguageModelConfig)
    return Conventions(
        source_suffix=() if is_language_model else (config.eos_id,),
        prompt_prefix=(config.bos_id,),
        stop=(config.eos_id,),
    )
