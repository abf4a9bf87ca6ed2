"""Completions: streamed = whole, stop strings, several choices, cancellation."""

import asyncio
from typing import Any

import pytest

from serving.errors import RequestError
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import CompletionJob
from serving.requests.parameters import SamplingParams
from serving.requests.request import FinishReason
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import scripted_generator

OWN = ("num_samples", "stop", "echo", "streams")


def job(*prompts: str | tuple[int, ...], **options: Any) -> CompletionJob:
    """Options of the decoding and of the job itself."""
    job_options = {name: options.pop(name) for name in OWN if name in options}
    return CompletionJob(
        "job", prompts, Decoding(**{"max_new_tokens": 100, **options}), **job_options
    )


async def test_streamed_is_whole(tokenizer: Tokenizer) -> None:
    pipeline, _ = scripted_generator(tokenizer, "été €😀 end")

    deltas = [delta async for delta in pipeline.stream(job("p"))]

    assert [delta.text for delta in deltas][:4] == ["é", "t", "é", " "]
    assert "".join(delta.text for delta in deltas) == "été €😀 end"
    assert [delta.finish_reason for delta in deltas][-1] is FinishReason.STOP
    assert (deltas[-1].num_prompt_tokens, deltas[-1].num_generated_tokens) == (2, 17)


async def test_a_character_cut_by_the_length_limit(tokenizer: Tokenizer) -> None:
    pipeline, _ = scripted_generator(tokenizer, "a€")

    [whole] = await pipeline.run(job("p", max_new_tokens=2))

    assert (whole.text, whole.finish_reason) == ("a\ufffd", FinishReason.LENGTH)


async def test_a_stop_string_ends_the_text_and_the_request(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer, "one two three")

    [whole] = await pipeline.run(job("p", stop=(" two", "three")))

    assert (whole.text, whole.finish_reason) == ("one", FinishReason.STOP)
    assert engine.cancelled == ["job-0"]


async def test_choices_are_numbered_prompt_by_prompt(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer, "x")
    sampling = SamplingParams(temperature=1.0, seed=7)

    whole = await pipeline.run(job("a", (100,), num_samples=2, sampling=sampling, echo=True))

    assert [choice.index for choice in whole] == [0, 1, 2, 3]
    assert [choice.text for choice in whole][:2] == ["ax", "ax"]
    seeds = {request.request_id: request.sampling.seed for request in engine.requests}
    assert seeds == {"job-0": 7, "job-1": 8, "job-2": 7, "job-3": 8}


async def test_logprobs_name_tokens(tokenizer: Tokenizer) -> None:
    pipeline, _ = scripted_generator(tokenizer, "aé")

    [whole] = await pipeline.run(job("p", logprobs=1))

    assert [token.text for token in whole.tokens] == ["a", "bytes:\\xc3", "bytes:\\xa9", ""]
    assert [token.offset for token in whole.tokens] == [0, 1, 1, 2]
    assert whole.tokens[0].top == ((b"a", -0.5),)


@pytest.mark.parametrize("num_samples", [1, 3])
async def test_closing_the_stream_cancels(tokenizer: Tokenizer, num_samples: int) -> None:
    pipeline, engine = scripted_generator(tokenizer)
    stream = pipeline.stream(job("p", num_samples=num_samples, streams=True))

    await anext(stream)
    await stream.aclose()

    assert sorted(engine.cancelled) == [f"job-{index}" for index in range(num_samples)]


async def test_a_cancelled_task_cancels_its_requests(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer)
    engine.gate = asyncio.Event()
    task = asyncio.create_task(pipeline.run(job("p", num_samples=2)))
    await asyncio.sleep(0.01)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert sorted(engine.cancelled) == ["job-0", "job-1"]


@pytest.mark.parametrize(
    ("prompt", "max_new_tokens", "field"),
    [
        ((259,), 1, "prompt"),
        ((-1,), 1, "prompt"),
        ((), 1, "prompt"),
        ("x" * 127, 1, "prompt"),
        ("x" * 100, 28, "max_tokens"),
    ],
)
async def test_what_does_not_fit_is_refused(
    tokenizer: Tokenizer, prompt: str | tuple[int, ...], max_new_tokens: int, field: str
) -> None:
    pipeline, engine = scripted_generator(tokenizer)

    with pytest.raises(RequestError) as caught:
        await anext(pipeline.stream(job(prompt, max_new_tokens=max_new_tokens)))

    assert caught.value.field == field
    assert engine.requests == []
