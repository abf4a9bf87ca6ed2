"""The models that are served, and what a model, a translator and a generator are."""

from collections.abc import AsyncGenerator, Collection, Sequence
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
from serving.pipelines.translation.job import Translation, TranslationJob, TranslationStream


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
    Task.TRANSCRIBE: "transcribes speech",
    Task.EMBED: "makes embeddings",
    Task.CLASSIFY: "classifies texts",
    Task.CLASSIFY_TOKENS: "labels parts of texts",
    Task.FILL_MASK: "fills masks",
}
_TASK_VERBS = {
    Task.TRANSLATE: "translate",
    Task.GENERATE: "complete prompts",
    Task.TRANSCRIBE: "transcribe speech",
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
    def local_models(self) -> Collection[Model]:
        """Return the models of this process."""
        return self._models.values()

    @property
    def local_cards(self) -> list[ModelCard]:
        return [model.card for model in self._models.values()]

    async def remote_models(self) -> Sequence[Model]:
        """Return the models of other processes."""
        return ()

    async def models(self) -> list[Model]:
        """Return all models, those of this process first. Of two with one name the first one
        counts.
        """
        models = dict(self._models)
        for model in await self.remote_models():
            models.setdefault(model.card.name, model)
        return list(models.values())

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
            names = dict.fromkeys([*self._models, *(other.card.name for other in others)])
            raise ModelNotFound(name, names)
        if tasks and model.card.task not in tasks:
            description = _TASK_DESCRIPTIONS[model.card.task]
            if model.card.picture is not None:
                description = "writes about pictures"
            message = f"{description}; it does not {_TASK_VERBS[tasks[0]]}"
            raise RequestError("model", name, message)
        return model
