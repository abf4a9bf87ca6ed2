"""Glossaries: terms take the place of the words that attend to them, and nothing else changes.

The translator writes the words of its source in capitals, and each letter attends to its own.
"""

from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pytest

from serving.bundle.manifest import Limits
from serving.errors import RequestError
from serving.pipelines.decoding import DEFAULT_DECODING, Decoding
from serving.pipelines.translation import term_candidates
from serving.pipelines.translation.glossary import MAX_TERMS_PER_SEGMENT
from serving.pipelines.translation.job import GlossaryEntry, Translation, TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import FinishReason, GenerationRequest, TokenEvent
from serving.text import alignment
from serving.text.alignment import overlap_shares
from serving.text.markup.known_words import KnownWords
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, shouting_translator

ENTRIES = {
    "dog": "chien",
    "dog house": "niche",
    "Dog": "Médor",
    "house": "maison",
    "hat": "bonnet de nuit",
    "cap": "HAT",
    "%": "pour cent",
}


def entries(glossary: dict[str, str]) -> tuple[GlossaryEntry, ...]:
    return tuple(GlossaryEntry(term, (text,)) for term, text in glossary.items())


def job(*texts: str, **options: Any) -> TranslationJob:
    return TranslationJob("job", texts, "en", "fr", **{"glossary": entries(ENTRIES)} | options)


def aligning_translator(
    tokenizer: Tokenizer, **options: Any
) -> tuple[TranslationPipeline, FakeEngine]:
    """Return the shouting translator; where it was made to write something else, that attends to
    what it stands for.
    """
    pipeline, engine = shouting_translator(tokenizer, **options)
    original = engine._token

    def token(request: GenerationRequest, place: int, ids: list[int]) -> TokenEvent:
        event = original(request, place, ids)
        if event.alignment is None:
            return event
        source = tokenizer.encode(tokenizer.decode(request.source_ids or ()).upper())
        attention = np.zeros(len(request.source_ids or ()), np.float32)
        for tag, start, end, own_start, own_end in SequenceMatcher(
            None, source, ids, autojunk=False
        ).get_opcodes():
            if own_start <= place < own_end and tag == "equal":
                attention[start + place - own_start] = 1
            elif own_start <= place < own_end:
                attention[start : max(end, start + 1)] = 1 / max(end - start, 1)
        return replace(event, alignment=attention)

    engine._token = token  # type: ignore[method-assign]
    return pipeline, engine


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("a dog house", "A niche"),
        ("a dog and a dog house", "A chien AND A niche"),
        ("Dog", "Médor"),
        ("DOG", "Chien"),
        ("a red DOG runs", "A RED chien RUNS"),
        ("the house dog", "THE maison chien"),
        ("hat, dog, hat", "Bonnet de nuit, chien, bonnet de nuit"),
        ("(hat)", "(Bonnet de nuit)"),
        ("hats and dogs", "HATS AND DOGS"),
        ("an l'dog", "AN L'chien"),
        ("a cap", "A HAT"),
        ("nothing", "NOTHING"),
    ],
)
@pytest.mark.parametrize(
    "decoding", [DEFAULT_DECODING, Decoding(beam=BeamParams(2))], ids=["greedy", "beam"]
)
async def test_terms_take_the_place_of_their_words(
    tokenizer: Tokenizer, text: str, translation: str, decoding: Decoding
) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    result = await pipeline.run(job(text, decoding=decoding))
    assert result.texts == (translation,)
    assert result.renderings[0][0].reason is FinishReason.STOP


async def test_nothing_is_done_where_the_translation_has_the_term(tokenizer: Tokenizer) -> None:
    pipeline, engine = aligning_translator(tokenizer)
    glossary = (GlossaryEntry("dog", ("hound", "DOG")), GlossaryEntry("red hat", ("RED HAT",)))
    await pipeline.run(job("A dog, a red hat.", glossary=glossary))
    assert len(engine.requests) == 1


async def test_a_term_whose_word_is_another_terms_translation_is_not_put_elsewhere(
    tokenizer: Tokenizer,
) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    translation = await pipeline.run(job("a cap and a hat"))
    assert translation.texts == ("A CAP AND A HAT",)
    assert translation.renderings[0][0].reason is FinishReason.CONSTRAINT


async def test_the_likeliest_of_several_translations_is_taken(tokenizer: Tokenizer) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    glossary = (GlossaryEntry("dog", ("toutou", "chien")),)  # each letter costs the same
    translation = await pipeline.run(job("a dog", glossary=glossary))
    assert translation.texts == ("A chien",)


async def test_models_without_attention_have_terms_too(tokenizer: Tokenizer) -> None:
    pipeline, _ = aligning_translator(tokenizer, num_heads=0)
    translation = await pipeline.run(job("a dog runs"))
    assert "chien" in translation.texts[0].lower()
    assert len(translation.texts[0].split()) == 3


async def test_streamed_is_whole(tokenizer: Tokenizer) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    translation_job = job("One. A dog runs. Two.", "a hat", protection=True)
    whole = await pipeline.run(translation_job)
    *deltas, last = [item async for item in pipeline.stream(translation_job)]
    assert isinstance(last, Translation)
    assert last == whole
    assert whole.texts == ("ONE. A chien RUNS. TWO.", "A bonnet de nuit")
    for number, text in enumerate(whole.texts):
        pieces = [item.piece for item in deltas if item.text == number]
        assert "".join(pieces) == text


async def test_all_alternatives_have_the_terms(tokenizer: Tokenizer) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    decoding = Decoding(beam=BeamParams(4, num_hypotheses=4))
    translation = await pipeline.run(job("a dog", decoding=decoding, num_alternatives=2))
    assert [rendering.text for rendering in translation.renderings[0]] == [
        "A chien",
        "A chien!",
        "A chien!!",
    ]


@pytest.mark.parametrize(
    ("prefix", "translation", "reason"),
    [
        ("A ", "A chien AND", FinishReason.STOP),
        ("A DOG ", "A DOG ", FinishReason.CONSTRAINT),
    ],
)
async def test_a_prefix_stays(
    tokenizer: Tokenizer, prefix: str, translation: str, reason: FinishReason
) -> None:
    pipeline, engine = aligning_translator(tokenizer)
    script = engine.script
    engine.script = lambda request: script(request)[len(prefix.rstrip()) :]
    result = await pipeline.run(job("a dog and", target_prefix=prefix))
    assert result.texts[0].startswith(translation)
    assert result.renderings[0][0].reason is reason


async def test_what_is_cut_before_a_term_stays_as_it_is(tokenizer: Tokenizer) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    decoding = Decoding(max_new_tokens=5)
    translation = await pipeline.run(job("a red dog", decoding=decoding))
    assert translation.texts == ("A RED",)
    assert translation.renderings[0][0].reason is FinishReason.LENGTH


async def test_what_is_drawn_stays_but_for_the_term(tokenizer: Tokenizer) -> None:
    pipeline, engine = aligning_translator(tokenizer)
    decoding = Decoding(sampling=SamplingParams(temperature=0.7, seed=5))
    translation = await pipeline.run(job("a dog", decoding=decoding))
    first, *others = engine.requests
    assert translation.texts == ("A chien",)
    assert (first.sampling.temperature, first.sampling.seed) == (0.7, 5)
    assert all(request.sampling.temperature == 0 for request in others)


async def test_tags_stay_around_what_came_of_theirs(tokenizer: Tokenizer) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    text = "the <b>hat</b> and <i>a dog</i> of https://a.example/hat now"
    translation_job = job(text, markup=Markup(MarkupKind.HTML), protection=True)
    [translated] = (await pipeline.run(translation_job)).texts
    assert "<b>bonnet de nuit</b> AND <i>A chien</i>" in translated
    assert "https://a.example/hat" in translated


async def test_alignments_link_a_term_with_its_source(tokenizer: Tokenizer) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    translation = await pipeline.run(job("a hat was", returns_alignments=True))
    alignment = translation.renderings[0][0].alignment
    assert alignment is not None
    assert alignment.target_words == ("A", "bonnet", "de", "nuit", "WAS")
    assert {(1, 1), (1, 2), (1, 3)} <= {*alignment.links}


async def test_all_that_was_generated_counts(tokenizer: Tokenizer) -> None:
    pipeline, engine = aligning_translator(tokenizer)
    translation = await pipeline.run(job("a dog"))
    plain = len("A DOG")
    assert translation.num_source_tokens == len("a dog") + 1
    assert translation.num_generated_tokens > plain
    assert len({request.request_id for request in engine.requests}) == len(engine.requests)


async def test_a_deadline_holds_for_all_requests_of_a_term(tokenizer: Tokenizer) -> None:
    pipeline, engine = aligning_translator(tokenizer)
    await pipeline.run(job("a dog", decoding=Decoding(timeout_seconds=60.0)))
    assert {request.timeout_seconds for request in engine.requests} == {60.0}
    first, *others = (request.job_accepted_at for request in engine.requests)
    assert first is None and others and None not in others


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("we see % of dogs here", "% of dogs", "WE SEE clebs HERE"),
        ("we see % dogs here", "% dogs", "WE SEE clebs HERE"),
        ("% dogs", "% dogs", "clebs"),
        ("a #dog here", "#dog", "A clebs HERE"),
        ("a dog % here", "dog %", "A clebs HERE"),
        ("a (dog) here", "(dog)", "A clebs HERE"),
        ("a +dog coat here", "+dog", "A clebs COAT HERE"),
        ("a @dog eats", "@dog", "A clebs EATS"),
        ("a .dog coat", ".dog", "A clebs COAT"),
        ("a c++ dog here", "c++ dog", "A clebs HERE"),
        ("a dog++ coat", "dog++", "A clebs COAT"),
        ("the $ dog is here", "$ dog", "THE clebs IS HERE"),
        ("see dogs! they run", "dogs!", "SEE clebs THEY RUN"),
        ("see dogs... they run", "dogs...", "SEE clebs THEY RUN"),
        ("is it a dog?", "dog?", "IS IT A clebs"),
        ("a (big) dog here", "(big) dog", "A clebs HERE"),
        ("a big (dog) here", "big (dog)", "A clebs HERE"),
        ('a "dog" here', '"dog"', "A clebs HERE"),
        ("a *dog* here", "*dog*", "A clebs HERE"),
        ("+dogs and a +dog here", "+dog", "+DOGS AND A clebs HERE"),
        ("+dog and +dog here", "+dog", "clebs AND clebs HERE"),
        ("5 % here", "%", "5 % HERE"),  # no words, nothing to align
    ],
)
async def test_signs_of_a_term_go_with_its_words(
    tokenizer: Tokenizer, text: str, term: str, expected: str
) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    [translated] = (await pipeline.run(job(text, glossary=entries({term: "clebs"})))).texts
    assert translated == expected


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("a #dog here", "#dog", "A clebs HERE"),
        ("a #dog coat here", "#dog coat", "A clebs HERE"),
        ("a @dog here", "@dog", "A clebs HERE"),
        ("see example.com here", "example.com", "SEE clebs HERE"),
        ("see www.dog.com/dog here", "dog", "SEE www.dog.com/dog HERE"),
        ("a #dog here", "dog", "A #dog HERE"),
    ],
)
async def test_a_term_wins_over_what_it_holds(
    tokenizer: Tokenizer, text: str, term: str, expected: str
) -> None:
    pipeline, _ = aligning_translator(tokenizer)
    translation_job = job(text, glossary=entries({term: "clebs"}), protection=True)
    [translated] = (await pipeline.run(translation_job)).texts
    assert translated == expected


async def test_what_the_model_copied_is_replaced_and_nothing_around_it(
    tokenizer: Tokenizer,
) -> None:
    pipeline, engine = aligning_translator(tokenizer)
    await pipeline.run(job("a +dog coat", glossary=entries({"+dog": "clebs"})))
    _, replacing = engine.requests
    assert replacing.max_new_tokens == 0


async def test_too_many_terms_are_refused(tokenizer: Tokenizer) -> None:
    pipeline, engine = aligning_translator(tokenizer, limits=Limits(1000, 1000, 1000))
    with pytest.raises(RequestError, match=f"glossary: at most {MAX_TERMS_PER_SEGMENT} terms"):
        await pipeline.run(job("% " * (MAX_TERMS_PER_SEGMENT + 1)))
    assert engine.requests == []


async def test_unknown_names_that_have_a_translation_are_not_kept(tokenizer: Tokenizer) -> None:
    pipeline, engine = aligning_translator(tokenizer, known_words=KnownWords(["i", "met"]))
    for glossary, read in (
        ((), "I met %1."),
        (entries({"Okafor Inc": "LA SA"}), "I met Okafor Inc."),
        (entries({"Inc.": "SA"}), "I met %1 Inc."),
    ):
        translation_job = replace(job("I met Okafor Inc.", protection=True), glossary=glossary)
        engine.requests.clear()
        await pipeline.run(translation_job)
        assert tokenizer.decode(engine.requests[0].source_ids or ()) == read


async def test_work_grows_no_faster_than_the_times_that_a_term_is_repeated(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time is a term to place, after which the others are looked for again; what the words of
    the source share with its tokens is computed once for each term, and not for each word of each
    draft.
    """
    calls: list[int] = []

    def count(*arguments: Any) -> Any:
        calls.append(len(arguments))
        return overlap_shares(*arguments)

    for module in (alignment, term_candidates):
        monkeypatch.setattr(module, "overlap_shares", count)
    numbers = []
    for times in (3, 6):
        calls.clear()
        pipeline, _ = aligning_translator(tokenizer)
        translation = await pipeline.run(job(" ".join(["dog"] * times)))
        assert translation.renderings[0][0].text.lower() == " ".join(["chien"] * times)
        numbers.append(len(calls))

    assert numbers[1] <= 2.5 * numbers[0]
