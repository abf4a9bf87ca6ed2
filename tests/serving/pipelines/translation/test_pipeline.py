"""Translation: one batch per request, whitespace put back, clear refusals."""

import asyncio
import inspect
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from serving.bundle.manifest import Task
from serving.errors import EngineError, EngineStopped, OutOfMemory, Overloaded, RequestError
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair
from serving.requests.request import AbortedEvent, FailedEvent, FinalEvent
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import EOS, FakeEngine, manifest, shouting_translator


def job(*texts: str, source: str = "en", target: str = "fr") -> TranslationJob:
    return TranslationJob("job", texts, source, target)


async def test_sentences_are_one_batch_and_whitespace_is_put_back(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    translation = await pipeline.run(job(" One.  Two.\n\n\tThree. ", "Four."))

    assert translation.texts == (" ONE.  TWO.\n\n\tTHREE. ", "FOUR.")
    assert engine.num_runs == 1
    assert [request.request_id for request in engine.requests] == [f"job-{i}" for i in range(4)]
    assert all(request.source_ids and request.source_ids[-1] == EOS for request in engine.requests)


async def test_a_plain_job_meets_only_the_steps_that_it_asks_for(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)
    plain = TranslationJob("job", ("A dog runs. It is fast.",), "en", "fr", protection=True)
    folder = Path(inspect.getfile(TranslationPipeline)).parent
    entered: set[str] = set()

    def note_file(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if path.parent == folder:
            entered.add(path.stem)

    sys.setprofile(note_file)
    try:
        await pipeline.run(plain)
    finally:
        sys.setprofile(None)

    steps = {"pipeline", "segmenting", "requests", "fallback", "rendering"}
    values = {"job", "plan", "tokenizer_pair", "omission", "messages"}  # the last asks once
    assert steps <= entered <= steps | values


async def test_very_many_texts_leave_the_event_loop_free(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)
    translating = asyncio.create_task(pipeline.run(job(*[""] * 20_000)))

    await asyncio.sleep(0)

    assert not translating.done()
    assert len((await translating).texts) == 20_000


async def test_tokens_are_counted(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    translation = await pipeline.run(job("abc", "de"))

    assert (translation.num_source_tokens, translation.num_generated_tokens) == (7, 5)


@pytest.mark.parametrize("text", ["", "  ", "\n"])
async def test_text_without_words_never_reaches_the_engine(tokenizer: Tokenizer, text: str) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    assert (await pipeline.run(job(text))).texts == (text,)
    assert engine.requests == []


async def test_every_segment_fits_the_model(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    text = "word " * 2000

    translation = await pipeline.run(job(text))

    assert translation.texts == (text.upper(),)
    assert max(len(request.source_ids or ()) for request in engine.requests) <= 64


@pytest.mark.parametrize(
    ("source", "target", "field"), [("xx", "fr", "source"), ("en", "", "target")]
)
async def test_a_language_the_model_lacks(
    tokenizer: Tokenizer, source: str, target: str, field: str
) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    with pytest.raises(RequestError) as caught:
        await pipeline.run(job("a", source=source, target=target))
    assert caught.value.field == field


async def test_too_many_sentences(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer, max_segments=3)

    with pytest.raises(RequestError, match="at most 3 sentences a request, this has 4"):
        await pipeline.run(job("A.\nB.\nC.\nD."))
    assert engine.requests == []


async def test_overload_is_passed_on(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    engine.max_waiting = 1

    with pytest.raises(Overloaded):
        await pipeline.run(job("A.\nB."))


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (FailedEvent("r", ValueError("bad")), EngineError),
        (FailedEvent("r", EngineStopped("dead")), EngineStopped),
        (FailedEvent("r", OutOfMemory("full")), OutOfMemory),
        (AbortedEvent("r"), EngineStopped),
    ],
)
async def test_a_failed_segment_fails_the_request(
    tokenizer: Tokenizer, end: FinalEvent, error: type[Exception]
) -> None:
    class FailingEngine(FakeEngine):
        async def run(self, requests: object) -> list[FinalEvent]:
            return [end]

    engine = FailingEngine(lambda request: [])
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    pipeline = TranslationPipeline(manifest(Task.TRANSLATE), tokenizers, engine)

    with pytest.raises(error):
        await pipeline.run(job("A."))
