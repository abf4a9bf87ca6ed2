"""Translates the fragments of a document: many at once, and after whatever else is asked for.

A document is translated in batches of a few sentences. So many of them are at work that the engine
is full, and each is urgent the less, so that requests of people who wait pass them.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.documents.fragment import MARKUP
from serving.documents.tables import Wanted
from serving.errors import OutOfMemory, Overloaded
from serving.pipelines.catalog import Catalog, Translator
from serving.pipelines.decoding import applicable, decoding_of
from serving.pipelines.streams import in_order
from serving.pipelines.translation.job import GlossaryEntry, TranslationJob
from serving.request import MAX_TIMEOUT_SECONDS

_BATCH_CHARACTERS = 1_500
_BATCH_FRAGMENTS = 16
_BATCHES_AT_WORK = 16
_PRIORITY = 1_000  # a higher number is less urgent
_OUT_OF_MEMORY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Holds fragments by their numbers."""

    texts: Mapping[int, str]


def batches(texts: Mapping[int, str]) -> Iterator[Batch]:
    """Cut fragments into batches of about the same length."""
    held: dict[int, str] = {}
    length = 0
    for number, text in texts.items():
        if held and (length + len(text) > _BATCH_CHARACTERS or len(held) == _BATCH_FRAGMENTS):
            yield Batch(held)
            held, length = {}, 0
        held[number] = text
        length += len(text)
    if held:
        yield Batch(held)


async def job_of(catalog: Catalog, wanted: Wanted) -> tuple[Translator, TranslationJob]:
    """Find the model for a document, and make the job of all its batches, but for the texts.

    Raises RequestError where no model translates it, and ModelNotFound.
    """
    translator = await catalog.translator(wanted.model, wanted.source, wanted.target)
    decoding = decoding_of(
        applicable(translator.card.generation, {}),
        priority=_PRIORITY,
        timeout_seconds=MAX_TIMEOUT_SECONDS,
        share=wanted.owner,
    )
    glossary = tuple(
        GlossaryEntry(term, (translation,)) for term, translation in (wanted.glossary or {}).items()
    )
    job = TranslationJob(
        "",
        (),
        wanted.source,
        wanted.target,
        decoding,
        glossary=glossary,
        markup=MARKUP,
        protection=True,
    )
    return translator, job


async def translated(
    translator: Translator, job: TranslationJob, work: Iterable[Batch], name: str
) -> AsyncGenerator[dict[int, str], None]:
    """Yield the translations of batches, in their order, each as soon as those before it are there.

    name: what the requests are called by. Raises what the model does, but waits where it is full.
    """

    async def translate(batch: Batch) -> dict[int, str]:
        first = min(batch.texts)
        own = replace(job, request_id=f"{name}-{first}", texts=tuple(batch.texts.values()))
        return dict(zip(batch.texts, await _patiently(translator, own), strict=True))

    async with aclosing(in_order(translate, work, _BATCHES_AT_WORK)) as results:
        async for result in results:
            yield result


async def _patiently(translator: Translator, job: TranslationJob) -> tuple[str, ...]:
    """Ask until the model takes the job: nobody waits for a document as for an answer."""
    while True:
        try:
            return (await translator.run(job)).texts
        except Overloaded as error:
            await asyncio.sleep(error.retry_after_seconds)
        except OutOfMemory:
            await asyncio.sleep(_OUT_OF_MEMORY_SECONDS)
