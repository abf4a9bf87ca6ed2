"""Chooses what translates the texts of a request, whoever says what language they are in."""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.detection.identify import Guess
from serving.detection.mixed import MixedTranslator, Part
from serving.detection.source import KnowsLanguages, is_told, readable, sources_of
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Translator
from serving.pipelines.pivoting import PivotTranslator
from serving.pipelines.translation.job import Translation, TranslationJob, TranslationStream


@dataclass(frozen=True, slots=True)
class Chosen:
    """Translates the texts of a request, and says how; it is a `Translator`.

    translator: takes a job with these texts, whose source may be what the client has said.
    sources: the language of each text, with confidence 1 where the client has said it.
    pivots: the language that each text passes through; None of those that need one model.
    """

    translator: Translator
    sources: tuple[Guess, ...]
    pivots: tuple[str | None, ...]

    @property
    def card(self) -> ModelCard:
        return self.translator.card

    async def run(self, job: TranslationJob) -> Translation:
        return await self.translator.run(job)

    def stream(self, job: TranslationJob) -> TranslationStream:
        return self.translator.stream(job)


async def chosen_translator(
    services: KnowsLanguages,
    texts: Sequence[str],
    source: str | None,
    target: str,
    model: str | None = None,
    may_pivot: bool = True,
) -> Chosen:
    """Choose by languages, or take the model of that name. Raises RequestError and ModelNotFound.

    source: None or "auto" is identified, text by text.
    may_pivot: two models may do what no single one does.
    """
    sources = await sources_of(services, texts, source, target, model)
    codes = list(dict.fromkeys(guess.language for guess in sources))
    if not codes:
        codes = [source] if is_told(source) else await readable(services.catalog, target, model)
    found = {
        code: await services.catalog.translator(model, code, target, may_pivot)
        for code in codes[: max(len(sources), 1)]
    }
    pivots = tuple(_pivot(found[guess.language]) for guess in sources)
    if is_told(source):
        return Chosen(found[source], tuple(sources), pivots)
    parts = [Part(found[code], code, _numbers(sources, code)) for code in found]
    return Chosen(MixedTranslator(parts), tuple(sources), pivots)


def _pivot(translator: Translator) -> str | None:
    return translator.pivot if isinstance(translator, PivotTranslator) else None


def _numbers(sources: Sequence[Guess], code: str) -> tuple[int, ...]:
    return tuple(number for number, guess in enumerate(sources) if guess.language == code)
