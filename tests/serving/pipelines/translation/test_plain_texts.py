"""Texts that take the short way say what they say on the long one, to the byte."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.pipelines.translation.job import TranslationJob
from serving.text.markup.segmenter import MarkupSegmenter
from serving.text.sentences import TextLayout
from serving.text.tokenizer import Tokenizer
from tests.serving.text.markup.test_segmenter import TEXTS
from tests.serving.text.protection.garbling import garbling_translator

WORDS = ["the dog", "dogs", "A dog runs", "in", "l'été", "(he", "is)", "ABC", ", ", ". ", "? ", " "]
PLAIN = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)


def test_both_ways_translate_alike(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, engine = garbling_translator(tokenizer)
    segment_plain_text, calls = MarkupSegmenter.segment_plain_text, []

    def short(reader: MarkupSegmenter, text: str) -> TextLayout | None:
        calls.append(segment_plain_text(reader, text))
        return calls[-1]

    @settings(max_examples=150)
    @given(texts=st.lists(TEXTS | PLAIN, min_size=1, max_size=3), seed=st.integers(0, 9))
    def holds(texts: list[str], seed: int) -> None:
        engine.seed = seed
        job = TranslationJob("job", tuple(texts), "en", "fr", protection=True)
        monkeypatch.setattr(MarkupSegmenter, "segment_plain_text", short)
        translation = asyncio.run(pipeline.run(job))
        monkeypatch.setattr(MarkupSegmenter, "segment_plain_text", lambda self, text: None)
        assert translation == asyncio.run(pipeline.run(job))

    holds()
    assert sum(layout is not None and bool(layout.segments) for layout in calls) > 20
