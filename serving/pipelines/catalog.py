"""The models that are served, and how a request's model is found."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Protocol

from serving.bundle.manifest import Task
from serving.errors import ModelNotFound, RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.jobs import (
    CompletionDelta,
    CompletionJob,
    Deltas,
    Item,
    Job,
    Result,
    StreamedJob,
)
from serving.pipelines.pivoting import PivotTranslator, route_between
from serving.pipelines.same_language import SameLanguageTranslator
from serving.pipelines.translation.job import Translation, TranslationJob, TranslationStream
from serving.text.languages import is_same_language, match_codes


class Translator(Protocol):
    """A model that translates, or several together."""

    @property
    def card(self) -> ModelCard: ...

    async def run(self, job: TranslationJob) -> Translation: ...

    def stream(self, job: TranslationJob) -> TranslationStream: ...


class Generator(Protocol):
    """A model that completes prompts: a language model, or a translator behind the same
    interface.
    """

    card: ModelCard

    async def run(self, job: CompletionJob) -> list[CompletionDelta]: ...

    def stream(self, job: CompletionJob) -> Deltas: ...


class Model(Protocol):
    """One model, in this process or in another one.

    Raises RequestError for jobs that its task does not include.
    """

    card: ModelCard

    async def run(self, job: Job[Result]) -> Result: ...

    def stream(self, job: StreamedJob[Any, Item]) -> AsyncGenerator[Item, None]:
        """Yield the result in parts. Closing the stream cancels the job."""


_TASK_DESCRIPTIONS = {
    Task.TRANSLATE: "translates",
    Task.GENERATE: "completes prompts",
    Task.EMBED: "makes embeddings",
    Task.CLASSIFY: "classifies texts",
    Task.CLASSIFY_TOKENS: "labels parts of texts",
    Task.FILL_MASK: "fills masks",
}
_TASK_VERBS = {
    Task.TRANSLATE: "translate",
    Task.GENERATE: "complete prompts",
    Task.EMBED: "make embeddings",
    Task.CLASSIFY: "classify texts",
    Task.CLASSIFY_TOKENS: "label parts of texts",
    Task.FILL_MASK: "fill masks",
}


class Catalog:
    """The models of this process; subclasses add models of other processes."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.replace_models(models)

    def replace_models(self, models: Sequence[Model]) -> None:
        """Replace the models of this process."""
        self._models = {model.card.name: model for model in models}

    @property
    def own_cards(self) -> list[ModelCard]:
        return [model.card for model in self._models.values()]

    async def remote_models(self) -> Sequence[Model]:
        """Return the models of other processes."""
        return ()

    async def models(self) -> list[Model]:
        """Return all models, those of this process first. Of two with one name the first one
        counts.
        """
        found = dict(self._models)
        for model in await self.remote_models():
            found.setdefault(model.card.name, model)
        return list(found.values())

    async def translator_cards(self) -> list[ModelCard]:
        """Return the cards of all models that translate."""
        return [model.card for model in await self.models() if model.card.task is Task.TRANSLATE]

    async def get_model(self, name: str, *tasks: Task) -> Model:
        """Return the model of that name. Raises ModelNotFound.

        tasks: RequestError is raised for a model of another task; by default any task is allowed.
        """
        model = self._models.get(name)
        if model is None:
            others = await self.remote_models()
            model = next((other for other in others if other.card.name == name), None)
        if model is None:
            known = dict.fromkeys([*self._models, *(other.card.name for other in others)])
            raise ModelNotFound(name, known)
        if tasks and model.card.task not in tasks:
            does = _TASK_DESCRIPTIONS[model.card.task]
            does = does if model.card.picture is None else "writes about pictures"
            message = f"{does}; it does not {_TASK_VERBS[tasks[0]]}"
            raise RequestError("model", name, message)
        return model

    async def translator(
        self, name: str | None, source: str, target: str, may_pivot: bool = True
    ) -> Translator:
        """Return the result of `translation_model`. If no model translates between the languages,
        return what returns texts as they are where both are the same language; else, if
        `may_pivot`, two models that translate together.
        """
        if is_same_language(source, target):
            return await self._translator_within(name, source, target)
        try:
            return await self.translation_model(name, source, target)
        except RequestError:
            found = await self._pivot(source, target) if may_pivot and name is None else None
            if found is None:
                raise
            return found

    async def translation_model(self, name: str | None, source: str, target: str) -> Model:
        """Return the model of that name, or the first that translates between the languages.

        Raises RequestError and ModelNotFound.
        """
        if name is not None:
            return await self.get_model(name, Task.TRANSLATE)
        if (found := _model_for_pair(self._models.values(), source, target)) is not None:
            return found
        models = await self.models()
        if (found := _model_for_pair(models, source, target)) is not None:
            return found
        cards = [model.card for model in models if model.card.task is Task.TRANSLATE]
        raise _unsupported(cards, source, target)

    async def _translator_within(self, name: str | None, source: str, target: str) -> Translator:
        """Return a model that rewrites texts of one language, else what returns them as they are.

        Raises RequestError for a language that no model here has, and ModelNotFound.
        """
        if name is None:
            models = await self.models()
        else:
            models = [await self.get_model(name, Task.TRANSLATE)]
        if (model := _model_for_pair(models, source, target)) is not None:
            return model
        cards = await self.translator_cards()
        if code_of_language(cards, target) is None:
            raise _unsupported(cards, source, target)
        return SameLanguageTranslator(source, target, name)

    async def _pivot(self, source: str, target: str) -> PivotTranslator | None:
        models = [model for model in await self.models() if model.card.task is Task.TRANSLATE]
        route = route_between([model.card for model in models], source, target)
        return PivotTranslator(route, models) if route else None


def code_of_language(cards: Iterable[ModelCard], code: str) -> str | None:
    """Return a code of the same language in the spelling of the models; None if none has it."""
    codes = dict.fromkeys(
        candidate
        for card in cards
        for candidate in (*card.source_languages, *card.target_languages)
    )
    matches = match_codes(code, tuple(codes)) or [
        candidate for candidate in codes if is_same_language(candidate, code)
    ]
    return next(iter(matches), None)


def _model_for_pair(models: Iterable[Model], source: str, target: str) -> Model | None:
    translators = (model for model in models if model.card.task is Task.TRANSLATE)
    return next((model for model in translators if model.card.translates(source, target)), None)


def _unsupported(cards: Sequence[ModelCard], source: str, target: str) -> RequestError:
    """Return an error that names the languages there are, or the pairs from which the client must
    choose.
    """
    pairs = {
        (own, language)
        for card in cards
        for own in match_codes(source, card.source_languages)
        for language in card.targets_of(own)
    }
    if not pairs:
        sources = {language for card in cards for language in card.source_languages}
        known = ", ".join(sorted(sources)) or "none"
        return RequestError("source", source, f"no such source language here; there are: {known}")
    if meant := sorted(pair for pair in pairs if match_codes(target, pair[1:])):
        known = ", ".join(" to ".join(pair) for pair in meant)
        return RequestError("source", source, f"cannot tell which of these is meant: {known}")
    known = ", ".join(sorted({language for _, language in pairs}))
    return RequestError("target", target, f"not a target language for {source}; there are: {known}")
