"""Translate the fragments of a document in batches of a few sentences.

Enough batches run at once to fill the engine; each has a low priority, so that requests of people
who wait come first.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace

from serving.errors import OutOfMemory, Overloaded
from serving.pipelines.catalog import Translator
from serving.pipelines.streams import in_order
from serving.pipelines.translation.job import Rendering, TranslationJob

# A batch is a page of text at most: what a kill loses, and what progress is counted in.
_BATCH_CHARACTERS = 1_500
_BATCH_FRAGMENTS = 16
_BATCHES_AT_ONCE = 16
_OUT_OF_MEMORY_SECONDS = 5.0  # until other requests may have ended, whose memory is free then
Batch = Mapping[int, str]  # fragments by their numbers


def split_into_batches(fragments: Batch) -> Iterator[Batch]:
    """Cut fragments into batches of about the same length."""
    batch: dict[int, str] = {}
    length = 0
    for number, text in fragments.items():
        if batch and (length + len(text) > _BATCH_CHARACTERS or len(batch) == _BATCH_FRAGMENTS):
            yield batch
            batch, length = {}, 0
        batch[number] = text
        length += len(text)
    if batch:
        yield batch


async def translate_batches(
    translator: Translator, job: TranslationJob, work: Iterable[Batch], name: str
) -> AsyncGenerator[dict[int, Rendering], None]:
    """Yield the translations of batches in their order, each as soon as those before it are done.

    job: what all batches have in common. name: the beginning of the ids of the requests.
    Raises what the model raises, but waits while it is overloaded or out of memory.
    """

    async def translate(batch: Batch) -> dict[int, Rendering]:
        batch_job = replace(job, request_id=f"{name}-{min(batch)}", texts=tuple(batch.values()))
        return dict(zip(batch, await _translate_patiently(translator, batch_job), strict=True))

    async with aclosing(in_order(translate, work, _BATCHES_AT_ONCE)) as results:
        async for result in results:
            yield result


async def _translate_patiently(translator: Translator, job: TranslationJob) -> list[Rendering]:
    while True:
        try:
            return [best for best, *_ in (await translator.run(job)).renderings]
        except Overloaded as error:
            await asyncio.sleep(error.retry_after_seconds)
        except OutOfMemory:
            await asyncio.sleep(_OUT_OF_MEMORY_SECONDS)
