"""Glossaries: of entries that overlap the longest is required, and of like ones the exact one."""

from dataclasses import replace

import pytest

from serving.parameters import BeamParams
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import GlossaryEntry, TranslationJob
from serving.text.protection.names import KnownWords
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


async def test_unknown_names_that_have_a_translation_are_not_kept(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer, known_words=KnownWords(["i", "met"]))
    for glossary, required in ((), 0), ((GlossaryEntry("Okafor Inc", ("LA SA",)),), 1):
        job = replace(JOB, texts=("I met Okafor Inc.",), glossary=glossary, protection=True)
        await pipeline.translate(job)
        assert len(engine.requests[-1].required) == required
    read = [tokenizer.decode(request.source_ids or ()) for request in engine.requests]
    assert read == ["I met %1.", "I met Okafor Inc."]
