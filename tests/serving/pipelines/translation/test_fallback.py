"""Translations that cannot be right are asked for once more, alike in a stream and whole."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from serving.bundle.manifest import Limits, Task
from serving.errors import Overloaded
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import (
    GlossaryEntry,
    Translation,
    TranslationDelta,
    TranslationJob,
)
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.parameters import MAX_BEAMS, BeamParams, SamplingParams
from serving.requests.request import FinishReason, GenerationRequest
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, manifest

XML = Markup(MarkupKind.XML, ignore_tags=frozenset({"x"}))
LOOP = "un chien et un chien et un chien et un chien et un chien"
Answer = Callable[[GenerationRequest, str], str]


def translator(
    tokenizer: Tokenizer, answer: Answer, max_rows: int = MAX_BEAMS
) -> tuple[TranslationPipeline, FakeEngine]:
    """Answer each request, of a source text, after what it has forced."""

    def script(request: GenerationRequest) -> list[int]:
        assert request.source_ids is not None
        whole = tokenizer.encode(answer(request, tokenizer.decode(request.source_ids)))
        return whole[len(request.forced_ids) :]

    engine = FakeEngine(script)
    engine.max_rows = max_rows
    card = manifest(Task.TRANSLATE, limits=Limits(400, 400, 200))
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    return TranslationPipeline(card, tokenizers, engine), engine


def looping(request: GenerationRequest, source: str) -> str:
    """Loop, unless n-grams may not be repeated."""
    is_second = request.processors.no_repeat_ngram_size > 0
    return "un chien et un chat dorment." if is_second else LOOP


async def both_ways(pipeline: TranslationPipeline, *texts: str, **options: Any) -> Translation:
    """Return the translation, after checking that a stream says the same."""
    job = TranslationJob("job", texts, "en", "fr", **{"protection": True, **options})
    whole = await pipeline.run(job)
    assert isinstance(whole, Translation)
    *deltas, last = [item async for item in pipeline.stream(job)]
    assert last == whole
    for number, text in enumerate(whole.texts):
        pieces = [d.piece for d in deltas if isinstance(d, TranslationDelta) and d.text == number]
        assert "".join(pieces) == text
    return whole


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(),
        Decoding(beam=BeamParams(2)),
        Decoding(sampling=SamplingParams(temperature=1.0, seed=1)),
    ],
)
async def test_a_loop_goes_on_without_repetition(tokenizer: Tokenizer, decoding: Decoding) -> None:
    pipeline, engine = translator(tokenizer, looping)

    translation = await both_ways(pipeline, "a dog and a cat sleep.", decoding=decoding)

    assert translation.texts == ("un chien et un chat dorment.",)
    first, second = engine.requests[:2]
    assert second.processors.no_repeat_ngram_size == 4
    assert tokenizer.decode(second.forced_ids) == "un chien et un c"[: len(second.forced_ids)]
    assert (second.source_ids, second.beam) == (first.source_ids, first.beam)


async def test_only_what_loops_is_asked_again(tokenizer: Tokenizer) -> None:
    def answer(request: GenerationRequest, source: str) -> str:
        return looping(request, source) if source == "a dog." else "une souris."

    pipeline, engine = translator(tokenizer, answer)
    translation = await pipeline.run(
        TranslationJob("job", ("a mouse.", "a dog.", "some mouse."), "en", "fr", protection=True)
    )

    assert [text[:6] for text in translation.texts] == ["une so", "un chi", "une so"]
    assert len(engine.requests) == 4


async def test_what_the_source_repeats_is_no_loop(tokenizer: Tokenizer) -> None:
    pipeline, engine = translator(tokenizer, lambda request, source: source.upper())
    text = "a dog and a dog and a dog and a dog and a dog."

    assert (await both_ways(pipeline, text)).texts == (text.upper(),)
    assert len(engine.requests) == 2


async def test_a_second_loop_ends_by_length(tokenizer: Tokenizer) -> None:
    def answer(request: GenerationRequest, source: str) -> str:
        is_second = request.processors.no_repeat_ngram_size > 0
        return "un chien " + "".join(map(chr, range(97, 123))) * 9 if is_second else LOOP

    pipeline, _ = translator(tokenizer, answer)
    translation = await both_ways(pipeline, "a dog.")

    assert translation.renderings[0][0].reason is FinishReason.LENGTH
    assert len(translation.texts[0]) < 40


async def test_hypotheses_of_a_beam_search_are_replaced_together(tokenizer: Tokenizer) -> None:
    pipeline, _ = translator(tokenizer, looping)
    decoding = Decoding(beam=BeamParams(2, num_hypotheses=2))

    translation = await both_ways(
        pipeline, "a dog and a cat.", decoding=decoding, num_alternatives=1
    )

    texts = [rendering.text for rendering in translation.renderings[0]]
    assert texts == ["un chien et un chat dorment.", "un chien et un chat dorment.!"]


async def test_what_a_client_began_with_stays(tokenizer: Tokenizer) -> None:
    pipeline, engine = translator(tokenizer, looping)
    prefix = "un chien et un chien "
    await pipeline.run(
        TranslationJob("job", ("a dog.",), "en", "fr", target_prefix=prefix, protection=True)
    )

    assert len(engine.requests) == 2
    assert tokenizer.decode(engine.requests[1].forced_ids).startswith(prefix.strip())


@pytest.mark.parametrize("glossary", [(), (GlossaryEntry("dog", ("clebs",)),)])
async def test_second_tries_have_the_timeout_of_the_job(
    tokenizer: Tokenizer, glossary: tuple[GlossaryEntry, ...]
) -> None:
    pipeline, engine = translator(tokenizer, looping)
    decoding = Decoding(timeout_seconds=30.0)
    before = time.perf_counter()
    job = TranslationJob(
        "job", ("a dog.",), "en", "fr", decoding, glossary=glossary, protection=True
    )
    await pipeline.run(job)

    first, *others = engine.requests
    assert first.job_accepted_at is None
    assert others and {request.timeout_seconds for request in others} == {30.0}
    accepted = {request.job_accepted_at for request in others}
    assert all(at is not None and 0 <= at - before < 1 for at in accepted)


async def test_a_server_that_is_full_lets_second_tries_in(tokenizer: Tokenizer) -> None:
    """The engine takes one request at a time, and refuses others that do not go on with a job."""
    pipeline, engine = translator(tokenizer, looping)
    engine.max_waiting = 0
    with pytest.raises(Overloaded):
        await pipeline.run(TranslationJob("job", ("a dog.",), "en", "fr", protection=True))
    engine.max_waiting = 1
    job = TranslationJob("job", ("a dog.",), "en", "fr", protection=True)
    fill = engine.script

    def filling(request: GenerationRequest) -> Sequence[int]:
        engine.max_waiting = 0
        return fill(request)

    engine.script = filling
    assert (await pipeline.run(job)).texts[0].startswith("un chien et un c")


def omitting(request: GenerationRequest, source: str) -> str:
    """Leave words out, unless it is a beam search."""
    return "rue Verte" if request.beam else "Street"


async def test_another_hypothesis_has_the_words(tokenizer: Tokenizer) -> None:
    pipeline, engine = translator(tokenizer, omitting)

    assert (await both_ways(pipeline, "Green Street")).texts == ("rue Verte",)
    assert [request.beam is not None for request in engine.requests] == [False, True] * 2


@pytest.mark.parametrize(
    ("text", "answer", "options", "expected"),
    [
        ("Green Street", "Street", {}, "Green Street"),
        ("Green Street", "", {}, "Green Street"),
        ("  Green Street \n", "Street", {}, "  Green Street \n"),
        ("Green a@b.com", "%1", {}, "Green a@b.com"),
        ("Green Street 12", "Street 12", {}, "Green Street 12"),
        ("<p><x>1</x> Old <b>Town</b></p>", "%1", {"markup": XML}, None),
        ("<p>Old &amp; big <x>1</x></p>", "%1", {"markup": XML}, None),
    ],
)
async def test_what_fails_twice_stays_in_its_language(
    tokenizer: Tokenizer, text: str, answer: str, options: dict[str, Any], expected: str | None
) -> None:
    pipeline, _ = translator(tokenizer, lambda request, source: answer)
    translation = await both_ways(pipeline, text, **options)

    assert translation.texts == (text if expected is None else expected,)
    assert translation.renderings[0][0].reason is FinishReason.STOP


@pytest.mark.parametrize(
    "options",
    [
        {"target_prefix": "St"},
        {"decoding": Decoding(max_new_tokens=3)},
        {"protection": False},
    ],
)
async def test_what_was_begun_or_cut_or_is_not_protected_is_taken_as_it_is(
    tokenizer: Tokenizer, options: dict[str, Any]
) -> None:
    pipeline, engine = translator(tokenizer, omitting)
    await pipeline.run(
        TranslationJob("job", ("Green Street",), "en", "fr", **{"protection": True, **options})
    )
    assert len(engine.requests) == 1


@pytest.mark.parametrize(
    ("max_rows", "num_beams", "expected"),
    [(1, [], "Green Street"), (2, [2], "rue Verte"), (3, [3], "rue Verte"), (9, [4], "rue Verte")],
)
async def test_a_second_try_has_at_most_the_rows_of_the_engine(
    tokenizer: Tokenizer, max_rows: int, num_beams: list[int], expected: str
) -> None:
    pipeline, engine = translator(tokenizer, omitting, max_rows)

    assert (await both_ways(pipeline, "Green Street")).texts == (expected,)
    assert [request.beam.num_beams for request in engine.requests if request.beam] == num_beams * 2


@pytest.mark.parametrize("max_rows", [1, 2, 3])
async def test_terms_are_put_in_place_with_few_rows(tokenizer: Tokenizer, max_rows: int) -> None:
    pipeline, engine = translator(tokenizer, lambda request, source: source, max_rows)
    translation = await both_ways(pipeline, "a dog.", glossary=(GlossaryEntry("dog", ("clebs",)),))

    assert translation.texts == ("a clebs.",)
    assert max(request.num_rows for request in engine.requests) == max_rows


async def test_where_words_are_aligned_the_first_translation_stays(tokenizer: Tokenizer) -> None:
    pipeline, engine = translator(tokenizer, lambda request, source: "Street")
    translation = await both_ways(pipeline, "Green Street", returns_alignments=True)
    assert translation.texts == ("Street",)
    assert len(engine.requests) == 4


async def test_terms_are_put_into_second_translations(tokenizer: Tokenizer) -> None:
    pipeline, _ = translator(tokenizer, looping)
    translation = await both_ways(
        pipeline, "a dog and a cat.", glossary=(GlossaryEntry("cat", ("matou",)),)
    )
    assert "matou" in translation.texts[0]
    assert translation.texts[0].count("un chien") == 1
