"""Models of other worker groups: a request that lands here is forwarded over a Serve handle.

Every group is a Serve application with one deployment, named DEPLOYMENT; which models it has is
asked of it, and remembered for a while.
"""

import asyncio
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any, NoReturn

from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview

from serving.access.account import current_account
from serving.api.http.error_responses import ENDS
from serving.bundle.manifest import Task
from serving.deployments.metrics import Exposed
from serving.errors import AttendantError, EngineError, EngineStopped
from serving.parameters import TokenIds
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog, Model
from serving.pipelines.jobs import (
    CompletionJob,
    Deltas,
    EncodeJob,
    Encodings,
    TokenizedText,
    TokenizeJob,
)
from serving.pipelines.translation.job import (
    PairScore,
    ScoreJob,
    Translation,
    TranslationJob,
    TranslationStream,
)

DEPLOYMENT = "attendant"
_REMEMBERED_SECONDS = 5.0
_PATIENCE_SECONDS = 0.5
_FIRST_PATIENCE_SECONDS = 5.0  # as long as nothing is known, every group would be unknown
_ANSWERING = ("RUNNING", "UPDATING")
_UNKNOWN_SECONDS = 0.02  # a new handle does not know the replicas yet, and asks those that it knows


class Applications:
    """Remembers the names of all groups. Serve's controller is asked now and then, and not waited
    for where it is busy or gone.
    """

    def __init__(self, ask: Callable[[], list[str]]) -> None:
        self._ask = ask
        self._known: list[str] = []
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def running(self) -> list[str]:
        if self._asking is None and time.monotonic() - self._asked_at > _REMEMBERED_SECONDS:
            self._asking = asyncio.create_task(self._refresh())
        if self._asking is not None:
            patience = _PATIENCE_SECONDS if self._known else _FIRST_PATIENCE_SECONDS
            await asyncio.wait([self._asking], timeout=patience)
        return self._known

    async def _refresh(self) -> None:
        try:
            with suppress(RayError, RayServeException):
                self._known = await asyncio.to_thread(self._ask)
        finally:
            self._asked_at = time.monotonic()
            self._asking = None


class WideCatalog(Catalog):
    """Knows the models of this process and those of the other groups."""

    def __init__(
        self, models: Sequence[Model], own_application: str, applications: Applications
    ) -> None:
        super().__init__(models)
        self._own_application = own_application
        self._applications = applications
        self._others: Sequence[Remote] = ()
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def application_of(self, name: str) -> str:
        """Return the application that serves a model. Raises ModelNotFound."""
        model = await self.named(name)
        return model.application if isinstance(model, Remote) else self._own_application

    def look_again(self) -> None:
        """Forget what the other groups have."""
        self._asked_at = float("-inf")

    async def elsewhere(self) -> Sequence[Model]:
        async with self._asking:
            if time.monotonic() - self._asked_at > _REMEMBERED_SECONDS:
                self._others = await self._ask()
                self._asked_at = time.monotonic()
        return self._others

    async def _ask(self) -> "list[Remote]":
        running = await self._applications.running()
        others = [name for name in running if name != self._own_application]
        handles = [serve.get_deployment_handle(DEPLOYMENT, name) for name in others]
        answers = await asyncio.gather(*map(_cards, handles))
        pairs = zip(handles, answers, strict=True)
        return [_remote(handle, card) for handle, cards in pairs for card in cards]


class RemoteModel:
    """Has what all models have."""

    def __init__(self, handle: DeploymentHandle, card: ModelCard) -> None:
        self.card, self.application = card, handle.app_name
        self._handle = handle

    async def tokenize(self, job: TokenizeJob) -> TokenizedText:
        response = self._handle.tokenize.remote(self.card.name, job)
        found: TokenizedText = await answer_to(response)
        return found

    async def detokenize(self, token_ids: TokenIds) -> str:
        response = self._handle.detokenize.remote(self.card.name, token_ids)
        text: str = await answer_to(response)
        return text


class RemoteTranslator(RemoteModel):
    """Translates over there."""

    async def translate(self, job: TranslationJob) -> Translation:
        response = self._handle.translate.remote(self.card.name, job)
        translation: Translation = await answer_to(response)
        current_account().add(translation.num_source_tokens, translation.num_generated_tokens)
        return translation

    async def stream(self, job: TranslationJob) -> TranslationStream:
        account = current_account()
        response = self._handle.options(stream=True).stream_translation.remote(self.card.name, job)
        async with aclosing(_streamed(response)) as items:
            async for item in items:
                if isinstance(item, Translation):
                    account.add(item.num_source_tokens, item.num_generated_tokens)
                yield item

    async def score(self, job: ScoreJob) -> tuple[PairScore, ...]:
        response = self._handle.score.remote(self.card.name, job)
        scores: tuple[PairScore, ...] = await answer_to(response)
        current_account().add(0, sum(len(score.tokens) for score in scores))
        return scores


class RemoteGenerator(RemoteModel):
    """Completes over there."""

    async def stream(self, job: CompletionJob) -> Deltas:
        account = current_account()
        response = self._handle.options(stream=True).stream.remote(self.card.name, job)
        async with aclosing(_streamed(response)) as deltas:
            async for delta in deltas:
                if delta.finish_reason:
                    account.add(delta.num_prompt_tokens, delta.num_generated_tokens)
                yield delta


class RemoteEncoder(RemoteModel):
    """Encodes over there."""

    async def encode(self, job: EncodeJob) -> Encodings:
        response = self._handle.encode.remote(self.card.name, job)
        encodings: Encodings = await answer_to(response)
        current_account().add(encodings.num_tokens_in_all, 0)
        return encodings


Remote = RemoteTranslator | RemoteGenerator | RemoteEncoder


@contextmanager
def failing_from_afar() -> Iterator[None]:
    """Turn an error that nobody expected into a form that crosses to the replica that asked: Ray
    loses tracebacks on the way, and a call that ends in a library's panic never ends for who waits
    for its answer.
    """
    try:
        yield
    except (AttendantError, *ENDS):
        raise
    except BaseException as error:
        failure = EngineError("the worker group that serves this model failed")
        failure.add_note("".join(traceback.format_exception(error)))
        raise failure from None


def _remote(handle: DeploymentHandle, card: ModelCard) -> Remote:
    if card.task is Task.TRANSLATE:
        return RemoteTranslator(handle, card)
    if card.task.only_encodes:
        return RemoteEncoder(handle, card)
    return RemoteGenerator(handle, card)


async def _cards(handle: DeploymentHandle) -> list[ModelCard]:
    """Ask a group for its models; none if it does not answer."""
    try:
        cards: list[ModelCard] = await asyncio.wait_for(_answer(handle), _REMEMBERED_SECONDS)
    except (RayError, RayServeException, TimeoutError):
        return []
    return cards


async def all_expositions(applications: Applications, timeout_seconds: float) -> list[Exposed]:
    """Collect the metrics of every replica of every group that answers in time."""
    running = await applications.running()
    handles = [serve.get_deployment_handle(DEPLOYMENT, name) for name in running]
    answers = await asyncio.gather(
        *(_broadcast(handle, timeout_seconds) for handle in handles), return_exceptions=True
    )
    return [each for group in answers if isinstance(group, list) for each in group]


async def _broadcast(handle: DeploymentHandle, timeout_seconds: float) -> list[Exposed]:
    responses = handle.broadcast("own_exposition")
    answers = await responses.results_async(timeout_s=timeout_seconds, return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, Exposed)]


async def ask_all(
    application: str, timeout_seconds: float, method: str, *arguments: Any
) -> list[Any]:
    """Call a method of every replica of a group; among the answers are the errors of some."""
    handle = serve.get_deployment_handle(DEPLOYMENT, application)
    while True:
        responses = handle.broadcast(method, *arguments)
        answers = await responses.results_async(timeout_s=timeout_seconds, return_exceptions=True)
        if answers:
            return list(answers)
        await asyncio.sleep(_UNKNOWN_SECONDS)


async def _answer(handle: DeploymentHandle) -> Any:
    return await handle.cards.remote()


def running_applications() -> list[str]:
    """Ask Serve's controller for the names of all groups, and wait for it."""
    applications = serve.status().applications
    return [name for name, application in applications.items() if _answers(application)]


def _answers(application: ApplicationStatusOverview) -> bool:
    """Tell whether a group has replicas that answer: while models come and go it is not RUNNING."""
    deployment = application.deployments.get(DEPLOYMENT)
    if deployment is None:
        return False
    states = deployment.replica_states.items()
    is_running = application.status is ApplicationStatus.RUNNING
    return is_running or any(count and state.value in _ANSWERING for state, count in states)


async def answer_to(response: Any) -> Any:
    """Ask over a handle. Whoever stops waiting cancels."""
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise
    except (RayError, RayServeException) as error:
        raise_local(error)


async def _streamed(response: Any) -> AsyncGenerator[Any, None]:
    """Yield the items of a stream over a handle, which comes in batches. Whoever closes it before
    its end cancels.
    """
    has_ended = False
    try:
        async for batch in response:
            for item in batch:
                yield item
        has_ended = True
    except (RayError, RayServeException) as error:
        has_ended = True
        raise_local(error)
    finally:
        if not has_ended:
            response.cancel()


def raise_local(error: Exception) -> NoReturn:
    """Return the error as it was raised over there."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, AttendantError):
        raise cause from None
    if isinstance(error, RayTaskError):
        raise EngineError(f"the worker group that serves this model failed: {cause}") from error
    raise EngineStopped("the worker group that serves this model is not there") from error
