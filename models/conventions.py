"""Says what a model expects around its texts, beyond its configuration: in token ids, no text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from models.configs.base import ArchitectureConfig, LanguageModelConfig
from models.configs.encoder import EncoderConfig


class Around(Protocol):
    """Is what goes around any text of one model, or of one pair of its languages."""

    @property
    def source_prefix(self) -> tuple[int, ...]: ...

    @property
    def source_suffix(self) -> tuple[int, ...]: ...

    @property
    def prompt_prefix(self) -> tuple[int, ...]: ...

    @property
    def stop(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class LanguageIds:
    """Holds what one language adds around a text; see `Conventions`."""

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Conventions:
    """Says what goes around texts. A source is what its target language and its own put before it,
    `source_prefix`, the text, `source_suffix`, and what its own puts after it. A target begins
    with `prompt_prefix` and what its language puts there, and ends before one of `stop`.

    unk: stands for what the vocabulary cannot say, if anything does.
    forced_eos: one of `stop` that a target ends with where its length ends it, if there is any.
    sources, targets: by language code, of models that read or write several.
    chat_template: in Jinja, as Hugging Face's tokenizers have them.
    separator: stands between the texts of a pair, where an encoder takes pairs.
    prompts: what an encoder's requests may put in front of a text, by the names they do it by.
    default_prompt: of those that name none.
    generation: what requests that do not say otherwise are decoded by, under their own names:
        `temperature`, `num_beams`, `length_penalty`, `max_new_tokens` ...
    """

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    unk: int | None = None
    forced_eos: int | None = None
    sources: Mapping[str, LanguageIds] = field(default_factory=dict)
    targets: Mapping[str, LanguageIds] = field(default_factory=dict)
    chat_template: str | None = None
    separator: tuple[int, ...] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    generation: Mapping[str, Any] = field(default_factory=dict)


def own_conventions(config: ArchitectureConfig) -> Conventions:
    """Return those of models trained here: sources end with </s>, targets begin with <s>. What is
    only encoded stands between the two.
    """
    if isinstance(config, EncoderConfig):
        return Conventions((config.bos_id,), (config.eos_id,))
    is_language_model = isinstance(config, LanguageModelConfig)
    return Conventions(
        source_suffix=() if is_language_model else (config.eos_id,),
        prompt_prefix=(config.bos_id,),
        stop=(config.eos_id,),
    )
