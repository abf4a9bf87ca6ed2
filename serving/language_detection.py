"""Identify the language of a text with py3langid, whose model knows 139 languages.

The model is loaded on first use, not when the server starts.
"""

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Protocol, TypeGuard

from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog, Translator
from serving.pipelines.pivoting import PivotTranslator, sources_for
from serving.pipelines.streams import merge
from serving.pipelines.translation.job import (
    MemoryUse,
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)
from serving.text.languages import UNDETERMINED, language_name, primary_language

_MAX_CHARACTERS = 2_000  # more of a text tell nothing new
# Tags, addresses and numbers look alike in all languages, or like English.
_NO_LANGUAGE = re.compile(r"<[^<>]*>|\w{1,20}://\S+|www\.\S+|[^\s@]{1,64}@\S+|[\d_]+")
# The model's codes where they are not ours: of languages that it has under another name, and of
# members of macrolanguages that it tells apart.
_OTHER_CODES = {
    "ar": ("ar", "ary", "arz"),
    "fil": ("tl",),
    "nb": ("no",),
    "zh": ("zh", "wuu", "yue"),
}
# A text that somebody wants translated here is rather in a language that is read here.
_WEIGHT_OF_OTHERS = 0.03


@dataclass(frozen=True, slots=True)
class Guess:
    """Names the language that a text may be in.

    confidence: from 0 to 1, how likely it is that one; near 0 where the text is in none that could
        have been answered.
    """

    language: str
    confidence: float


class Identifier:
    """Identifies languages. It may be asked from any thread."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._model: Any = None

    def identify(self, text: str, among: Sequence[str]) -> list[Guess]:
        """Rank languages by how likely the text is in each, the likeliest first; equal ones as they
        were given.

        among: codes in any form; of several for one language only the first can be it.
        """
        ranked = dict(self._loaded().rank(_telling(text)))
        weights = _weights(among, ranked)
        found = sum(weights.values())
        total = found + _WEIGHT_OF_OTHERS * max(sum(ranked.values()) - found, 0.0)
        guesses = [Guess(code, weights.get(code, 0.0) / total) for code in among]
        return sorted(guesses, key=lambda guess: -guess.confidence)

    def likeliest(self, text: str) -> str:
        """Return the language that a text is likeliest in, of all."""
        code, _ = max(self._loaded().rank(_telling(text)), key=itemgetter(1))
        return next((own for own, others in _OTHER_CODES.items() if code in others), str(code))

    def _loaded(self) -> Any:
        with self._loading:
            if self._model is None:
                self._model = _load()
        return self._model


def _load() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _telling(text: str) -> str:
    """Return the beginning of a text without what says nothing of its language."""
    return _NO_LANGUAGE.sub(" ", text[: 2 * _MAX_CHARACTERS])[:_MAX_CHARACTERS].strip()


def _weights(among: Sequence[str], ranked: Mapping[str, float]) -> dict[str, float]:
    """Return each language its probability among all that the model knows, once."""
    weights: dict[str, float] = {}
    seen: set[str] = set()
    for code in among:
        language = primary_language(code)
        if language not in seen:
            seen.add(language)
            own = _OTHER_CODES.get(language, (language,))
            weights[code] = sum(ranked.get(each, 0.0) for each in own)
    return weights


AUTO = "auto"
_UNCERTAIN = 0.5  # below it, what the texts of one request have in common says more
_FOREIGN = 0.05  # below it in all languages, a text is in another one: so are 1 in 1,000 by mistake
_JOINED_CHARACTERS = 4_000


class KnowsLanguages(Protocol):
    """The parts of a server that language detection needs; `Services` has them."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def identifier(self) -> Identifier: ...


def is_told(source: str | None) -> TypeGuard[str]:
    """Check that the client has said what the language is."""
    return source not in (None, AUTO)


async def source_of(
    services: KnowsLanguages, texts: Sequence[str], source: str | None, target: str | None
) -> Guess:
    """Return the language of all texts together; raises as `sources_of`."""
    if is_told(source):
        return Guess(source, 1.0)
    among = await readable(services.catalog, target)
    return await asyncio.to_thread(_of_all, services.identifier, texts, among, target)


async def sources_of(
    services: KnowsLanguages,
    texts: Sequence[str],
    source: str | None,
    target: str | None,
    model: str | None = None,
) -> list[Guess]:
    """Return the language of each text: what the client says, or, of None and `AUTO`, what it is
    likeliest in of the languages that can be translated into the target.

    model: the only one that is asked what it reads, by name.

    A text that says too little has the language of all texts together. Raises RequestError where
    nothing is read here, or where all are in a language that is not.
    """
    if is_told(source):
        return [Guess(source, 1.0)] * len(texts)
    among = await readable(services.catalog, target, model)
    return await asyncio.to_thread(_of_each, services.identifier, texts, among, target)


async def readable(catalog: Catalog, target: str | None, model: str | None = None) -> list[str]:
    """List the languages that the loaded models, or the one of that name, read and, if a target is
    given, can bring there.

    Raises RequestError where there is none, and ModelNotFound.
    """
    cards = [(await catalog.get_model(model)).card] if model else await catalog.translator_cards()
    found = [code for code in sources_for(cards, target) if code != UNDETERMINED]
    if not found and target is None:
        raise RequestError("source", AUTO, "no model here translates")
    if not found:
        raise RequestError("target", target, "no model here translates into it")
    return found


def _of_all(
    identifier: Identifier, texts: Sequence[str], among: Sequence[str], target: str | None
) -> Guess:
    joined = "\n".join(texts)[:_JOINED_CHARACTERS]
    guesses = identifier.identify(joined, among)
    is_foreign = sum(guess.confidence for guess in guesses) < _FOREIGN
    if is_foreign and any(map(str.isalpha, joined)):
        name = language_name(identifier.likeliest(joined))
        there = f" into {target}" if target else ""
        message = f"the text seems to be {name}, which no model here translates{there}"
        raise RequestError("source", AUTO, message)
    return guesses[0]


def _of_each(
    identifier: Identifier, texts: Sequence[str], among: Sequence[str], target: str | None
) -> list[Guess]:
    guesses = [identifier.identify(text, among)[0] for text in texts]
    if any(guess.confidence < _UNCERTAIN for guess in guesses):
        common = _of_all(identifier, texts, among, target)
        return [each if each.confidence >= _UNCERTAIN else common for each in guesses]
    return guesses


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
    """Translates texts of several source languages: each text by the translator of its language.
    Its card is that of the first translator; limits and defaults of the others may differ.
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


@dataclass(frozen=True, slots=True)
class Chosen:
    """Translates the texts of a request, and says how; it is a `Translator`.

    translator: takes a job with these texts, whose source may be what the client has said.
    sources: the language of each text, with confidence 1 where the client has said it.
    pivots: the language that each text passes through; None of those that need one model.
    memory: the translation memory that answers what it knows.
    """

    translator: Translator
    sources: tuple[Guess, ...]
    pivots: tuple[str | None, ...]
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
