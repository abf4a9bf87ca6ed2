"""Translation of texts in several languages: each text by the translator of its language."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.pipelines.catalog import Translator
from serving.pipelines.same_language import SameLanguageTranslator
from serving.pipelines.streams import merge
from serving.pipelines.translation.job import (
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)

NumberedItem = tuple[int, TranslationDelta | Translation]  # with the number of its language group


@dataclass(frozen=True, slots=True)
class LanguageGroup:
    """The texts of one language, by their numbers in the job, and what translates them."""

    translator: Translator
    source: str
    numbers: tuple[int, ...]

    def job(self, job: TranslationJob) -> TranslationJob:
        """Return the job of these texts alone."""
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


class MixedSourceTranslator:
    """Translates texts of several source languages. It has the interface of a `Translator`.

    Its card is that of the first model; limits and defaults of the others may differ.
    """

    def __init__(self, groups: Sequence[LanguageGroup]) -> None:
        with_models = (
            group for group in groups if not isinstance(group.translator, SameLanguageTranslator)
        )
        self.card = next(with_models, groups[0]).translator.card
        self.groups = groups

    async def run(self, job: TranslationJob) -> Translation:
        tasks = [asyncio.create_task(group.translator.run(group.job(job))) for group in self.groups]
        try:
            return _in_order_of_texts(self.groups, await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def stream(self, job: TranslationJob) -> TranslationStream:
        translations: dict[int, Translation] = {}
        streams = [_number_items(n, group.stream(job)) for n, group in enumerate(self.groups)]
        async with aclosing(merge(streams)) as items:
            async for number, item in items:
                if isinstance(item, Translation):
                    translations[number] = item
                else:
                    yield item
        ordered = [translations[number] for number in range(len(self.groups))]
        yield _in_order_of_texts(self.groups, ordered)


async def _number_items(
    number: int, stream: TranslationStream
) -> AsyncGenerator[NumberedItem, None]:
    async with aclosing(stream) as items:
        async for item in items:
            yield number, item


def _in_order_of_texts(
    groups: Sequence[LanguageGroup], translations: Sequence[Translation]
) -> Translation:
    """Return the translations of all groups as one, in the order of the job's texts."""
    by_number = {
        number: renderings
        for group, translation in zip(groups, translations, strict=True)
        for number, renderings in zip(group.numbers, translation.renderings, strict=True)
    }
    return Translation(
        tuple(by_number[number] for number in sorted(by_number)),
        sum(translation.num_source_tokens for translation in translations),
        sum(translation.num_generated_tokens for translation in translations),
    )
