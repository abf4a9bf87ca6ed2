"""Says which language a text is in, by py3langid's model of 139 languages.

The model is loaded when it is first asked, not when the server starts.
"""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.text.languages import primary_language

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
    """Give each language its probability among all that the model knows, once."""
    weights: dict[str, float] = {}
    seen: set[str] = set()
    for code in among:
        language = primary_language(code)
        if language not in seen:
            seen.add(language)
            own = _OTHER_CODES.get(language, (language,))
            weights[code] = sum(ranked.get(each, 0.0) for each in own)
    return weights
