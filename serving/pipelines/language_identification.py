"""Identify the language of a text with py3langid, whose model knows 139 languages.

The model is loaded on first use, not when the server starts.
"""

import asyncio
import re
import threading
import unicodedata
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from html import unescape
from operator import itemgetter
from typing import Any, Protocol, TypeGuard

from serving.errors import RequestError
from serving.pipelines.cards import ModelCard
from serving.pipelines.catalog import Catalog, Translator, code_of_language
from serving.pipelines.pivoting import PivotTranslator, sources_for
from serving.pipelines.same_language import SameLanguageTranslator
from serving.pipelines.streams import merge
from serving.pipelines.translation.job import (
    MemoryUse,
    Translation,
    TranslationDelta,
    TranslationJob,
    TranslationStream,
)
from serving.text.languages import (
    UNDETERMINED,
    is_same_language,
    language_name,
    primary_language,
    script_of_code,
    script_of_text,
)

_MAX_CHARACTERS = 2_000  # more of a text tell nothing new
_MAX_RAW_CHARACTERS = 20_000  # with tags, scripts and styles
# Tags, addresses and numbers look alike in all languages, or like English; so do scripts.
_NO_LANGUAGE = re.compile(
    r"<(?P<raw>script|style)\b.*?(?:</(?P=raw)\s*>|\Z)|<[^<>]*>"
    r"|\w{1,20}://\S+|www\.\S+|[^\s@]{1,64}@\S+|[\d_]+",
    re.DOTALL | re.IGNORECASE,
)
_TEXT_ATTRIBUTE = re.compile(
    r"""\s(?:alt|aria-label|placeholder|title)=(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE
)
# The model's codes where they are not ours: of languages that it has under another name, and of
# members of macrolanguages that it tells apart.
_OTHER_CODES = {
    "ar": ("ar", "ary", "arz"),
    "fil": ("tl",),
    "nb": ("no",),
    "zh": ("zh", "wuu", "yue"),
}
_NONE = "zxx"  # the model's code of what is in no language, such as base64
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
        telling = _telling(text)
        ranked = dict(self._loaded().rank(telling))
        ranked.pop(_NONE, None)
        weights = _weights(telling, among, ranked)
        found = sum(weights.values())
        total = found + _WEIGHT_OF_OTHERS * max(sum(ranked.values()) - found, 0.0)
        guesses = [Guess(code, weights.get(code, 0.0) / total) for code in among]
        return sorted(guesses, key=lambda guess: -guess.confidence)

    def likeliest(self, text: str) -> Guess:
        """Return the language that a text is likeliest in, of all, with its probability."""
        ranked = (pair for pair in self._loaded().rank(_telling(text)) if pair[0] != _NONE)
        code, probability = max(ranked, key=itemgetter(1))
        own = next((own for own, others in _OTHER_CODES.items() if code in others), str(code))
        return Guess(own, float(probability))

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
    words = _NO_LANGUAGE.sub(_attributes, text[:_MAX_RAW_CHARACTERS])
    return unescape(words)[:_MAX_CHARACTERS].strip()


def _attributes(match: re.Match[str]) -> str:
    """Return the attributes of a tag that hold text, between blanks."""
    values = (first or second for first, second in _TEXT_ATTRIBUTE.findall(match[0]))
    return " ".join(("", *values, "")) if match[0][0] == "<" and not match["raw"] else " "


def _weights(text: str, among: Sequence[str], ranked: Mapping[str, float]) -> dict[str, float]:
    """Return each language its probability among all that the model knows, once: of several codes
    of a language the first that does not name another script than the text's, else the first.
    """
    codes: defaultdict[str, list[str]] = defaultdict(list)
    for code in among:
        codes[primary_language(code)].append(code)
    weights: dict[str, float] = {}
    for language, own in codes.items():
        code = own[0]
        if len(own) > 1 and (script := script_of_text(text)) is not None:
            code = next((each for each in own if script_of_code(each) in (None, script)), code)
        members = _OTHER_CODES.get(language, (language,))
        weights[code] = sum(ranked.get(member, 0.0) for member in members)
    return weights


AUTO = "auto"
_UNCERTAIN = 0.5  # below it, what the texts of one request have in common says more
_JOINED_CHARACTERS = 4_000
# A text is foreign if all candidates together are less than a tenth as likely as the likeliest
# language of all. Of 58,000 phrases of two English or French words, of captions, 5 are so by
# mistake, of those of three words 1; of six German words 96% are recognised.
_FOREIGN = 0.1
# One or two words are names as often as not, of which the language says little: "Dvořák" is Czech.
# A wide letter says as much as four: "東京" is a word.
_FEW_WORDS, _FEW_LETTERS, _LETTERS_OF_WIDE = 2, 24, 4
# A text is in the target language if that is so many times as likely as all languages together
# that can be translated: where English is translated to French, 92% of 29,000 phrases of three
# French words are (of two words 75%), and 0.04% of English ones (of two words 0.2%).
_SAME_TO_OTHERS = 5
# A paragraph of a document is judged by itself from here on.
_TELLING_CONFIDENCE = 0.9
_TELLING_LETTERS = 15


class KnowsLanguages(Protocol):
    """The parts of a server that language detection needs; `Services` has them."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def identifier(self) -> Identifier: ...


def is_explicit(source: str | None) -> TypeGuard[str]:
    """Check that the client has said what the language is."""
    return source is not None and source.lower() != AUTO


async def sources_of(
    services: KnowsLanguages,
    texts: Sequence[str],
    source: str | None,
    target: str,
    model: str | None = None,
) -> list[Guess]:
    """Return the language of each text: what the client says, or, of None and `AUTO`, what it is
    likeliest in of the target language and those that can be translated into it.

    model: the only one that is asked what it reads, by name.

    A text that says too little has the language of all texts together. Raises RequestError where
    nothing is read here, or where a text is in a language that is not.
    """
    if is_explicit(source):
        return [Guess(source, 1.0)] * len(texts)
    detector = await _detector(services, target, model)
    return await asyncio.to_thread(detector.sources_of, texts)


@dataclass(frozen=True, slots=True)
class DocumentSources:
    """The languages of the texts of a document.

    source: of most of it. others: numbers of the texts in other languages, by language.
    num_billed: characters that models translate.
    """

    source: str
    others: Mapping[str, Sequence[int]] = field(default_factory=dict)
    num_billed: int = 0


async def document_sources(
    services: KnowsLanguages,
    texts: Sequence[str],
    source: str | None,
    target: str,
    model: str | None = None,
) -> DocumentSources:
    """Return the languages of a document's texts, as `sources_of`; but a paragraph that no model
    here translates counts as one in the target language, if the document is in another.

    Raises RequestError where no model translates it, and ModelNotFound.
    """
    if is_explicit(source):
        sources = DocumentSources(source)
    else:
        detector = await _detector(services, target, model)
        sources = await asyncio.to_thread(detector.document_sources, texts)
    codes = [sources.source] * len(texts)
    for code, numbers in sources.others.items():
        for number in numbers:
            codes[number] = code
    is_billed = {
        code: not isinstance(
            await services.catalog.translator(model, code, target), SameLanguageTranslator
        )
        for code in (sources.source, *sources.others)
    }
    billed = (len(text) for text, code in zip(texts, codes, strict=True) if is_billed[code])
    return replace(sources, num_billed=sum(billed))


async def detectable(catalog: Catalog) -> list[str]:
    """List the languages that the loaded models read, then those that they write. Raises
    RequestError where there is none.
    """
    cards = await catalog.translator_cards()
    written = (code for card in cards for code in card.target_languages)
    codes = dict.fromkeys((*sources_for(cards, None), *written))
    if not codes:
        raise RequestError("source", AUTO, "no model here translates")
    return [code for code in codes if code != UNDETERMINED]


async def _detector(services: KnowsLanguages, target: str, model: str | None) -> "SourceDetector":
    """Raises RequestError for a target that no model here has, and ModelNotFound."""
    catalog = services.catalog
    cards = await catalog.translator_cards()
    readers = [(await catalog.get_model(model)).card] if model else cards
    same = code_of_language(cards, target)
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


@dataclass(frozen=True, slots=True)
class SourceDetector:
    """Detects in which languages the texts of a request are.

    translated: languages that can be translated into the target.
    same: the target language, as the models call it.
    """

    identifier: Identifier
    translated: tuple[str, ...]
    same: str
    target: str

    def sources_of(self, texts: Sequence[str]) -> list[Guess]:
        """Raises RequestError where a text is in another language, or all together are. One or two
        words are not refused by themselves if there are other texts.
        """
        guesses = [self._ranked(text) for text in texts]
        for number, (text, ranked) in enumerate(zip(texts, guesses, strict=True)):
            if not texts[1:]:
                self._check("the text", text, ranked)
            elif not _is_short(text):
                self._check(f"the text at index {number}", text, ranked)
        best = list(map(self._best, guesses))
        if not any(map(self._is_unsure, best)):
            return best
        joined = "\n".join(texts)[:_JOINED_CHARACTERS]
        ranked = self._ranked(joined)
        self._check("the whole" if texts[1:] else "the text", joined, ranked)
        common = self._best(ranked)
        return [
            self._settled(guess, each, common) for guess, each in zip(best, guesses, strict=True)
        ]

    def document_sources(self, texts: Sequence[str]) -> DocumentSources:
        joined = "\n".join(texts)[:_JOINED_CHARACTERS]
        ranked = self._ranked(joined)
        self._check("the text", joined, ranked)
        source = self._best(ranked).language
        others: defaultdict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(texts):
            if sum(map(str.isalpha, text)) >= _TELLING_LETTERS:
                language = self._language_by_itself(text)
                if language not in (None, source):
                    others[language].append(number)
        return DocumentSources(source, dict(others))

    def _language_by_itself(self, text: str) -> str | None:
        """Return the language of a paragraph, the target's of a foreign one; None if unsure."""
        ranked = self._ranked(text)
        if self._foreign_language(text, ranked) is not None:
            return self.same
        best = self._best(ranked)
        return best.language if best.confidence >= _TELLING_CONFIDENCE else None

    def _ranked(self, text: str) -> list[Guess]:
        """Rank the candidates; the target language is none of a text in another script."""
        ranked = self.identifier.identify(text, [*self.translated, self.same])
        script = script_of_code(self.target) or script_of_code(self.same)
        if script is None or script_of_text(_telling(text)) in (None, script):
            return ranked
        return [guess for guess in ranked if guess.language != self.same]

    def _best(self, ranked: Sequence[Guess]) -> Guess:
        """Return the likeliest language; the target's only if it is so by far."""
        others = [guess for guess in ranked if guess.language != self.same]
        if not others:
            return ranked[0] if ranked else Guess(self.same, 0.0)
        confidence = self._confidence_of_same(ranked)
        if confidence > _SAME_TO_OTHERS * sum(guess.confidence for guess in others):
            return Guess(self.same, confidence)
        return others[0]

    def _is_unsure(self, best: Guess) -> bool:
        return best.language != self.same and best.confidence < _UNCERTAIN

    def _settled(self, best: Guess, ranked: Sequence[Guess], common: Guess) -> Guess:
        """Return the language that all texts have in common for a text that says too little, unless
        that is the target's and the text is rather in another.
        """
        if not self._is_unsure(best):
            return best
        leans_to_best = best.confidence > self._confidence_of_same(ranked)
        return best if common.language == self.same and leans_to_best else common

    def _confidence_of_same(self, ranked: Sequence[Guess]) -> float:
        return next((guess.confidence for guess in ranked if guess.language == self.same), 0.0)

    def _check(self, place: str, text: str, ranked: Sequence[Guess]) -> None:
        language = self._foreign_language(text, ranked)
        if language is not None:
            there = f"which no model here translates into {self.target}"
            name = language_name(language)
            raise RequestError("source", AUTO, f"{place} seems to be {name}, {there}")

    def _foreign_language(self, text: str, ranked: Sequence[Guess]) -> str | None:
        """Return the language of a text that is in none of the candidates, else None. One or two
        words in Latin letters may be in any.
        """
        confidence = sum(guess.confidence for guess in ranked)
        if confidence >= _FOREIGN or not any(map(str.isalpha, text)):
            return None
        if _is_short(text) and _is_latin(text):
            return None
        likeliest = self.identifier.likeliest(text)
        return likeliest.language if confidence < _FOREIGN * likeliest.confidence else None


def _is_short(text: str) -> bool:
    words = _telling(text)
    num_letters = sum(
        _LETTERS_OF_WIDE if unicodedata.east_asian_width(letter) == "W" else 1
        for letter in filter(str.isalpha, words)
    )
    return num_letters <= _FEW_LETTERS and len(words.split()) <= _FEW_WORDS


def _is_latin(text: str) -> bool:
    letters = filter(str.isalpha, _telling(text))
    return all(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)


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
    Its card is that of the first model; limits and defaults of the others may differ.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        models = [part for part in parts if not isinstance(part.translator, SameLanguageTranslator)]
        self.card = (models or parts)[0].translator.card
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
    billed: the number of characters of each text that a model translates, else 0.
    memory: the translation memory that answers what it knows.
    """

    translator: Translator
    sources: tuple[Guess, ...]
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
    codes = dict.fromkeys(guess.language for guess in sources)
    if not codes:
        codes = {source if is_explicit(source) else target: None}
    translators = {
        code: await services.catalog.translator(model, code, target, may_pivot) for code in codes
    }
    pivots = tuple(_pivot(translators[guess.language]) for guess in sources)
    billed = tuple(
        0 if isinstance(translators[guess.language], SameLanguageTranslator) else len(text)
        for text, guess in zip(texts, sources, strict=True)
    )
    if is_explicit(source):
        return Chosen(translators[source], tuple(sources), pivots, billed)
    parts = [Part(translators[code], code, _numbers(sources, code)) for code in translators]
    return Chosen(MixedTranslator(parts), tuple(sources), pivots, billed)


def _pivot(translator: Translator) -> str | None:
    return translator.pivot if isinstance(translator, PivotTranslator) else None


def _numbers(sources: Sequence[Guess], code: str) -> tuple[int, ...]:
    return tuple(number for number, guess in enumerate(sources) if guess.language == code)
