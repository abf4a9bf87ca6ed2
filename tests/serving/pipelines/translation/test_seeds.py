"""Seeds of one translation job: sentences draw apart, and each text as it draws alone."""

from typing import Any

from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import TranslationJob
from serving.requests.parameters import MAX_SEED, SamplingParams
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import shouting_translator


async def seeds(
    tokenizer: Tokenizer, *texts: str, seed: int | None = 7, **options: Any
) -> list[int | None]:
    """The seeds of a job's requests, those that only look for alternatives left out."""
    pipeline, engine = shouting_translator(tokenizer)
    decoding = Decoding(SamplingParams(temperature=1.0, seed=seed))
    await pipeline.run(TranslationJob("job", texts, "en", "fr", decoding, **options))
    requests = [request for request in engine.requests if "next" not in request.request_id]
    return [request.sampling.seed for request in requests]


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
