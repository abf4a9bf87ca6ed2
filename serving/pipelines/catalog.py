"""Keeps the models that are served, and finds the one that a request means."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeGuard

from serving.bundle.manifest import Task
from serving.errors import ModelNotFound, RequestError
from serving.parameters import TokenIds
from serving.pipelines.cards import ModelCard
from serving.pipelines.jobs import (
    CompletionJob,
    Deltas,
    EncodeJob,
    Encodings,
    TokenizedText,
    TokenizeJob,
)
from serving.pipelines.pivoting import PivotTranslator, route_between
from serving.pipelines.translation.job import (
    PairScore,
    ScoreJob,
    Translation,
    TranslationJob,
    TranslationStream,
)
from serving.text.languages import matching


class Tokenizing(Protocol):
    """Shows its tokens."""

    async def tokenize(self, job: TokenizeJob) -> TokenizedText: ...

    async def detokenize(self, token_ids: TokenIds) -> str: ...


class Translator(Protocol):
    """Translates: one model, or several that together do."""

    @property
    def card(self) -> ModelCard: ...

    async def translate(self, job: TranslationJob) -> Translation: ...

    def stream(self, job: TranslationJob) -> TranslationStream: ...


class Scorer(Translator, Tokenizing, Protocol):
    """Translates as one model, so it can tell how likely given translations are."""

    card: ModelCard

    async def score(self, job: ScoreJob) -> tuple[PairScore, ...]: ...


class Generator(Protocol):
    """Completes prompts."""

    card: ModelCard

    def stream(self, job: CompletionJob) -> Deltas: ...


class LanguageModel(Generator, Tokenizing, Protocol):
    """Generates as one model, and shows its tokens."""


class TextEncoder(Tokenizing, Protocol):
    """Gives each text a vector: an embedding, or scores of labels."""

    card: ModelCard

    async def encode(self, job: EncodeJob) -> Encodings: ...


Model = Scorer | LanguageModel | TextEncoder

_DOES = {
    Task.TRANSLATE: "translates",
    Task.GENERATE: "completes prompts",
    Task.EMBED: "makes embeddings",
    Task.CLASSIFY: "classifies texts",
}
_ASKED_TO = {
    Task.TRANSLATE: "translate",
    Task.GENERATE: "complete prompts",
    Task.EMBED: "make embeddings",
    Task.CLASSIFY: "classify texts",
}


class Catalog:
    """Holds the models of this process; subclasses know of others elsewhere."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.hold(models)

    def hold(self, models: Sequence[Model]) -> None:
        """Have these models in this process from now on, and no others."""
        self._models = {model.card.name: model for model in models}

    @property
    def own_cards(self) -> list[ModelCard]:
        return [model.card for model in self._models.values()]

    async def elsewhere(self) -> Sequence[Model]:
        return ()

    async def models(self) -> list[Model]:
        """Return all models, those of this process first; of two with one name the first counts."""
        found = dict(self._models)
        for model in await self.elsewhere():
            found.setdefault(model.card.name, model)
        return list(found.values())

    async def translator_cards(self) -> list[ModelCard]:
        """Return the cards of all models that translate."""
        return [model.card for model in await self.models() if _is_translator(model)]

    async def named(self, name: str) -> Model:
        if name in self._models:
            return self._models[name]
        for model in await self.elsewhere():
            if model.card.name == name:
                return model
        raise ModelNotFound(name)

    async def generator(self, name: str) -> LanguageModel:
        model = await self.named(name)
        if not _is_generator(model):
            raise _other_task(model, Task.GENERATE)
        return model

    async def encoder(self, name: str, *tasks: Task) -> TextEncoder:
        """Return the model of that name, if it is for one of these tasks."""
        model = await self.named(name)
        if not _is_encoder(model) or model.card.task not in tasks:
            raise _other_task(model, tasks[0])
        return model

    async def translator(
        self, name: str | None, source: str, target: str, may_pivot: bool = True
    ) -> Translator:
        """Return the model of that name, or the first that translates between the languages; where
        none does and it may be so, two that do together.
        """
        try:
            return await self.scorer(name, source, target)
        except RequestError:
            found = await self._pivot(source, target) if may_pivot and name is None else None
            if found is None:
                raise
            return found

    async def scorer(self, name: str | None, source: str, target: str) -> Scorer:
        """Return the model of that name, or the first that translates between the languages."""
        if name is not None:
            return await self._translating(name)
        if (found := _between(self._models.values(), source, target)) is not None:
            return found
        models = await self.models()
        if (found := _between(models, source, target)) is not None:
            return found
        cards = [model.card for model in models if _is_translator(model)]
        raise _unsupported(cards, source, target)

    async def _pivot(self, source: str, target: str) -> PivotTranslator | None:
        translators = list(filter(_is_translator, await self.models()))
        route = route_between([model.card for model in translators], source, target)
        return PivotTranslator(route, translators) if route else None

    async def _translating(self, name: str) -> Scorer:
        model = await self.named(name)
        if not _is_translator(model):
            raise _other_task(model, Task.TRANSLATE)
        return model


def _is_translator(model: Model) -> TypeGuard[Scorer]:
    return model.card.task is Task.TRANSLATE


def _is_generator(model: Model) -> TypeGuard[LanguageModel]:
    return model.card.task is Task.GENERATE


def _is_encoder(model: Model) -> TypeGuard[TextEncoder]:
    return model.card.task.only_encodes


def _other_task(model: Model, task: Task) -> RequestError:
    message = f"{_DOES[model.card.task]}; it does not {_ASKED_TO[task]}"
    return RequestError("model", model.card.name, message)


def _between(models: Iterable[Model], source: str, target: str) -> Scorer | None:
    translators = filter(_is_translator, models)
    return next((model for model in translators if model.card.translates(source, target)), None)


def _unsupported(cards: Sequence[ModelCard], source: str, target: str) -> RequestError:
    """Say which languages there are: no model has the pair, or none has it only once."""
    pairs = {
        (own, language)
        for card in cards
        for own in matching(source, card.source_languages)
        for language in card.targets_of(own)
    }
    if not pairs:
        sources = {language for card in cards for language in card.source_languages}
        known = ", ".join(sorted(sources)) or "none"
        return RequestError("source", source, f"no such source language here; there are: {known}")
    if meant := sorted(pair for pair in pairs if matching(target, pair[1:])):
        known = ", ".join(" to ".join(pair) for pair in meant)
        return RequestError("source", source, f"cannot tell which of these is meant: {known}")
    known = ", ".join(sorted({language for _, language in pairs}))
    return RequestError("target", target, f"not a target language for {source}; there are: {known}")
