"""The tokens that a model expects before and after its texts, by id."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from models.configs.base import ArchitectureConfig, EncoderConfig, LanguageModelConfig


class AddedTokens(Protocol):
    """Tokens that are added to any text of one model, or of one pair of its languages."""

    @property
    def source_prefix(self) -> tuple[int, ...]: ...

    @property
    def source_suffix(self) -> tuple[int, ...]: ...

    @property
    def prompt_prefix(self) -> tuple[int, ...]: ...

    @property
    def stop(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class AddedLanguageIds:
    """The tokens that one language adds to a text; see `Conventions`."""

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()


@dataclass(frozen=True)
class Conventions:
    """The tokens that a model expects before and after texts, and other settings of its makers.

    A source begins with the prefix of its target language, that of its own language and
    `source_prefix`. After the text come `source_suffix` and the suffix of its own language. A
    target begins with `prompt_prefix` and the prefix of its language, and ends before one of
    `stop`.

    unk: replaces characters outside the vocabulary, if there is such a token.
    forced_eos: one of `stop` that is added to a target that reaches its length limit, if any.
    sources, targets: by language code, of models that read or write several languages.
    chat_template: in Jinja, as Hugging Face's tokenizers have it.
    separator: between the texts of a pair, for encoders of pairs.
    prompts: texts that an encoder's requests may put before theirs, by name.
    default_prompt: used by requests that name none.
    translation_message: of a language model that translates: what asks it to; see the manifest.
    generation: default decoding options, by the names that requests use: `temperature`,
    `num_beams`, `length_penalty`, `max_new_tokens` ...
    logits_processors: what every request has, by the names of the manifest's `LogitsProcessors`.
    """

    source_prefix: tuple[int, ...] = ()
    source_suffix: tuple[int, ...] = ()
    prompt_prefix: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    unk: int | None = None
    forced_eos: int | None = None
    sources: Mapping[str, AddedLanguageIds] = field(default_factory=dict)
    targets: Mapping[str, AddedLanguageIds] = field(default_factory=dict)
    chat_template: str | None = None
    separator: tuple[int, ...] | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    translation_message: Mapping[str, Any] = field(default_factory=dict)
    generation: Mapping[str, Any] = field(default_factory=dict)
    logits_processors: Mapping[str, Any] = field(default_factory=dict)


def own_conventions(config: ArchitectureConfig) -> Conventions:
    """Return the conventions of models trained here: sources end with </s>, targets begin with <s>.
    Texts that are only encoded stand between the two.
    """
    if isinstance(config, EncoderConfig):
        return Conventions((config.bos_id,), (config.eos_id,))
    is_language_model = isinstance(config, LanguageModelConfig)
    return Conventions(
        source_suffix=() if is_language_model else (config.eos_id,),
        prompt_prefix=(config.bos_id,),
        stop=(config.eos_id,),
    )
