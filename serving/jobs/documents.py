"""Documents to translate: received, queued, translated and given out.

A document and the translations of its fragments are stored, so that a restarted server, or another
replica, continues with what is left.
"""

import asyncio
import hmac
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from html import unescape
from itertools import islice
from secrets import token_hex, token_urlsafe
from shutil import copyfileobj
from typing import BinaryIO, ClassVar

from serving.access.key_file import hash_key
from serving.documents.document import Document, Review, ReviewedDocument
from serving.documents.formats.registry import (
    check_review,
    file_extension,
    read_document,
    result_name,
)
from serving.documents.fragment import MARKUP
from serving.documents.translating import split_into_batches, translate_batches
from serving.errors import (
    AttendantError,
    DocumentNotFound,
    DocumentNotReady,
    DocumentsFull,
    DocumentTaken,
    EngineError,
    EngineStopped,
    RequestError,
    StorageError,
    TooLarge,
)
from serving.jobs import table
from serving.jobs.queue import JobQueue, Lease
from serving.jobs.table import JobState, QueuedJob
from serving.pipelines.catalog import Catalog, Translator
from serving.pipelines.decoding import resolve_decoding
from serving.pipelines.pivoting import PivotTranslator
from serving.pipelines.routing import DocumentSources, find_translator
from serving.pipelines.translation.job import GlossaryEntry, MemoryUse, Rendering, TranslationJob
from serving.pipelines.translation.quality import text_score
from serving.requests.request import MAX_TIMEOUT_SECONDS, FinishReason
from serving.server_config import DocumentLimits
from serving.storage.files import COPY_BYTES, enter_in_thread, run_in_thread

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_FETCH_SECONDS = 300.0  # after a kill, a document that was being sent can be fetched again then
_PRIORITY = 1_000  # a higher number is less urgent
_TAG = re.compile("<[^>]*>")
# Fragments are XML. PostgreSQL could not store NUL, and no database half a surrogate pair.
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class DocumentData:
    """What is asked of a document.

    name: of its file. source: language of the text, given or identified.
    others: numbers of the fragments in other languages, by language.
    model: None is the first that translates between the languages.
    glossary: terms with their translations. memory: the id of the translation memory that is used
    from a threshold in percent.
    error: why it was not translated.
    quality_threshold: worse translations are marked for review; None if the quality is not asked
        for. With it results are JSON, of text and score.
    """

    KIND: ClassVar[str] = "document"

    name: str
    source: str
    target: str
    model: str | None = None
    glossary: Mapping[str, str] | None = None
    memory: str | None = None
    memory_threshold: int = 0
    key_hash: str = ""
    num_characters: int = 0
    num_fragments: int = 0
    error: str = ""
    quality_threshold: float | None = None
    others: Mapping[str, Sequence[int]] = field(default_factory=dict)


DocumentJob = QueuedJob[DocumentData]


@dataclass(frozen=True, slots=True)
class Handle:
    """The id of a document, and the key that only its sender knows."""

    id: str
    key: str


class ReceivedDocument:
    """A document that was stored and is not queued yet.

    texts: of its fragments, without codes.
    """

    def __init__(self, name: str) -> None:
        self.id, self.name = token_hex(16), name
        self.texts: Sequence[str] = ()
        self.is_queued = False


class Documents:
    """The documents of a server; also the queue's handler of document jobs.

    owner: the name of the API key that was shown; empty where the server asks for none.
    """

    data = DocumentData
    num_at_once = 2

    def __init__(self, queue: JobQueue, catalog: Catalog, limits: DocumentLimits) -> None:
        self.files = queue.state.files("documents")
        self._queue, self._database = queue, queue.database
        self._catalog, self._limits = catalog, limits

    @asynccontextmanager
    async def receive(
        self, file: BinaryIO, name: str, source: str | None = None, target: str | None = None
    ) -> AsyncIterator[ReceivedDocument]:
        """Store a file. It is removed at the end of the block unless it was queued.

        source, target: the languages of its text and of its translation, if they are known.
        Raises RequestError for a file that is no document, TooLarge, and DocumentsFull.
        """
        file_extension(name)
        document = ReceivedDocument(name)
        try:
            document.texts = await run_in_thread(self._store, document, file, source, target)
            yield document
        finally:
            if not document.is_queued:
                await self._remove_files(document.id)

    async def queue(
        self,
        document: ReceivedDocument,
        owner: str,
        sources: DocumentSources,
        target: str,
        model: str | None = None,
        glossary: Mapping[str, str] | None = None,
        memory: MemoryUse | None = None,
        quality_threshold: float | None = None,
    ) -> Handle:
        """Queue a document for translation. Raises RequestError where no model can, or where the
        format cannot mark translations.
        """
        if quality_threshold is not None:
            check_review(document.name, quality_threshold)
        handle = Handle(document.id, token_urlsafe(32))
        data = DocumentData(
            *(document.name, sources.source, target, model, glossary),
            memory=memory.id if memory else None,
            memory_threshold=memory.threshold if memory else 0,
            key_hash=hash_key(handle.key),
            num_characters=sources.num_billed,
            num_fragments=len(document.texts),
            quality_threshold=quality_threshold,
            others=sources.others,
        )
        for source in (data.source, *data.others):
            await self._translation_job(data, source, owner)
        now = await self._queue.time()
        document.is_queued = True
        await self._queue.add(
            QueuedJob(handle.id, owner, data, now, now + self._limits.hours * 3600)
        )
        return handle

    async def job(self, handle: Handle, owner: str | None) -> DocumentJob:
        """Return the job of a document. Raises DocumentNotFound, also for a wrong key.

        owner: None stands for any.
        """
        job = await self._database.run(table.find, DocumentData, handle.id)
        if job is None or job.has_expired or owner not in (None, job.owner):
            raise DocumentNotFound(handle.id)
        if not hmac.compare_digest(job.data.key_hash, hash_key(handle.key)):
            raise DocumentNotFound(handle.id)
        return job

    async def segments(
        self, handle: Handle, owner: str | None, limit: int
    ) -> list[tuple[str, str | None]]:
        """Return the texts of a document's first fragments without codes, each with its
        translation, or None where there is none yet. Raises DocumentNotFound, also for a wrong key.
        """
        job = await self.job(handle, owner)
        data = job.data
        results = await self._database.run(table.results_after, job.id, -1, False, limit)
        source_file = self.files.reading(job.id, _source_file(data.name))
        try:
            async with enter_in_thread(source_file) as path:
                document = await asyncio.to_thread(
                    read_document, path, data.name, data.source, data.target
                )
        except FileNotFoundError:  # it is being removed
            raise DocumentNotFound(handle.id) from None
        if data.quality_threshold is not None:
            results = {number: json.loads(result)[0] for number, result in results.items()}
        texts = {number: _plain_text(result) for number, result in results.items()}
        fragments = islice(document.fragments, limit)
        return [(_plain_text(text), texts.get(number)) for number, text in enumerate(fragments)]

    async def translated_job(self, handle: Handle, owner: str | None) -> DocumentJob:
        """Return the job of a translated document. Raises DocumentNotReady and EngineError."""
        job = await self.job(handle, owner)
        if job.state is JobState.FAILED:
            raise EngineError(f"the document was not translated: {job.data.error}")
        if job.state is not JobState.COMPLETED:
            raise DocumentNotReady(seconds_remaining(job))
        return job

    async def open_result(self, handle: Handle, owner: str | None) -> tuple[DocumentJob, BinaryIO]:
        """Return the translated document, open for reading. Raises as `translated_job` does."""
        job = await self.translated_job(handle, owner)
        try:
            return job, await run_in_thread(self.files.open, job.id, _result_file(job))
        except FileNotFoundError:  # it is being removed
            raise DocumentNotFound(handle.id) from None

    async def take_result(self, handle: Handle, owner: str | None) -> "TakenResult":
        """Return the translated document, which nobody else can take meanwhile.

        Raises as `translated_job` does, and DocumentTaken.
        """
        job, file = await self.open_result(handle, owner)
        result = TakenResult(self, job, file)
        try:
            is_claimed = await self._database.run(
                table.claim_completed, job.id, result.name, _FETCH_SECONDS
            )
            if not is_claimed:
                raise DocumentTaken
        except BaseException:
            file.close()
            raise
        return result

    async def wait_until_finished(self, handle: Handle, owner: str) -> None:
        """Wait until some replica has translated a document. Raises EngineError."""
        while True:
            with suppress(DocumentNotReady):
                await self.translated_job(handle, owner)
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def remove(self, document: str) -> None:
        """Delete a document; a worker that translates it stops soon."""
        await self._database.run(table.remove, [document])
        await self._remove_files(document)

    async def _remove_files(self, document: str) -> None:
        with suppress(StorageError):  # files without a job are swept away later
            await run_in_thread(self.files.remove, document)

    async def give_back(self, result: "TakenResult") -> None:
        """Let a document be fetched again that was not sent whole."""
        with suppress(StorageError):  # that ends by itself, later
            await self._database.run(table.release, result.job.id, result.name)

    async def run(self, job: DocumentJob, lease: Lease) -> None:
        """Translate a document, or store why it cannot be translated."""
        state, error = JobState.FAILED, ""
        try:
            await lease.hold(self._translate(job, lease))
            state = JobState.COMPLETED
        except (EngineStopped, StorageError, FileNotFoundError):
            if await self._remove_rest(job.id):
                return
            raise
        except AttendantError as failure:
            error = str(failure)
        except Exception as failure:
            error = "internal error"
            logger.error("document %s failed: %r", job.id, failure, exc_info=failure)
        if await lease.enter(job, state, error=error) is None:
            await self._remove_rest(job.id)

    async def _remove_rest(self, document: str) -> bool:
        """Return whether a document was removed meanwhile. What was written of it since then is
        removed, too.
        """
        if await self._database.run(table.find, DocumentData, document) is not None:
            return False
        await self._remove_files(document)
        return True

    async def _translate(self, job: DocumentJob, lease: Lease) -> None:
        """Translate the fragments that have no translation yet, and write the document."""
        source_file = self.files.reading(job.id, _source_file(job.data.name))
        async with enter_in_thread(source_file) as path:
            data = job.data
            languages = data.source, data.target
            document = await asyncio.to_thread(read_document, path, data.name, *languages)
            await self._translate_document(job, lease, document)

    async def _translate_document(self, job: DocumentJob, lease: Lease, document: Document) -> None:
        data = job.data
        done = await self._database.run(table.results, job.id)
        sources = {n: source for source, numbers in data.others.items() for n in numbers}
        translator, _ = await self._translation_job(data, data.source, job.owner)
        num_cut = 0
        for source in (data.source, *data.others):
            remaining = {
                n: text
                for n, text in enumerate(document.fragments)
                if n not in done and sources.get(n, data.source) == source
            }
            num_cut += await self._translate_fragments(job, lease, source, remaining, done)
        if num_cut:
            message = "document %s: %d of its texts ended by their limit of tokens"
            logger.warning(message, job.id, num_cut)
        ordered = [done[number] for number in range(len(done))]
        if data.quality_threshold is not None:
            ordered, scores = map(list, zip(*map(json.loads, ordered), strict=True))
            assert isinstance(document, ReviewedDocument), "its format was checked"
            document.review = Review(scores, data.quality_threshold, translator.card.name)
        async with enter_in_thread(self.files.writing(job.id, _result_file(job))) as target:
            await asyncio.to_thread(document.write, ordered, target, data.target)

    async def _translate_fragments(
        self,
        job: DocumentJob,
        lease: Lease,
        source: str,
        fragments: Mapping[int, str],
        done: dict[int, str],
    ) -> int:
        """Translate fragments of one language, and store the results, also in `done`. Return how
        many ended by their limit of tokens.
        """
        translator, translation_job = await self._translation_job(job.data, source, job.owner)
        work = translate_batches(
            translator, translation_job, split_into_batches(fragments), f"document-{job.id}"
        )
        num_cut = 0
        async with aclosing(work) as results:
            async for result in results:
                num_cut += sum(best.reason is FinishReason.LENGTH for best in result.values())
                texts = {n: _stored_text(best, translation_job) for n, best in result.items()}
                await lease.save(texts)
                done.update(texts)
        return num_cut

    async def _translation_job(
        self, data: DocumentData, source: str, owner: str
    ) -> tuple[Translator, TranslationJob]:
        """Return the model and the job of all batches of the fragments of one language, without
        their texts.

        Raises RequestError where no model translates it, and ModelNotFound.
        """
        translator = await find_translator(self._catalog, data.model, source, data.target)
        decoding = resolve_decoding(
            {},
            translator.card.generation,
            priority=_PRIORITY,
            timeout_seconds=MAX_TIMEOUT_SECONDS,
            share=owner,
        )
        glossary = tuple(
            GlossaryEntry(term, (text,)) for term, text in (data.glossary or {}).items()
        )
        memory = None
        if data.memory is not None:
            memory = MemoryUse(owner, data.memory, data.target, data.memory_threshold)
        job = TranslationJob(
            *("", (), source, data.target, decoding),
            glossary=glossary,
            memory=memory,
            markup=MARKUP,
            protection=True,
            returns_quality=data.quality_threshold is not None,
        )
        if isinstance(translator, PivotTranslator):
            translator.check(job)
        return translator, job

    def _store(
        self, document: ReceivedDocument, file: BinaryIO, source: str | None, target: str | None
    ) -> Sequence[str]:
        """Store a file and return the texts of its fragments. One that is refused is not stored."""
        if self.files.num_bytes() > self._limits.disk_mib * 2**20:
            raise DocumentsFull
        name = document.name
        with self.files.writing(document.id, _source_file(name)) as path:
            with path.open("wb") as copy:
                copyfileobj(file, copy, COPY_BYTES)
            try:
                fragments = read_document(path, name, source, target).fragments
            except RequestError as error:  # the client knows the file by its own name
                raise error.with_value(name) if error.value == path.name else error from None
            texts = [_plain_text(fragment) for fragment in fragments]
            if sum(map(len, texts)) > self._limits.max_characters:
                message = f"has more than {self._limits.max_characters} characters"
                raise TooLarge("file", name, message)
            if not texts:
                raise RequestError("file", name, "has no text to translate")
        return texts


def _plain_text(fragment: str) -> str:
    return unescape(_TAG.sub("", fragment))


def _source_file(name: str) -> str:
    return f"source.{file_extension(name)}"


def _result_file(job: DocumentJob) -> str:
    return f"result.{file_extension(result_name(job.data.name))}"


def _stored_text(best: Rendering, job: TranslationJob) -> str:
    """Return a fragment's translation as it is stored: with its quality, if that is asked for,
    which is 0 for one that ended by its limit of tokens.
    """
    text = _NOT_IN_XML.sub("", best.text)
    if not job.returns_quality:
        return text
    score = 0.0 if best.reason is FinishReason.LENGTH else text_score(best.quality)
    return json.dumps([text, score])


@dataclass(frozen=True)
class TakenResult:
    """A translated document that is being sent, once.

    file: whoever sends it closes it. name: of this fetch.
    """

    documents: Documents
    job: DocumentJob
    file: BinaryIO
    name: str = field(default_factory=lambda: token_urlsafe(8))

    async def mark_sent(self) -> None:
        """Delete the document."""
        await self.documents.remove(self.job.id)

    async def mark_interrupted(self) -> None:
        """Let the document be fetched again."""
        await self.documents.give_back(self)


def seconds_remaining(job: DocumentJob) -> float | None:
    """Estimate how long a document still takes; None if its worker has no result yet."""
    num_own = job.num_results - job.num_results_at_claim
    if job.state is not JobState.QUEUED or job.worker is None or num_own <= 0:
        return None
    seconds_each = (job.read_at - job.claimed_at) / num_own
    return seconds_each * (job.data.num_fragments - job.num_results)
