"""Seeds of one translation job: sentences draw apart, and each text as it draws alone."""

from pathlib import Path
from typing import Any

from serving.bundle.manifest import Precision
from serving.engine.config import EngineConfig
from serving.parameters import MAX_SEED, SamplingParams
from serving.pipelines.decoding import Decoding
from serving.pipelines.loading import opened
from serving.pipelines.translation.job import TranslationJob
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import shouting_translator
from tests.tiny import tiny_bundle


async def seeds(
    tokenizer: Tokenizer, *texts: str, seed: int | None = 7, **options: Any
) -> list[int | None]:
    """The seeds of a job's requests, those that only look for alternatives left out."""
    pipeline, engine = shouting_translator(tokenizer)
    decoding = Decoding(SamplingParams(temperature=1.0, seed=seed))
    await pipeline.run(TranslationJob("job", texts, "en", "fr", decoding, **options))
    asked = [request for request in engine.requests if "next" not in request.request_id]
    return [request.sampling.seed for request in asked]


async def test_sentences_count_within_their_text(tokenizer: Tokenizer) -> None:
    texts = ("A dog.\nCats sleep. Dogs run.", "", "G.", "H.\nI.")

    assert await seeds(tokenizer, *texts) == [7, 8, 9, 7, 7, 8]


async def test_seeds_go_round(tokenizer: Tokenizer) -> None:
    assert await seeds(tokenizer, "A.\nB.\nC.", seed=MAX_SEED) == [MAX_SEED, 0, 1]
    assert await seeds(tokenizer, "A.\nB.\nC.", seed=-2) == [-2, MAX_SEED, 0]


async def test_without_a_seed_each_sentence_draws_a_fresh_one(tokenizer: Tokenizer) -> None:
    assert await seeds(tokenizer, "A.\nB.", seed=None) == [None, None]


async def test_alternatives_at_a_prefix_draw_as_their_prefixes_do_alone(
    tokenizer: Tokenizer,
) -> None:
    options: dict[str, Any] = {"alternatives_at_prefix": True, "num_alternatives": 2}

    assert await seeds(tokenizer, "A.\nB.", "C.", **options) == [*[7] * 6, 8, *[7] * 6]
    assert await seeds(tokenizer, "A.\nB.", target_prefix="B ") == [7, 8]


async def test_a_list_of_texts_gives_what_its_texts_give_alone(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer", tmp_path, Precision.FP32)
    decoding = Decoding(SamplingParams(temperature=1.0, seed=3), max_new_tokens=8)
    texts = ("A dog.\nA dog.\nA dog.", "A cat.\nA dog.", "A dog.")

    async with opened(bundle, EngineConfig(slots=4)) as catalog:
        [card] = catalog.own_cards
        languages = card.source_languages[0], card.target_languages[0]
        model = await catalog.translator(card.name, *languages)

        async def translated(*texts: str) -> tuple[str, ...]:
            job = TranslationJob("job", texts, *languages, decoding)
            return (await model.run(job)).texts

        together = await translated(*texts)
        alone = [text for each in texts for text in await translated(each)]

    assert list(together) == alone
    assert len(set(together[0].split("\n"))) > 1
    assert together[0].startswith(together[2])
