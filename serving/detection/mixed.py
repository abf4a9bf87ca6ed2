"""Translates texts that are in several languages, each from its own, as one job."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.pipelines.catalog import Translator
from serving.pipelines.streams import merge
from serving.pipelines.translation.job import (
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)

Tagged = tuple[int, TranslationDelta | Translation]


@dataclass(frozen=True, slots=True)
class Part:
    """The texts of one language, by their numbers in the job, and what translates them."""

    translator: Translator
    source: str
    numbers: tuple[int, ...]

    def job(self, job: TranslationJob) -> TranslationJob:
        texts = tuple(job.texts[number] for number in self.numbers)
        request_id = f"{job.request_id}-{self.source}"
        return replace(job, request_id=request_id, source=self.source, texts=texts)

    async def stream(self, job: TranslationJob) -> TranslationStream:
        """Yield what the translator does, with the numbers that texts have in the whole job."""
        async with aclosing(self.translator.stream(self.job(job))) as items:
            async for item in items:
                if isinstance(item, TranslationDelta):
                    item = replace(item, text=self.numbers[item.text])
                yield item


class MixedTranslator:
    """Takes a job with as many texts as its parts have numbers; its own source counts for nothing.

    It has the card of its first part: limits and defaults of the others may differ.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.card = parts[0].translator.card
        self.parts = parts

    async def run(self, job: TranslationJob) -> Translation:
        tasks = [asyncio.create_task(part.translator.run(part.job(job))) for part in self.parts]
        try:
            return _joined(self.parts, await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def stream(self, job: TranslationJob) -> TranslationStream:
        ends: dict[int, Translation] = {}
        streams = [_tagged(number, part.stream(job)) for number, part in enumerate(self.parts)]
        async with aclosing(merge(streams)) as items:
            async for number, item in items:
                if isinstance(item, Translation):
                    ends[number] = item
                else:
                    yield item
        yield _joined(self.parts, [ends[number] for number in range(len(self.parts))])


async def _tagged(number: int, stream: TranslationStream) -> AsyncGenerator[Tagged, None]:
    async with aclosing(stream) as items:
        async for item in items:
            yield number, item


def _joined(parts: Sequence[Part], translations: Sequence[Translation]) -> Translation:
    """Put the translations of all parts together, in the order of the job's texts."""
    by_number = {
        number: rendering
        for part, translation in zip(parts, translations, strict=True)
        for number, rendering in zip(part.numbers, translation.renderings, strict=True)
    }
    return Translation(
        tuple(by_number[number] for number in sorted(by_number)),
        sum(translation.num_source_tokens for translation in translations),
        sum(translation.num_generated_tokens for translation in translations),
    )
