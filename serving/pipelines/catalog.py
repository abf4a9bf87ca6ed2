"""Which models are served, and which of them a request means."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeGuard

from serving.bundle.manifest import Task
from serving.bundle.opening import Bundle
from serving.config import TextLimits
from serving.errors import ModelNotFound, RequestError
from serving.pipelines.engine_port import EnginePort
from serving.pipelines.generation import Deltas, GenerationPipeline
from serving.pipelines.jobs import (
    CompletionJob,
    ModelCard,
    PairScore,
    ScoreJob,
    Translation,
    TranslationJob,
)
from serving.pipelines.translation import TranslationPipeline
from serving.text.tokenizer import Tokenizer


class Translator(Protocol):
    card: ModelCard

    async def translate(self, job: TranslationJob) -> Translation: ...

    async def score(self, job: ScoreJob) -> tuple[PairScore, ...]: ...


class Generator(Protocol):
    card: ModelCard

    def stream(self, job: CompletionJob) -> Deltas: ...


Model = Translator | Generator


class Catalog:
    """The models of this process. Subclasses know of others elsewhere."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = {model.card.name: model for model in models}

    @property
    def own_cards(self) -> list[ModelCard]:
        return [model.card for model in self._models.values()]

    async def elsewhere(self) -> Sequence[Model]:
        return ()

    async def models(self) -> list[Model]:
        """Those of this process first; of two with one name the first counts."""
        found = dict(self._models)
        for model in await self.elsewhere():
            found.setdefault(model.card.name, model)
        return list(found.values())

    async def named(self, name: str) -> Model:
        if name in self._models:
            return self._models[name]
        for model in await self.elsewhere():
            if model.card.name == name:
                return model
        raise ModelNotFound(name)

    async def generator(self, name: str) -> Generator:
        model = await self.named(name)
        if not _is_generator(model):
            raise RequestError("model", name, "translates; it does not complete prompts")
        return model

    async def translator(self, name: str | None, source: str, target: str) -> Translator:
        """The model of that name, or the first that translates between the languages."""
        if name is not None:
            model = await self.named(name)
            if not _is_translator(model):
                raise RequestError("model", name, "does not translate")
            return model
        if (found := _between(self._models.values(), source, target)) is not None:
            return found
        models = await self.models()
        if (found := _between(models, source, target)) is not None:
            return found
        raise _unsupported(filter(_is_translator, models), source, target)


def build_pipeline(bundle: Bundle, engine: EnginePort, limits: TextLimits) -> Model:
    tokenizer = Tokenizer(bundle.tokenizer_path)
    if bundle.manifest.task is Task.TRANSLATE:
        return TranslationPipeline(bundle.manifest, tokenizer, engine, limits)
    return GenerationPipeline(bundle.manifest, tokenizer, engine)


def _is_translator(model: Model) -> TypeGuard[Translator]:
    return model.card.task is Task.TRANSLATE


def _is_generator(model: Model) -> TypeGuard[Generator]:
    return model.card.task is Task.GENERATE


def _between(models: Iterable[Model], source: str, target: str) -> Translator | None:
    translators = filter(_is_translator, models)
    return next((model for model in translators if model.card.translates(source, target)), None)


def _unsupported(translators: Iterable[Translator], source: str, target: str) -> RequestError:
    cards = [translator.card for translator in translators]
    sources = {language for card in cards for language in card.source_languages}
    if source not in sources:
        known = ", ".join(sorted(sources)) or "none"
        return RequestError("source", source, f"no such source language here; there are: {known}")
    targets = {
        language
        for card in cards
        if source in card.source_languages
        for language in card.target_languages
    }
    known = ", ".join(sorted(targets))
    return RequestError("target", target, f"not a target language for {source}; there are: {known}")
