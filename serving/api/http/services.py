"""What the routes of all protocols use."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from serving.access.key_ring import KeyRing
from serving.access.quota import Quota
from serving.access.rates import Rates
from serving.api.http.authentication import Authenticator
from serving.api.http.middleware import RequestsInProgress
from serving.glossaries.store import GlossaryStore
from serving.jobs.documents import Documents
from serving.jobs.memory_imports import MemoryImports
from serving.jobs.queue import JobQueue
from serving.observability.metrics import Metrics, Reading
from serving.observability.tracing import Tracing
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog
from serving.server_config import AudioLimits, DocumentLimits, TextLimits, WorkerGroup
from serving.storage.opening import default_state_folder, open_state
from serving.storage.state import State
from serving.text.language_identification import LanguageIdentifier
from serving.translation_memory.store import TranslationMemories

_BYTES_PER_CHARACTER = 12  # a character outside the basic plane, escaped in JSON: "\\ud83d\\ude00"
_OTHER_BYTES = 65_536  # of all fields besides the texts


class ModelLoader(Protocol):
    """Loads and unloads models while the server runs."""

    async def load(self, bundle: Path, group: str | None, replaces: bool) -> ModelCard:
        """Return once all replicas of the group serve the bundle. The group is by default the one
        whose model it replaces, else the first.

        replaces: whether it may take the place of a model of its name.
        Raises RequestError for a wrong bundle or group.
        """

    async def unload(self, model: str) -> None:
        """Return once no replica takes requests for the model. Raises RequestError."""


@dataclass(frozen=True)
class Operators:
    """The keys of operators, and what changes the models."""

    keys: KeyRing
    loader: ModelLoader


async def _no_readings() -> list[Reading]:
    return []


def _open_default_state() -> State:
    return open_state(default_state_folder())


@dataclass(frozen=True)
class Services:
    """The parts of a server.

    exposition: returns the text of `/metrics`, of all replicas.
    keys: None admits every request. metrics_need_key: so does `/metrics`.
    write_access: writes a line of the access log; None if it is off.
    operators: None if nobody may load or unload models.
    tracing: None if no spans are exported.
    timeout_seconds: of requests that give none.
    max_wait_seconds: longest time that a request may wait to be read; None is no limit.
    state: where jobs, glossaries, translation memories and quotas are stored.
    recent_metrics: returns readings of the last two minutes, oldest first, see `charted`.
    in_progress: the requests that are ended with the server.
    """

    catalog: Catalog
    limits: TextLimits
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    is_ready: Callable[[], bool]
    keys: KeyRing | None = None
    metrics_need_key: bool = False
    write_access: Callable[[str], None] | None = None
    operators: Operators | None = None
    tracing: Tracing | None = None
    state: State = field(default_factory=_open_default_state)
    identifier: LanguageIdentifier = field(default_factory=LanguageIdentifier)
    document_limits: DocumentLimits = field(default_factory=DocumentLimits)
    audio_limits: AudioLimits = field(default_factory=AudioLimits)
    timeout_seconds: float = WorkerGroup.model_fields["timeout_seconds"].default
    max_wait_seconds: float | None = None
    recent_metrics: Callable[[], Awaitable[list[Reading]]] = _no_readings
    in_progress: RequestsInProgress = field(default_factory=RequestsInProgress)

    @cached_property
    def authenticator(self) -> Authenticator | None:
        return None if self.keys is None else Authenticator(self.keys, self.rates)

    @property
    def max_body_bytes(self) -> int:
        """Return how many bytes a body may have that holds as much text as is allowed."""
        return self.limits.max_characters * _BYTES_PER_CHARACTER + _OTHER_BYTES

    @cached_property
    def jobs(self) -> JobQueue:
        return JobQueue(self.state)

    @cached_property
    def documents(self) -> Documents:
        return Documents(self.jobs, self.catalog, self.document_limits)

    @cached_property
    def memories(self) -> TranslationMemories:
        return TranslationMemories(self.state)

    @cached_property
    def memory_imports(self) -> MemoryImports:
        return MemoryImports(self.jobs, self.memories, self.document_limits)

    @cached_property
    def rates(self) -> Rates:
        return Rates(self.state)

    @cached_property
    def quota(self) -> Quota:
        return Quota(self.state, self.keys)

    @cached_property
    def glossaries(self) -> GlossaryStore:
        return GlossaryStore(self.state)
