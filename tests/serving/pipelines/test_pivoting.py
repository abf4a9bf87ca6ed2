"""Two models translate together what neither does alone, and say so."""

from collections.abc import Sequence
from typing import Any

import pytest

from serving.errors import DeadlineExceeded, RequestError
from serving.pipelines.catalog import Catalog
from serving.pipelines.decoding import Decoding
from serving.pipelines.pivoting import PivotTranslator
from serving.pipelines.routing import (
    find_translation_model,
    find_translator,
    sources_for,
    targets_by_source,
)
from serving.pipelines.translation.job import (
    GlossaryEntry,
    Translation,
    TranslationDelta,
    TranslationJob,
)
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.requests.parameters import BeamParams, SamplingParams
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, shouting_translator


def pipeline_for(
    tokenizer: Tokenizer, pairs: Sequence[str], **options: Any
) -> tuple[Catalog, dict[str, FakeEngine]]:
    """A catalog of models like "pt-en", and their engines; they all put text into capitals."""
    pipelines: list[TranslationPipeline] = []
    engines = {}
    for name in pairs:
        source, target = name.split("-")
        languages: dict[str, Any] = {"source_languages": (source,), "target_languages": (target,)}
        pipeline, engines[name] = shouting_translator(tokenizer, name, **languages, **options)
        pipelines.append(pipeline)
    return Catalog(pipelines), engines


async def pivot(catalog: Catalog, source: str = "pt", target: str = "fr") -> PivotTranslator:
    translator = await find_translator(catalog, None, source, target)
    assert isinstance(translator, PivotTranslator)
    return translator


async def test_two_models_translate_what_none_does(tokenizer: Tokenizer) -> None:
    catalog, engines = pipeline_for(tokenizer, ["pt-en", "en-fr"])

    translator = await pivot(catalog)
    translation = await translator.run(TranslationJob("job", ("um. dois.", ""), "pt", "fr"))

    assert translation.texts == ("UM. DOIS.", "")
    assert translator.pivot == "en"
    assert (translator.card.name, translator.card.source_languages) == ("pt-en+en-fr", ("pt",))
    [first, _], [second, _] = engines["pt-en"].requests, engines["en-fr"].requests
    assert tokenizer.decode(first.source_ids or ()) == "um."
    assert tokenizer.decode(second.source_ids or ()) == "UM."
    alone = await (await find_translator(catalog, "en-fr", "", "")).run(
        TranslationJob("job", ("UM. DOIS.", ""), "en", "fr")
    )
    assert translation.num_generated_tokens == 2 * alone.num_generated_tokens


async def test_a_language_is_not_brought_into_itself_through_another(tokenizer: Tokenizer) -> None:
    catalog, engines = pipeline_for(tokenizer, ["pt-en", "en-pt_BR"])

    for source, target in (("en", "en"), ("pt", "pt-BR"), ("pt_PT", "por")):
        translator = await find_translator(catalog, None, source, target)
        translation = await translator.run(TranslationJob("job", ("um. ",), source, target))
        assert translation.texts == ("um. ",)

    assert [engine.requests for engine in engines.values()] == [[], []]


async def test_one_model_is_better_than_two(tokenizer: Tokenizer) -> None:
    catalog, _ = pipeline_for(tokenizer, ["pt-en", "en-fr", "pt-fr"])

    assert (await find_translator(catalog, None, "pt", "fr")).card.name == "pt-fr"


@pytest.mark.parametrize(
    ("pairs", "name"),
    [
        (["pt-es", "es-fr", "pt-en", "en-fr"], "pt-en+en-fr"),
        (["pt-de", "pt-es", "es-fr", "de-fr"], "pt-de+de-fr"),
        (["es-fr", "de-fr", "pt-es", "pt-de"], "pt-es+es-fr"),
    ],
)
async def test_english_comes_first_then_the_order_of_the_models(
    tokenizer: Tokenizer, pairs: list[str], name: str
) -> None:
    catalog, _ = pipeline_for(tokenizer, pairs)

    assert (await pivot(catalog)).card.name == name


async def test_codes_may_be_written_in_several_ways(tokenizer: Tokenizer) -> None:
    catalog, _ = pipeline_for(tokenizer, ["por_Latn-eng_Latn", "en-fr_XX"])

    translator = await pivot(catalog, "pt", "FR")

    assert translator.pivot == "eng_Latn"
    translation = await translator.run(TranslationJob("job", ("a",), "pt", "FR"))
    assert translation.texts == ("A",)


@pytest.mark.parametrize(
    ("pairs", "source", "target"),
    [
        (["pt-en", "en-fr"], "fr", "pt"),
        (["en-fr", "fr-en"], "de", "de"),
        (["en-fr", "fr-en"], "de", "fr"),
        (["pt-en", "en-de", "de-fr"], "pt", "fr"),
    ],
)
async def test_what_cannot_be_reached_in_two_steps(
    tokenizer: Tokenizer, pairs: list[str], source: str, target: str
) -> None:
    catalog, _ = pipeline_for(tokenizer, pairs)

    with pytest.raises(RequestError):
        await find_translator(catalog, None, source, target)


async def test_a_pair_that_one_model_has_twice_is_for_the_client_to_choose(
    tokenizer: Tokenizer,
) -> None:
    both = ("pt", "pt_BR", "en")
    many, _ = shouting_translator(tokenizer, source_languages=("fr",), target_languages=both)
    plain, _ = shouting_translator(
        tokenizer, "plain", source_languages=("en",), target_languages=("pt",)
    )

    with pytest.raises(RequestError, match="cannot tell which of these is meant"):
        await find_translator(Catalog([many, plain]), None, "fr", "por")


async def test_it_can_be_refused(tokenizer: Tokenizer) -> None:
    catalog, _ = pipeline_for(tokenizer, ["pt-en", "en-fr"])

    with pytest.raises(RequestError, match="not a target language for pt; there are: en"):
        await find_translator(catalog, None, "pt", "fr", may_pivot=False)
    with pytest.raises(RequestError, match="not a target language"):
        await find_translation_model(catalog, None, "pt", "fr")


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("alignments", {"returns_alignments": True}),
        ("return_attention", {"returns_attention": True}),
        ("return_scores", {"returns_scores": True}),
        ("quality", {"returns_quality": True}),
        ("target_prefix", {"target_prefix": "Un"}),
        ("glossary", {"glossary": (GlossaryEntry("a", ("b",)),)}),
    ],
)
async def test_what_needs_one_model_is_refused_by_name(
    tokenizer: Tokenizer, field: str, options: dict[str, Any]
) -> None:
    catalog, engines = pipeline_for(tokenizer, ["pt-en", "en-fr"])

    with pytest.raises(RequestError, match=f"{field}: needs one model.*pt-en and en-fr"):
        await (await pivot(catalog)).run(TranslationJob("job", ("a",), "pt", "fr", **options))
    assert engines["pt-en"].requests == []


async def test_the_first_step_draws_nothing(tokenizer: Tokenizer) -> None:
    catalog, engines = pipeline_for(tokenizer, ["pt-en", "en-fr"])
    translator = await pivot(catalog)
    drawing = Decoding(SamplingParams(temperature=0.7), priority=3, share="key")
    searching = Decoding(beam=BeamParams(4, num_hypotheses=2), max_new_tokens=3)

    await translator.run(TranslationJob("job", ("a",), "pt", "fr", drawing))
    await translator.run(TranslationJob("other", ("a",), "pt", "fr", searching, 1))

    [greedy, searched], [drawn, ranked] = engines["pt-en"].requests, engines["en-fr"].requests
    assert (greedy.sampling.temperature, drawn.sampling.temperature) == (0.0, 0.7)
    assert (greedy.priority, greedy.share, drawn.share) == (3, "key", "key")
    assert searched.beam is not None and ranked.beam is not None
    assert (searched.beam.num_beams, searched.beam.num_hypotheses) == (4, 1)
    assert (searched.max_new_tokens, ranked.max_new_tokens) == (None, 3)


async def test_both_steps_share_one_deadline(tokenizer: Tokenizer) -> None:
    catalog, engines = pipeline_for(tokenizer, ["pt-en", "en-fr"])
    translator = await pivot(catalog)
    in_time = Decoding(timeout_seconds=60.0)
    late = Decoding(timeout_seconds=0.0011)

    await translator.run(TranslationJob("job", ("a",), "pt", "fr", in_time))
    with pytest.raises(DeadlineExceeded):
        await translator.run(TranslationJob("late", ("a long text. " * 20,), "pt", "fr", late))

    [request] = engines["en-fr"].requests
    assert request.timeout_seconds is not None and 50 < request.timeout_seconds < 60


async def test_markup_passes_through_both(tokenizer: Tokenizer) -> None:
    catalog, _ = pipeline_for(tokenizer, ["pt-en", "en-fr"])
    markup = Markup(MarkupKind.HTML)

    job = TranslationJob("job", ("<p>um</p>",), "pt", "fr", markup=markup)
    translation = await (await pivot(catalog)).run(job)

    assert translation.texts == ("<p>UM</p>",)


async def test_the_second_step_is_streamed(tokenizer: Tokenizer) -> None:
    catalog, _ = pipeline_for(tokenizer, ["pt-en", "en-fr"])
    job = TranslationJob("job", ("um. dois.",), "pt", "fr")

    items = [item async for item in (await pivot(catalog)).stream(job)]

    *deltas, last = items
    assert "".join(d.piece for d in deltas if isinstance(d, TranslationDelta)) == "UM. DOIS."
    assert isinstance(last, Translation)
    assert last == await (await pivot(catalog)).run(job)


async def test_languages_that_are_reached_by_two_are_listed(tokenizer: Tokenizer) -> None:
    catalog, _ = pipeline_for(tokenizer, ["pt-en", "en-fr", "en-de"])
    cards = await catalog.translator_cards()

    assert targets_by_source(cards) == {"pt": {"en", "fr", "de"}, "en": {"fr", "de"}}
    assert sources_for(cards, None) == ["pt", "en"]
    assert sources_for(cards, "en") == ["pt"]
    assert sources_for(cards, "de") == ["pt", "en"]
    assert sources_for(cards, "pt") == []
