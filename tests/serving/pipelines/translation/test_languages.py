"""Models of several languages: what a pair adds around a text, and which pair a client means."""

import json
from pathlib import Path
from typing import Any

import pytest

from serving.bundle.manifest import LanguageIds, Task, Tokens
from serving.errors import RequestError
from serving.pipelines.catalog import Catalog
from serving.pipelines.decoding import Decoding
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import ScoreJob, TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.parameters import BeamParams
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import BOS, EOS, FakeEngine, manifest, shouting_translator
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

ENG, FRA, POR, TO_FRA, TO_POR = 11, 12, 13, 14, 15
NLLB = ("eng_Latn", "fra_Latn", "por_Latn")


def many(
    tokenizer: Tokenizer, name: str = "many", **changes: Any
) -> tuple[TranslationPipeline, FakeEngine]:
    """Source: `>>target<< source BOS text EOS source`; the target begins with its language."""
    ids = dict(zip(NLLB, (ENG, FRA, POR), strict=True))
    tokens = Tokens(
        *(0, BOS, EOS, (BOS,), (EOS,), (EOS,), (EOS,)),
        sources={code: LanguageIds((i,), (i,), ()) for code, i in ids.items()},
        targets={
            "fra_Latn": LanguageIds((TO_FRA,), (), (FRA,)),
            "por_Latn": LanguageIds((TO_POR,), (), (POR, POR)),
        },
    )
    languages = {"source_languages": NLLB, "target_languages": NLLB, "tokens": tokens}
    return shouting_translator(tokenizer, name, **{**languages, **changes})


def bilingual(tokenizer: Tokenizer, name: str, source: str, target: str) -> TranslationPipeline:
    languages: dict[str, Any] = {"source_languages": (source,), "target_languages": (target,)}
    return shouting_translator(tokenizer, name, **languages)[0]


async def test_a_pair_adds_what_it_needs(tokenizer: Tokenizer) -> None:
    pipeline, engine = many(tokenizer)

    await pipeline.run(TranslationJob("job", ("a",), "en", "pt-BR"))

    [request] = engine.requests
    [a] = tokenizer.encode("a")
    assert request.source_ids == (TO_POR, ENG, BOS, a, EOS, ENG)
    assert request.prompt_ids == (POR, POR)


async def test_a_language_counts_in_the_length_of_a_hypothesis(tokenizer: Tokenizer) -> None:
    pipeline, engine = many(tokenizer)
    decoding = Decoding(beam=BeamParams(2))

    for target in ("fr", "pt", "en"):
        source = "fr" if target == "en" else "en"
        await pipeline.run(TranslationJob("job", ("a",), source, target, decoding))

    assert [request.beam and request.beam.num_counted for request in engine.requests] == [1, 2, 0]


async def test_languages_without_tokens_add_nothing(tokenizer: Tokenizer) -> None:
    pipeline, engine = many(tokenizer)

    await pipeline.run(TranslationJob("job", ("a",), "fra", "en"))

    assert engine.requests[0].prompt_ids == ()
    assert (engine.requests[0].source_ids or ())[:2] == (FRA, BOS)


async def test_scores_prefixes_and_alternatives_know_the_pair(tokenizer: Tokenizer) -> None:
    pipeline, engine = many(tokenizer)
    options: dict[str, Any] = {
        "num_alternatives": 2,
        "target_prefix": "b c ",
        "alternatives_at_prefix": True,
    }

    await pipeline.run(TranslationJob("job", ("a",), "en", "fr", **options))
    await pipeline.run(ScoreJob("job", (("a", "b"),), "en", "fr"))

    assert len(engine.requests) == 1 + 2 * 3 + 1  # a probe, two prefixes for each text, a score
    assert {request.prompt_ids for request in engine.requests} == {(FRA,)}
    assert len({request.source_ids for request in engine.requests}) == 1


async def test_what_languages_add_is_no_word(tokenizer: Tokenizer) -> None:
    """A prefix in plain words, as T5 has them, belongs to no alignment."""
    words = tuple(tokenizer.encode("translate to French: "))
    tokens = Tokens(*(0, BOS, EOS, (), (EOS,), (BOS,), (EOS,)), targets={"fr": LanguageIds(words)})
    pipeline, _ = shouting_translator(tokenizer, tokens=tokens)
    job = TranslationJob(
        "j", ("ab cd",), "en", "fr", returns_alignments=True, returns_attention=True
    )

    translation = await pipeline.run(job)

    [[best]] = translation.renderings
    assert best.alignment is not None
    assert best.alignment.source_words == ("ab", "cd")
    assert best.attention[0].source_words == ("ab", "cd", "")
    assert len(best.attention[0].weights[0]) == len(words) + 6


async def test_segments_leave_room_for_what_languages_add(tokenizer: Tokenizer) -> None:
    tokens = Tokens(
        *(0, BOS, EOS, (), (EOS,), (BOS,), (EOS,)),
        sources={"en": LanguageIds((BOS,) * 20, (BOS,) * 10)},
        targets={"fr": LanguageIds((BOS,) * 10)},
    )
    pipeline, engine = shouting_translator(tokenizer, tokens=tokens)
    text = "word " * 200

    translation = await pipeline.run(TranslationJob("job", (text,), "en", "fr"))

    assert translation.texts == (text.upper(),)
    lengths = [len(request.source_ids or ()) for request in engine.requests]
    assert 41 < max(lengths) <= 64


async def test_each_side_has_its_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Make every id of the source's vocabulary one more than of the target's."""
    shifted = json.loads(write_byte_tokenizer(tmp_path / "target.json").read_text())
    vocab = shifted["model"]["vocab"]
    shifted["model"]["vocab"] = {"<none>": 3} | {token: i + (i > 2) for token, i in vocab.items()}
    (tmp_path / "source.json").write_text(json.dumps(shifted))
    source = Tokenizer(tmp_path / "source.json")
    engine = FakeEngine(lambda request: [i - 1 for i in (request.source_ids or ())[:-1]])
    card = manifest(Task.TRANSLATE)
    pipeline = TranslationPipeline(card, TokenizerPair(source, tokenizer), engine)
    job = TranslationJob("job", ("ab cd",), "en", "fr", target_prefix="x ", returns_attention=True)

    [[best]] = (await pipeline.run(job)).renderings
    [score] = await pipeline.run(ScoreJob("job", (("ab", "cd"),), "en", "fr"))

    assert best.text == "xab cd"
    assert best.attention[0].source_words == ("ab", "cd", "")
    assert best.attention[0].target_words == ("xab", "cd")
    assert [text for text, _ in score.tokens] == ["c", "d", ""]


@pytest.mark.parametrize(
    ("source", "target", "field", "message"),
    [
        ("xx", "fr", "source", "has eng_Latn, fra_Latn, por_Latn"),
        ("en", "xx", "target", "has fra_Latn, por_Latn"),
        ("en", "eng_Latn", "target", "has fra_Latn, por_Latn"),
    ],
)
async def test_pairs_that_are_refused(
    tokenizer: Tokenizer, source: str, target: str, field: str, message: str
) -> None:
    pipeline, _ = many(tokenizer)

    with pytest.raises(RequestError, match=message) as caught:
        await pipeline.run(TranslationJob("job", ("a",), source, target))
    assert caught.value.field == field


async def test_a_script_is_not_taken_for_another_because_it_is_the_only_one_left(
    tokenizer: Tokenizer,
) -> None:
    codes = ("zho_Hans", "zho_Hant", "eng_Latn")
    pipeline = shouting_translator(tokenizer, source_languages=codes, target_languages=codes)[0]

    assert pipeline.card.languages("zh", "zh-TW") == ("zho_Hans", "zho_Hant")
    for source, target in (("zh", "zh"), ("zh-CN", "zh"), ("zt", "zh-Hant"), ("en", "EN-GB")):
        assert not pipeline.card.translates(source, target)


async def test_an_ambiguous_language_names_the_choices(tokenizer: Tokenizer) -> None:
    pipeline, _ = many(tokenizer, target_languages=("pt", "pt_BR"))

    with pytest.raises(RequestError, match=r"target: .*pt, pt_BR"):
        await pipeline.run(TranslationJob("job", ("a",), "en", "por"))


@pytest.mark.parametrize("language", ["en", "und"])
async def test_a_model_of_one_language_may_stay_in_it(tokenizer: Tokenizer, language: str) -> None:
    pipeline = bilingual(tokenizer, "same", language, language)

    translation = await pipeline.run(TranslationJob("job", ("a",), language, language))

    assert translation.texts == ("A",)


async def test_the_catalog_finds_the_model_of_a_pair(tokenizer: Tokenizer) -> None:
    languages = ("zho_Hans", "zho_Hant", "deu_Latn", "spa", "spa_ES")
    zh = many(tokenizer, "zh", target_languages=languages)[0]
    catalog = Catalog([zh, many(tokenizer)[0], bilingual(tokenizer, "plain", "en", "es")])

    for pair, name in {
        ("en", "pt"): "many",
        ("fr", "EN"): "many",
        ("en", "es"): "plain",
        ("en", "zh"): "zh",
        ("en", "zh-Hant"): "zh",
        ("en", "de"): "zh",
    }.items():
        assert (await find_translator(catalog, None, *pair)).card.name == name
    with pytest.raises(RequestError, match=r"source: .*fra_Latn to spa, fra_Latn to spa_ES"):
        await find_translator(catalog, None, "fr", "es")
    with pytest.raises(
        RequestError, match=r"target: .*there are: deu_Latn, es, fra_Latn, por_Latn, spa"
    ):
        await find_translator(catalog, None, "en", "xx")
