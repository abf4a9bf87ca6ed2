"""Forward jobs to models of other worker groups, over Ray Serve handles.

Every group is a Serve application with one deployment, named DEPLOYMENT. Each group is asked which
models it has, and the answer is kept for a few seconds.
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

from serving.api.http.protocol import ENDS
from serving.deployments.worker_group import DEPLOYMENT
from serving.errors import AttendantError, EngineError, EngineStopped
from serving.observability.request_stats import current_request_stats
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog, Model
from serving.pipelines.jobs import CompletionDelta, Encodings, Item, Job, Result, StreamedJob
from serving.pipelines.transcription.job import Transcription
from serving.pipelines.translation.job import PairScore, Translation

_KEPT_SECONDS = 5.0  # how old the answer of Serve's controller may be
_WAIT_SECONDS = 0.5  # how long a request waits for a newer one before it takes the old answer
_FIRST_WAIT_SECONDS = 5.0  # before the first answer no group is known
_ANSWERING = ("RUNNING", "UPDATING")
_RETRY_SECONDS = 0.02  # a new handle does not know the replicas yet


class Applications:
    """The names of all groups, asked from Serve's controller every few seconds.

    A controller that is busy or gone holds nobody up: the last answer stays in use.
    """

    def __init__(self, ask: Callable[[], list[str]]) -> None:
        self._ask = ask
        self._names: list[str] = []
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def running(self) -> list[str]:
        if self._asking is None and time.monotonic() - self._asked_at > _KEPT_SECONDS:
            self._asking = asyncio.create_task(self._refresh())
        if self._asking is not None:
            seconds = _WAIT_SECONDS if self._names else _FIRST_WAIT_SECONDS
            await asyncio.wait([self._asking], timeout=seconds)
        return self._names

    async def _refresh(self) -> None:
        try:
            with suppress(RayError, RayServeException):
                self._names = await asyncio.to_thread(self._ask)
        finally:
            self._asked_at = time.monotonic()
            self._asking = None


class ServerCatalog(Catalog):
    """The models of this process and those of the other groups."""

    def __init__(
        self, models: Sequence[Model], own_application: str, applications: Applications
    ) -> None:
        super().__init__(models)
        self._own_application = own_application
        self._applications = applications
        self._others: Sequence[RemoteModel] = ()
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def applications_of(self, name: str) -> list[str]:
        """Return the applications that serve models of a name, as a group and its canary do."""
        applications = (
            [self._own_application] if any(card.name == name for card in self.local_cards) else []
        )
        others = await self.remote_models()
        return applications + [other.application for other in others if other.card.name == name]

    def refresh_remote_models(self) -> None:
        """Ask the other groups again when their models are needed next."""
        self._asked_at = float("-inf")

    async def remote_models(self) -> "Sequence[RemoteModel]":
        async with self._asking:
            if time.monotonic() - self._asked_at > _KEPT_SECONDS:
                self._others = await self._ask()
                self._asked_at = time.monotonic()
        return self._others

    async def _ask(self) -> "list[RemoteModel]":
        running = await self._applications.running()
        others = [name for name in running if name != self._own_application]
        handles = [serve.get_deployment_handle(DEPLOYMENT, name) for name in others]
        answers = await asyncio.gather(*map(_cards, handles))
        pairs = zip(handles, answers, strict=True)
        return [RemoteModel(handle, card) for handle, cards in pairs for card in cards]


class RemoteModel:
    """A model of another worker group. It counts tokens for the request that it works for."""

    def __init__(self, handle: DeploymentHandle, card: ModelCard) -> None:
        self.card, self.application = card, handle.app_name
        self._handle = handle

    async def run(self, job: Job[Result]) -> Result:
        answer: Result = await answer_to(self._handle.run.remote(self.card.name, job))
        current_request_stats().add(*_num_tokens(answer))
        return answer

    async def stream(self, job: StreamedJob[Any, Item]) -> AsyncGenerator[Item, None]:
        stats = current_request_stats()
        response = self._handle.options(stream=True).stream.remote(self.card.name, job)
        async with aclosing(_stream_answer(response)) as items:
            async for item in items:
                stats.add(*_num_tokens(item))
                yield item


def _num_tokens(answer: Any) -> tuple[int, int]:
    """Return the numbers of given and of generated tokens of an answer, or of a piece of one."""
    match answer:
        case Translation():
            return answer.num_source_tokens, answer.num_generated_tokens
        case CompletionDelta() if answer.finish_reason:
            return answer.num_prompt_tokens, answer.num_generated_tokens
        case Transcription():
            return answer.num_input_tokens, answer.num_generated_tokens
        case PairScore():
            return 0, len(answer.tokens)
        case Encodings():
            return answer.num_tokens_in_all, 0
        case list() | tuple():
            counts = [_num_tokens(item) for item in answer]
            return sum(num_input for num_input, _ in counts), sum(
                generated for _, generated in counts
            )
    return 0, 0


@contextmanager
def serializable_errors() -> Iterator[None]:
    """Raise unexpected errors as an EngineError with the traceback as a note.

    Ray loses tracebacks between processes, and a library's panic would leave the caller waiting.
    """
    try:
        yield
    except (AttendantError, *ENDS):
        raise
    except BaseException as error:
        failure = EngineError("the worker group that serves this model failed")
        failure.add_note("".join(traceback.format_exception(error)))
        raise failure from None


async def _cards(handle: DeploymentHandle) -> list[ModelCard]:
    """Return the models of a group; none if it does not answer."""

    async def ask() -> list[ModelCard]:
        cards: list[ModelCard] = await handle.cards.remote()
        return cards

    try:
        return await asyncio.wait_for(ask(), _KEPT_SECONDS)
    except (RayError, RayServeException, TimeoutError):
        return []


async def answers_of_all(
    applications: Applications, timeout_seconds: float, method: str
) -> list[Any]:
    """Call a method of every replica of every group; return the answers that come in time."""
    running = await applications.running()
    answers = await asyncio.gather(
        *(_broadcast(name, timeout_seconds, method) for name in running), return_exceptions=True
    )
    groups = (group for group in answers if isinstance(group, list))
    return [answer for group in groups for answer in group if not isinstance(answer, BaseException)]


async def ask_all(
    application: str, timeout_seconds: float, method: str, *arguments: Any
) -> list[Any]:
    """Call a method of every replica of a group; the answers may include errors."""
    while not (answers := await _broadcast(application, timeout_seconds, method, *arguments)):
        await asyncio.sleep(_RETRY_SECONDS)
    return answers


async def _broadcast(
    application: str, timeout_seconds: float, method: str, *arguments: Any
) -> list[Any]:
    handle = serve.get_deployment_handle(DEPLOYMENT, application)
    responses = handle.broadcast(method, *arguments)
    return list(await responses.results_async(timeout_s=timeout_seconds, return_exceptions=True))


def running_applications() -> list[str]:
    """Return the names of all groups, as Serve's controller knows them; waits for its answer."""
    applications = serve.status().applications
    return [name for name, application in applications.items() if _answers(application)]


def _answers(application: ApplicationStatusOverview) -> bool:
    """Return whether a group has replicas that answer, even while its models change."""
    deployment = application.deployments.get(DEPLOYMENT)
    if deployment is None:
        return False
    states = deployment.replica_states.items()
    is_running = application.status is ApplicationStatus.RUNNING
    return is_running or any(count and state.value in _ANSWERING for state, count in states)


async def answer_to(response: Any) -> Any:
    """Return the answer to a call over a handle; cancelling cancels the call."""
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise
    except (RayError, RayServeException) as error:
        raise_local(error)


async def _stream_answer(response: Any) -> AsyncGenerator[Any, None]:
    """Yield the items of a streamed call, which come in batches; closing cancels the call."""
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
    """Raise the error as the other process raised it."""
    cause = error.cause if isinstance(error, RayTaskError) else None
    if isinstance(cause, AttendantError):
        raise cause from None
    if isinstance(error, RayTaskError):
        raise EngineError(f"the worker group that serves this model failed: {cause}") from error
    raise EngineStopped("the worker group that serves this model is not there") from error
