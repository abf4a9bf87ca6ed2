"""Identify the language of texts with py3langid, whose model knows 139 languages: of one text, or
of the texts of a request among the languages that can be translated.

The model is loaded on first use, not when the server starts.
"""

import re
import threading
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from operator import itemgetter
from typing import Any, TypeGuard

from serving.errors import RequestError
from serving.text.languages import (
    language_name,
    primary_language,
    script_of_code,
    script_of_text,
)

AUTO = "auto"  # a client's code for a language that is to be identified
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
# A text that somebody wants translated here is rather in a language that is read here: another one
# counts for more only if it is more than 33 times as likely.
_WEIGHT_OF_OTHERS = 0.03
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


@dataclass(frozen=True, slots=True)
class Detection:
    """A language that a text may be in.

    confidence: from 0 to 1, how likely it is that one; near 0 where the text is in none that could
        have been answered.
    """

    language: str
    confidence: float


def is_explicit(source: str | None) -> TypeGuard[str]:
    """Return whether a client names the language, rather than have it identified."""
    return source is not None and source.lower() != AUTO


class LanguageIdentifier:
    """Identifies the language of a text. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._model: Any = None

    def identify(self, text: str, candidates: Sequence[str]) -> list[Detection]:
        """Rank languages by how likely the text is in each, the likeliest first; equal ones in the
        order of the candidates.

        candidates: codes in any form; of several for one language only the first can be it.
        """
        telling_text = _telling_text(text)
        probabilities = dict(self._loaded_model().rank(telling_text))
        probabilities.pop(_NONE, None)
        weights = _weights(telling_text, candidates, probabilities)
        of_candidates = sum(weights.values())
        of_others = max(sum(probabilities.values()) - of_candidates, 0.0)
        total = of_candidates + _WEIGHT_OF_OTHERS * of_others
        detections = [Detection(code, weights.get(code, 0.0) / total) for code in candidates]
        return sorted(detections, key=lambda detection: -detection.confidence)

    def likeliest(self, text: str) -> Detection:
        """Return the language that a text is likeliest in, of all, with its probability."""
        ranked = self._loaded_model().rank(_telling_text(text))
        languages = (pair for pair in ranked if pair[0] != _NONE)
        model_code, probability = max(languages, key=itemgetter(1))
        codes = (code for code, others in _OTHER_CODES.items() if model_code in others)
        return Detection(next(codes, str(model_code)), float(probability))

    def _loaded_model(self) -> Any:
        with self._loading:
            if self._model is None:
                self._model = _load_model()
        return self._model


def _load_model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _telling_text(text: str) -> str:
    """Return the beginning of a text without what says nothing of its language."""
    words = _NO_LANGUAGE.sub(_text_attributes, text[:_MAX_RAW_CHARACTERS])
    return unescape(words)[:_MAX_CHARACTERS].strip()


def _text_attributes(match: re.Match[str]) -> str:
    """Return the attributes of a tag that hold text, between blanks."""
    values = (first or second for first, second in _TEXT_ATTRIBUTE.findall(match[0]))
    return " ".join(("", *values, "")) if match[0][0] == "<" and not match["raw"] else " "


def _weights(
    text: str, candidates: Sequence[str], probabilities: Mapping[str, float]
) -> dict[str, float]:
    """Return each language's probability among all that the model knows, once: of several codes
    of a language for the first that does not name another script than the text's, else the first.
    """
    codes_of_language: defaultdict[str, list[str]] = defaultdict(list)
    for code in candidates:
        codes_of_language[primary_language(code)].append(code)
    weights: dict[str, float] = {}
    for language, codes in codes_of_language.items():
        code = codes[0]
        if len(codes) > 1 and (script := script_of_text(text)) is not None:
            in_script = (other for other in codes if script_of_code(other) in (None, script))
            code = next(in_script, code)
        members = _OTHER_CODES.get(language, (language,))
        weights[code] = sum(probabilities.get(member, 0.0) for member in members)
    return weights


@dataclass(frozen=True, slots=True)
class SourceDetector:
    """Detects the languages of the texts of a request.

    translated: languages that can be translated into the target.
    same: the target language, as the models call it.
    """

    identifier: LanguageIdentifier
    translated: tuple[str, ...]
    same: str
    target: str

    def detect(self, texts: Sequence[str]) -> list[Detection]:
        """Return the language of each text; of one that says too little, that of all together.

        Raises RequestError where a text is in another language, or all together are. One or two
        words are not refused by themselves if there are other texts.
        """
        rankings = [self._rank(text) for text in texts]
        for number, (text, ranking) in enumerate(zip(texts, rankings, strict=True)):
            if not texts[1:]:
                self._refuse_foreign("the text", text, ranking)
            elif not _is_short(text):
                self._refuse_foreign(f"the text at index {number}", text, ranking)
        best = list(map(self._best, rankings))
        if not any(map(self._is_unsure, best)):
            return best
        joined = "\n".join(texts)[:_JOINED_CHARACTERS]
        ranking = self._rank(joined)
        self._refuse_foreign("the whole" if texts[1:] else "the text", joined, ranking)
        common = self._best(ranking)
        return [
            self._settle(detection, ranking, common)
            for detection, ranking in zip(best, rankings, strict=True)
        ]

    def detect_document(self, texts: Sequence[str]) -> tuple[str, dict[str, list[int]]]:
        """Return the language of most of a document, and the numbers of the paragraphs that are in
        others, by language. A foreign paragraph counts as one in the target language.

        Raises RequestError where the whole is in another language.
        """
        joined = "\n".join(texts)[:_JOINED_CHARACTERS]
        ranking = self._rank(joined)
        self._refuse_foreign("the text", joined, ranking)
        source = self._best(ranking).language
        others: defaultdict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(texts):
            if sum(map(str.isalpha, text)) >= _TELLING_LETTERS:
                language = self._language_of_paragraph(text)
                if language not in (None, source):
                    others[language].append(number)
        return source, dict(others)

    def _language_of_paragraph(self, text: str) -> str | None:
        """Return the language of a paragraph, the target's of a foreign one; None if unsure."""
        ranking = self._rank(text)
        if self._foreign_language(text, ranking) is not None:
            return self.same
        best = self._best(ranking)
        return best.language if best.confidence >= _TELLING_CONFIDENCE else None

    def _rank(self, text: str) -> list[Detection]:
        """Rank the candidates; the target language is none of a text in another script."""
        ranking = self.identifier.identify(text, [*self.translated, self.same])
        script = script_of_code(self.target) or script_of_code(self.same)
        if script is None or script_of_text(_telling_text(text)) in (None, script):
            return ranking
        return [detection for detection in ranking if detection.language != self.same]

    def _best(self, ranking: Sequence[Detection]) -> Detection:
        """Return the likeliest language; the target's only if it is so by far."""
        others = [detection for detection in ranking if detection.language != self.same]
        if not others:
            return ranking[0] if ranking else Detection(self.same, 0.0)
        confidence = self._confidence_of_same(ranking)
        if confidence > _SAME_TO_OTHERS * sum(detection.confidence for detection in others):
            return Detection(self.same, confidence)
        return others[0]

    def _is_unsure(self, best: Detection) -> bool:
        return best.language != self.same and best.confidence < _UNCERTAIN

    def _settle(
        self, best: Detection, ranking: Sequence[Detection], common: Detection
    ) -> Detection:
        """Return the language that all texts have in common for a text that says too little, unless
        that is the target's and the text is rather in another.
        """
        if not self._is_unsure(best):
            return best
        leans_to_best = best.confidence > self._confidence_of_same(ranking)
        return best if common.language == self.same and leans_to_best else common

    def _confidence_of_same(self, ranking: Sequence[Detection]) -> float:
        confidences = (item.confidence for item in ranking if item.language == self.same)
        return next(confidences, 0.0)

    def _refuse_foreign(self, place: str, text: str, ranking: Sequence[Detection]) -> None:
        """Raise RequestError for a text in a language that cannot be translated here."""
        language = self._foreign_language(text, ranking)
        if language is not None:
            there = f"which no model here translates into {language_name(self.target)}"
            name = language_name(language)
            raise RequestError("source", AUTO, f"{place} seems to be {name}, {there}")

    def _foreign_language(self, text: str, ranking: Sequence[Detection]) -> str | None:
        """Return the language of a text that is in none of the candidates, else None. One or two
        words in Latin letters may be in any.
        """
        confidence = sum(detection.confidence for detection in ranking)
        if confidence >= _FOREIGN or not any(map(str.isalpha, text)):
            return None
        if _is_short(text) and _is_latin(text):
            return None
        likeliest = self.identifier.likeliest(text)
        return likeliest.language if confidence < _FOREIGN * likeliest.confidence else None


def _is_short(text: str) -> bool:
    telling_text = _telling_text(text)
    num_letters = sum(
        _LETTERS_OF_WIDE if unicodedata.east_asian_width(letter) == "W" else 1
        for letter in filter(str.isalpha, telling_text)
    )
    return num_letters <= _FEW_LETTERS and len(telling_text.split()) <= _FEW_WORDS


def _is_latin(text: str) -> bool:
    letters = filter(str.isalpha, _telling_text(text))
    return all(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)
