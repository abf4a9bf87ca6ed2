"""Glossaries: of entries that overlap the longest is required, and of like ones the exact one."""

from dataclasses import replace

import pytest

from serving.parameters import BeamParams
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import GlossaryEntry, TranslationJob
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import shouting_translator

ENTRIES = {
    "dog": "CHIEN",
    "dog house": "NICHE",
    "Dog": "MEDOR",
    "house": "MAISON",
    "%": "POUR CENT",
}
JOB = TranslationJob(
    "job",
    (),
    "en",
    "fr",
    Decoding(beam=BeamParams(num_beams=2)),
    glossary=tuple(GlossaryEntry(term, (text,)) for term, text in ENTRIES.items()),
)


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("a dog house", ["NICHE"]),
        ("a dog and a dog house", ["CHIEN", "NICHE"]),
        ("Dog", ["MEDOR"]),
        ("DOG", ["CHIEN"]),
        ("the house dog", ["CHIEN", "MAISON"]),
        ("5 % of it", ["POUR CENT"]),
        ("nothing", []),
    ],
)
async def test_what_is_required(tokenizer: Tokenizer, text: str, required: list[str]) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    await pipeline.translate(replace(JOB, texts=(text,)))
    [request] = engine.requests
    assert [tokenizer.decode(term.bare[0]).strip() for term in request.required] == required
