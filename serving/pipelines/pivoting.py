"""Translation by two models where no model has the language pair: pt to en, then en to fr.

Options that need source and target together, such as alignments, are refused by name.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from serving.errors import DeadlineExceeded, RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Translator
from serving.pipelines.decoding import Decoding, resolve_decoding
from serving.pipelines.translation.job import Translation, TranslationJob, TranslationStream

_SHORTEST_SECONDS = 0.001  # of a timeout: no request is answered in less


@dataclass(frozen=True, slots=True)
class PivotRoute:
    """Two models that translate together.

    source, pivot: codes in the spelling of the first model.
    """

    first: ModelCard
    source: str
    pivot: str
    second: ModelCard


class PivotTranslator:
    """Translates with two models, one after the other. It has the interface of a `Translator`.

    pivot: the language between, in the spelling of the first model.
    """

    def __init__(self, route: PivotRoute, models: Iterable[Translator]) -> None:
        by_name = {model.card.name: model for model in models}
        self.pivot = route.pivot
        self.card = _joint_card(route)
        self._source = route.source
        self._first, self._second = by_name[route.first.name], by_name[route.second.name]

    async def run(self, job: TranslationJob) -> Translation:
        started = time.monotonic()
        first = await self._translate_to_pivot(job)
        second = await self._second.run(self._second_job(job, first, started))
        return _with_tokens_of_both(first, second)

    async def stream(self, job: TranslationJob) -> TranslationStream:
        """Stream the second translation; the first must be complete before it starts."""
        started = time.monotonic()
        first = await self._translate_to_pivot(job)
        second = self._second.stream(self._second_job(job, first, started))
        async with aclosing(second) as items:
            async for item in items:
                yield _with_tokens_of_both(first, item) if isinstance(item, Translation) else item

    async def _translate_to_pivot(self, job: TranslationJob) -> Translation:
        """Translate into the pivot language without alternatives and without sampling; by beam
        search if the job uses it. Raises as `check`.
        """
        self.check(job)
        return await self._first.run(
            replace(
                job,
                request_id=f"{job.request_id}-{self.pivot}",
                source=self._source,
                target=self.pivot,
                decoding=_first_decoding(job.decoding, self._first.card),
                num_alternatives=0,
            )
        )

    def _second_job(
        self, job: TranslationJob, first: Translation, started: float
    ) -> TranslationJob:
        decoding = job.decoding
        if decoding.timeout_seconds is not None:
            remaining_seconds = decoding.timeout_seconds - (time.monotonic() - started)
            if remaining_seconds < _SHORTEST_SECONDS:
                raise DeadlineExceeded(decoding.timeout_seconds)
            decoding = replace(decoding, timeout_seconds=remaining_seconds)
        return replace(job, texts=first.texts, source=self.pivot, decoding=decoding)

    def check(self, job: TranslationJob) -> None:
        """Raise RequestError for options that two models cannot fulfil."""
        for field, value in _options_for_one_model(job):
            message = (
                f"needs one model that translates this pair; here it takes two, "
                f"{self._first.card.name} and {self._second.card.name}, by way of {self.pivot}"
            )
            raise RequestError(field, value, message)


def _joint_card(route: PivotRoute) -> ModelCard:
    """Return the card of both models together, with the defaults of the second."""
    first, second = route.first, route.second
    return replace(
        second,
        name=f"{first.name}+{second.name}",
        source_languages=first.source_languages,
        max_target_tokens=min(first.max_target_tokens, second.max_target_tokens),
        num_attention_heads=min(first.num_attention_heads, second.num_attention_heads),
        plan=None,
        text="",
        domain=first.domain or second.domain,
    )


def _first_decoding(decoding: Decoding, card: ModelCard) -> Decoding:
    """Return the first model's recommended decoding without sampling, and with the job's beam
    search if it has one.
    """
    recommended = resolve_decoding(
        {"temperature": 0.0},
        card.generation,
        priority=decoding.priority,
        timeout_seconds=decoding.timeout_seconds,
        share=decoding.share,
    )
    beam = decoding.beam or recommended.beam
    return replace(recommended, beam=beam and replace(beam, num_hypotheses=1))


def _options_for_one_model(job: TranslationJob) -> Iterator[tuple[str, object]]:
    """Yield the options of a job that need a single model."""
    options: dict[str, object] = {
        "alignments": job.returns_alignments,
        "return_attention": job.returns_attention or len(job.attention_queries),
        "return_scores": job.returns_scores,
        "quality": job.returns_quality,
        "target_prefix": job.target_prefix,
        "glossary": len(job.glossary),
        "translation_memory_id": job.memory and job.memory.id,
    }
    return ((field, value) for field, value in options.items() if value)


def _with_tokens_of_both(first: Translation, second: Translation) -> Translation:
    """Return the second translation with the token counts of both."""
    return replace(
        second,
        num_source_tokens=first.num_source_tokens + second.num_source_tokens,
        num_generated_tokens=first.num_generated_tokens + second.num_generated_tokens,
    )
