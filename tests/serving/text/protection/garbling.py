"""A translator that garbles: it drops, doubles, reorders and changes words, and looks anywhere."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from serving.bundle.manifest import Limits, Task
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.request import GenerationRequest, TokenEvent
from serving.text.markup.known_words import KnownWords
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, manifest
from tests.serving.text.protection.random_texts import KNOWN_WORDS

_WORD = re.compile(r"\S+")
_STAND_IN = re.compile(r"([A-Za-z%]+)\d+")
_OTHERS = ["le", "chien", "une", "maison", "rouge", "d'une", "qui", "court"]


class GarblingEngine(FakeEngine):
    """Answers with some words of the source, in another order, some twice, some changed.

    seed: of all that is random. changes_stand_ins: words such as X1 may become others like them.
    """

    def __init__(self, tokenizer: Tokenizer, seed: int, changes_stand_ins: bool = False) -> None:
        super().__init__(self._garble)
        self._tokenizer = tokenizer
        self.seed = seed
        self._changes_stand_ins = changes_stand_ins
        self._origins: dict[str, list[int]] = {}

    def _garble(self, request: GenerationRequest) -> list[int]:
        assert request.source_ids is not None
        text = self._tokenizer.decode(request.source_ids)
        chance = random.Random(f"{self.seed} {text}")
        words = [(match.group(), match.start()) for match in _WORD.finditer(text)]
        ids: list[int] = []
        origins: list[int] = []
        for word, start in self._choose(words, chance):
            ids_of_word = self._tokenizer.encode(f" {word}" if ids else word)
            ids += ids_of_word
            byte = len(self._tokenizer.encode(text[:start]))
            place = byte if chance.random() < 0.8 else chance.randrange(len(request.source_ids))
            origins += [min(place, len(request.source_ids) - 1)] * len(ids_of_word)
        self._origins[request.request_id] = origins
        return ids

    def _choose(
        self, words: Sequence[tuple[str, int]], chance: random.Random
    ) -> list[tuple[str, int]]:
        chosen = []
        for word, start in words:
            change = chance.random()
            if change < 0.15:
                continue
            if change < 0.25:
                chosen.append((word, start))
            elif change < 0.4:
                word = chance.choice(_OTHERS)
            elif change < 0.6 and self._changes_stand_ins:
                word = _STAND_IN.sub(lambda match: f"{match[1]}{chance.randrange(1, 12)}", word)
            chosen.append((word, start))
        if chance.random() < 0.5:
            chance.shuffle(chosen)
        return chosen

    def _token(self, request: GenerationRequest, place: int, ids: list[int]) -> TokenEvent:
        event = super()._token(request, place, ids)
        origins = self._origins[request.request_id]
        if event.alignment is None or place >= len(origins):
            return event
        row = np.full(len(event.alignment), 0.1 / len(event.alignment), np.float32)
        row[origins[place]] += 0.9
        return replace(event, alignment=row)


def garbling_translator(
    tokenizer: Tokenizer,
    seed: int = 0,
    target: str = "fr",
    num_heads: int = 4,
    name: str = "garble",
    **options: bool,
) -> tuple[TranslationPipeline, GarblingEngine]:
    """num_heads: 0 for a model without attention. options: of the engine."""
    card = manifest(
        Task.TRANSLATE,
        name,
        num_heads=num_heads,
        target_languages=(target,),
        limits=Limits(2048, 2048),
    )
    known_words = KnownWords(KNOWN_WORDS)
    engine = GarblingEngine(tokenizer, seed, **options)
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    return TranslationPipeline(card, tokenizers, engine, None, None, known_words), engine
