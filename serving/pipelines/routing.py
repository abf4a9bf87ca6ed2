"""Choose what translates between two languages: one model, two models by way of a pivot language,
or none, where a text is in the target language already; and which languages can be translated.

If several pairs of models have a pivot between two languages, one through English is used; else the
one whose first model, then pivot language, then second model is listed first.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from serving.bundle.manifest import Task
from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog, Model, Translator
from serving.pipelines.mixed_sources import LanguageGroup, MixedSourceTranslator
from serving.pipelines.pivoting import PivotRoute, PivotTranslator
from serving.pipelines.same_language import SameLanguageTranslator
from serving.pipelines.translation.job import (
    MemoryUse,
    Translation,
    TranslationJob,
    TranslationStream,
)
from serving.text.language_identification import (
    AUTO,
    Detection,
    LanguageIdentifier,
    SourceDetector,
    is_explicit,
)
from serving.text.languages import UNDETERMINED, is_same_language, match_codes, primary_language

_PREFERRED_PIVOT = "en"


class RoutingServices(Protocol):
    """The parts of a server that routing needs; `Services` has them."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def identifier(self) -> LanguageIdentifier: ...


# A translator for two languages


async def find_translator(
    catalog: Catalog, name: str | None, source: str, target: str, may_pivot: bool = True
) -> Translator:
    """Return the result of `find_translation_model`. If no model translates between the languages,
    return what returns texts as they are where both are the same language; else, if `may_pivot`,
    two models that translate together.

    Raises RequestError and ModelNotFound.
    """
    if is_same_language(source, target):
        return await _find_within_language(catalog, name, source, target)
    try:
        return await find_translation_model(catalog, name, source, target)
    except RequestError:
        if not may_pivot or name is not None:
            raise
        models = [model for model in await catalog.models() if model.card.task is Task.TRANSLATE]
        route = find_pivot_route([model.card for model in models], source, target)
        if route is None:
            raise
        return PivotTranslator(route, models)


async def find_translation_model(
    catalog: Catalog, name: str | None, source: str, target: str
) -> Model:
    """Return the model of that name, or the first that translates between the languages.

    Raises RequestError and ModelNotFound.
    """
    if name is not None:
        return await catalog.get_model(name, Task.TRANSLATE)
    if (model := _first_for_pair(catalog.local_models, source, target)) is not None:
        return model
    models = await catalog.models()
    if (model := _first_for_pair(models, source, target)) is not None:
        return model
    cards = [model.card for model in models if model.card.task is Task.TRANSLATE]
    raise _unsupported_pair(cards, source, target)


async def _find_within_language(
    catalog: Catalog, name: str | None, source: str, target: str
) -> Translator:
    """Return a model that rewrites texts of one language, else what returns them as they are.

    Raises RequestError for a language that no model here has, and ModelNotFound.
    """
    if name is None:
        models = await catalog.models()
    else:
        models = [await catalog.get_model(name, Task.TRANSLATE)]
    if (model := _first_for_pair(models, source, target)) is not None:
        return model
    cards = await catalog.translator_cards()
    if _code_in_models(cards, target) is None:
        raise _unsupported_pair(cards, source, target)
    return SameLanguageTranslator(source, target, name)


def _first_for_pair(models: Iterable[Model], source: str, target: str) -> Model | None:
    for model in models:
        if model.card.task is Task.TRANSLATE and model.card.translates(source, target):
            return model
    return None


def _unsupported_pair(cards: Sequence[ModelCard], source: str, target: str) -> RequestError:
    """Return an error that names the languages there are, or the pairs from which the client must
    choose.
    """
    pairs = {
        (code, language)
        for card in cards
        for code in match_codes(source, card.source_languages)
        for language in card.targets_of(code)
    }
    if not pairs:
        sources = {language for card in cards for language in card.source_languages}
        names = ", ".join(sorted(sources)) or "none"
        return RequestError("source", source, f"no such source language here; there are: {names}")
    if meant := sorted(pair for pair in pairs if match_codes(target, pair[1:])):
        names = ", ".join(" to ".join(pair) for pair in meant)
        return RequestError("source", source, f"cannot tell which of these is meant: {names}")
    names = ", ".join(sorted({language for _, language in pairs}))
    return RequestError("target", target, f"not a target language for {source}; there are: {names}")


def _code_in_models(cards: Iterable[ModelCard], code: str) -> str | None:
    """Return a code of the same language in the spelling of the models; None if none has it."""
    codes = dict.fromkeys(
        candidate
        for card in cards
        for candidate in (*card.source_languages, *card.target_languages)
    )
    matches = match_codes(code, tuple(codes)) or [
        candidate for candidate in codes if is_same_language(candidate, code)
    ]
    return next(iter(matches), None)


# The languages that one model or two can translate


def find_pivot_route(cards: Sequence[ModelCard], source: str, target: str) -> PivotRoute | None:
    """Return the route from source to target; None if there is none, or if one model has the pair
    in several variants, from which the client must choose.
    """
    if _has_pair(cards, source, target):
        return None
    routes = list(_pivot_routes(cards, source, target))
    preferred = (route for route in routes if primary_language(route.pivot) == _PREFERRED_PIVOT)
    return next(preferred, next(iter(routes), None))


def _has_pair(cards: Sequence[ModelCard], source: str, target: str) -> bool:
    return any(
        match_codes(target, card.targets_of(code))
        for card in cards
        for code in match_codes(source, card.source_languages)
    )


def _pivot_routes(cards: Sequence[ModelCard], source: str, target: str) -> Iterator[PivotRoute]:
    ends = {primary_language(source), primary_language(target)}
    if len(ends) < 2:
        return
    for first in cards:
        codes = match_codes(source, first.source_languages)
        pivots = first.targets_of(codes[0]) if len(codes) == 1 else ()
        for pivot in pivots:
            if primary_language(pivot) not in ends:
                seconds = (card for card in cards if card.translates(pivot, target))
                yield from (PivotRoute(first, codes[0], pivot, second) for second in seconds)


def is_reached(cards: Sequence[ModelCard], source: str, target: str) -> bool:
    """Return whether one model, or two, translate the pair."""
    is_direct = any(card.translates(source, target) for card in cards)
    return is_direct or find_pivot_route(cards, source, target) is not None


def sources_for(cards: Sequence[ModelCard], target: str | None) -> list[str]:
    """Return the languages that can be translated into the target; without a target, all source
    languages.
    """
    sources = dict.fromkeys(code for card in cards for code in card.source_languages)
    return [code for code in sources if target is None or is_reached(cards, code, target)]


def targets_by_source(cards: Sequence[ModelCard]) -> dict[str, set[str]]:
    """Return the languages into which each language can be translated, by one model or by two. Of
    several codes for one language only one is returned.
    """
    direct: dict[str, set[str]] = {}
    for card in cards:
        for source in card.source_languages:
            direct.setdefault(source, set()).update(card.targets_of(source))
    targets = sorted(set().union(*direct.values()))
    return {
        source: _with_pivoted_targets(cards, source, direct[source], targets) for source in direct
    }


def _with_pivoted_targets(
    cards: Sequence[ModelCard], source: str, direct: set[str], others: Sequence[str]
) -> set[str]:
    targets = set(direct)
    for code in others:
        is_listed = match_codes(code, (source, *targets))
        if not is_listed and is_reached(cards, source, code):
            targets.add(code)
    return targets


# Texts whose language may have to be identified


@dataclass(frozen=True, slots=True)
class RoutedTranslator:
    """Translates the texts of a request, and says how; it is a `Translator`.

    translator: takes a job with these texts, whose source may be what the client has named.
    sources: the language of each text, with confidence 1 where the client has named it.
    pivots: the language that each text passes through; None of those that need one model.
    billed: the number of characters of each text that a model translates, else 0.
    memory: the translation memory that answers what it knows.
    """

    translator: Translator
    sources: tuple[Detection, ...]
    pivots: tuple[str | None, ...]
    billed: tuple[int, ...]
    memory: MemoryUse | None = None

    @property
    def card(self) -> ModelCard:
        return self.translator.card

    async def run(self, job: TranslationJob) -> Translation:
        return await self.translator.run(self._with_memory(job))

    def stream(self, job: TranslationJob) -> TranslationStream:
        return self.translator.stream(self._with_memory(job))

    def _with_memory(self, job: TranslationJob) -> TranslationJob:
        return job if self.memory is None else replace(job, memory=self.memory)


async def route_texts(
    services: RoutingServices,
    texts: Sequence[str],
    source: str | None,
    target: str,
    model: str | None = None,
    may_pivot: bool = True,
) -> RoutedTranslator:
    """Choose what translates texts: by their languages, or the model of that name.

    source: None or "auto" is identified, text by text.
    may_pivot: two models may do what no single one does.

    Raises RequestError and ModelNotFound.
    """
    catalog = services.catalog
    if is_explicit(source):
        translator = await find_translator(catalog, model, source, target, may_pivot)
        pivot, is_billed = _pivot(translator), not isinstance(translator, SameLanguageTranslator)
        return RoutedTranslator(
            translator,
            (Detection(source, 1.0),) * len(texts),
            (pivot,) * len(texts),
            tuple(len(text) if is_billed else 0 for text in texts),
        )
    detections = await identify_sources(services, texts, source, target, model)
    codes = dict.fromkeys(detection.language for detection in detections) or {target: None}
    translators = {
        code: await find_translator(catalog, model, code, target, may_pivot) for code in codes
    }
    chosen = [translators[detection.language] for detection in detections]
    groups = [
        LanguageGroup(
            translator,
            code,
            tuple(number for number, item in enumerate(detections) if item.language == code),
        )
        for code, translator in translators.items()
    ]
    return RoutedTranslator(
        MixedSourceTranslator(groups),
        tuple(detections),
        tuple(map(_pivot, chosen)),
        tuple(
            0 if isinstance(translator, SameLanguageTranslator) else len(text)
            for text, translator in zip(texts, chosen, strict=True)
        ),
    )


def _pivot(translator: Translator) -> str | None:
    return translator.pivot if isinstance(translator, PivotTranslator) else None


async def identify_sources(
    services: RoutingServices,
    texts: Sequence[str],
    source: str | None,
    target: str,
    model: str | None = None,
) -> list[Detection]:
    """Return the language of each text: the one that the client names, or, of None and `AUTO`, what
    it is likeliest in of the target language and those that can be translated into it.

    model: the only one whose source languages count, by name.

    A text that says too little has the language of all texts together. Raises RequestError where
    nothing is read here, or where a text is in a language that is not.
    """
    if is_explicit(source):
        return [Detection(source, 1.0)] * len(texts)
    detector = await _source_detector(services, target, model)
    return await asyncio.to_thread(detector.detect, texts)


@dataclass(frozen=True, slots=True)
class DocumentSources:
    """The languages of the texts of a document.

    source: of most of it. others: numbers of the texts in other languages, by language.
    num_billed: characters that models translate.
    """

    source: str
    others: Mapping[str, Sequence[int]] = field(default_factory=dict)
    num_billed: int = 0


async def identify_document_sources(
    services: RoutingServices,
    texts: Sequence[str],
    source: str | None,
    target: str,
    model: str | None = None,
) -> DocumentSources:
    """Return the languages of a document's texts, as `identify_sources`; but a paragraph that no
    model here translates counts as one in the target language, if the document is in another.

    Raises RequestError where no model translates it, and ModelNotFound.
    """
    main: str
    others: Mapping[str, Sequence[int]] = {}
    if is_explicit(source):
        main = source
    else:
        detector = await _source_detector(services, target, model)
        main, others = await asyncio.to_thread(detector.detect_document, texts)
    codes = [main] * len(texts)
    for code, numbers in others.items():
        for number in numbers:
            codes[number] = code
    is_billed = {}
    for code in (main, *others):
        translator = await find_translator(services.catalog, model, code, target)
        is_billed[code] = not isinstance(translator, SameLanguageTranslator)
    billed = (len(text) for text, code in zip(texts, codes, strict=True) if is_billed[code])
    return DocumentSources(main, others, sum(billed))


async def detectable_languages(catalog: Catalog) -> list[str]:
    """Return the languages that the loaded models read, then those that they write. Raises
    RequestError where there is none.
    """
    cards = await catalog.translator_cards()
    targets = (code for card in cards for code in card.target_languages)
    codes = dict.fromkeys((*sources_for(cards, None), *targets))
    if not codes:
        raise RequestError("source", AUTO, "no model here translates")
    return [code for code in codes if code != UNDETERMINED]


async def _source_detector(
    services: RoutingServices, target: str, model: str | None
) -> SourceDetector:
    """Raises RequestError for a target that no model here has, and ModelNotFound."""
    catalog = services.catalog
    cards = await catalog.translator_cards()
    readers = [(await catalog.get_model(model)).card] if model else cards
    same = _code_in_models(cards, target)
    if same is None:
        raise RequestError("target", target, "no model here translates into it")
    if not is_same_language(same, target):
        same = target
    translated = (
        code
        for code in sources_for(readers, target)
        if code != UNDETERMINED and not is_same_language(code, target)
    )
    return SourceDetector(services.identifier, tuple(translated), same, target)
