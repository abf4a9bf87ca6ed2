"""Model cards: what a client may know about a model: its name, languages, limits and defaults.

A card is a plain value, because it is sent to other processes, which serve the model by forwarding.
"""

from dataclasses import dataclass, field
from typing import Any

from serving.bundle.manifest import (
    AttentionShape,
    AudioSpec,
    EncoderSpec,
    Manifest,
    PictureSpec,
    Precision,
    Task,
)
from serving.engine.runtime.planning import PlannedModel
from serving.errors import RequestError
from serving.text.languages import UNDETERMINED, match_codes


@dataclass(frozen=True, slots=True)
class PlanCard:
    """The execution plan of a model in each replica, and how it was chosen."""

    engines: int
    threads: int
    chosen: str

    @classmethod
    def from_planned(cls, planned: PlannedModel) -> "PlanCard":
        return cls(planned.plan.engines, planned.plan.threads, planned.origin)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model that is served.

    source_languages, target_languages: codes in the spelling of the model.
    max_target_tokens: tokens of prompt and output together.
    num_attention_heads: heads whose attention over the source can be reported; 0 if it has none.
    has_chat_template: whether the model accepts messages.
    generation: the decoding options that its makers recommend as defaults, by the names of our
        fields.
    plan: None if the model does not run here.
    fingerprint: of everything that decides the output, see `fingerprint_of`; None if the model does
        not run here.
    max_source_tokens: of one segment; None without a source or without a limit.
    text: the model card in Markdown; empty if the model does not run here.
    licence, origin: what the model card says of them; None if it says nothing.
    size_bytes: of the bundle's files; None if the model does not run here.
    quality: the figures of the bundle's tests, by name, and `scores` of a translator's; empty if
        nothing was measured.
    attention: the number of layers and heads of each kind of attention that can be reported.
    encoder: the output of a model that only encodes, else None.
    picture: how a model that reads pictures reads them, else None.
    audio: how a model that reads sound reads it, and its languages, else None.
    domain: what texts it was trained on, in a few words; None for a model of general text.
    """

    name: str
    task: Task
    source_languages: tuple[str, ...]
    target_languages: tuple[str, ...]
    max_target_tokens: int
    architecture: str
    num_attention_heads: int
    has_chat_template: bool = False
    generation: dict[str, Any] = field(default_factory=dict)
    plan: PlanCard | None = None
    precision: Precision = Precision.FP32
    max_source_tokens: int | None = None
    fingerprint: str | None = None
    text: str = ""
    licence: str | None = None
    origin: str | None = None
    size_bytes: int | None = None
    quality: dict[str, Any] = field(default_factory=dict)
    attention: dict[str, AttentionShape] = field(default_factory=dict)
    encoder: EncoderSpec | None = None
    picture: PictureSpec | None = None
    audio: AudioSpec | None = None
    domain: str | None = None

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "ModelCard":
        return cls(
            manifest.name,
            manifest.serves,
            manifest.source_languages,
            manifest.target_languages,
            manifest.limits.max_target_tokens,
            manifest.architecture,
            manifest.num_attention_heads,
            manifest.chat_template is not None or manifest.picture is not None,
            manifest.generation,
            precision=manifest.precision,
            max_source_tokens=manifest.limits.max_source_tokens,
            attention={str(kind): shape for kind, shape in manifest.attention_shapes.items()},
            encoder=manifest.encoder,
            picture=manifest.picture,
            audio=manifest.audio,
            domain=manifest.domain,
            quality=_figures_of(manifest.quality),
        )

    @property
    def max_tokens(self) -> int:
        """Return the maximum number of tokens of a request: prompt and output, or the text to
        encode.
        """
        return self.max_target_tokens or self.max_source_tokens or 0

    @property
    def no_attention(self) -> str:
        """Return why a model without attention heads cannot do what needs them."""
        return f"has no attention over its source: its architecture, {self.architecture}, has none"

    def targets_of(self, source: str) -> tuple[str, ...]:
        """Return the languages into which the model translates a source language of its own. The
        language itself is one of them only if there is no other.
        """
        if source == UNDETERMINED:
            return self.target_languages
        others = tuple([code for code in self.target_languages if code != source])
        return others or self.target_languages

    def translates(self, source: str, target: str) -> bool:
        try:
            self.languages(source, target)
        except RequestError:
            return False
        return True

    def languages(self, source: str, target: str) -> tuple[str, str]:
        """Return a client's source and target as the model has them; see
        `serving.text.languages`. Raises RequestError naming the languages to choose from, also for
        a target that means the source.
        """
        source = self.source_language(source)
        targets = self.targets_of(source)
        if source not in targets and match_codes(target, (source, *targets)) == (source,):
            raise self._unknown_language("target", target, targets)
        return source, self._match_language("target", target, targets)

    def source_language(self, code: str) -> str:
        return self._match_language("source", code, self.source_languages)

    def _match_language(self, field: str, code: str, languages: tuple[str, ...]) -> str:
        matches = match_codes(code, languages)
        if not matches:
            raise self._unknown_language(field, code, languages)
        if len(matches) > 1:
            message = f"model {self.name} has several of that language: {', '.join(matches)}"
            raise RequestError(field, code, message)
        return matches[0]

    def _unknown_language(self, field: str, code: str, languages: tuple[str, ...]) -> RequestError:
        return RequestError(field, code, f"model {self.name} has {', '.join(languages)}")


def _figures_of(quality: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of the bundle itself, without those of its other precisions."""
    return {
        name: value
        for name, value in quality.items()
        if name == "scores" or isinstance(value, int | float)
    }
