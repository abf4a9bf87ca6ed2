"""Tests that what a completion asks of decoding reaches the engine; beams, echoes and grammars come
back.
"""

import pickle
from typing import Any

import pytest

from serving.errors import DeadlineExceeded, RequestError
from serving.pipelines.completion.pipeline import CompletionPipeline
from serving.pipelines.decoding import Decoding, Structure
from serving.pipelines.jobs import CompletionDelta, CompletionJob
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import FinishReason, GenerationRequest
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import BOS, EOS, FakeEngine, scripted_generator

BEAMS = BeamParams(4, num_hypotheses=3)


async def complete(
    pipeline: CompletionPipeline,
    decoding: Decoding,
    *prompts: str | tuple[int, ...],
    **options: Any,
) -> list[CompletionDelta]:
    job = CompletionJob("job", prompts or ("p",), decoding, **options)
    return await pipeline.run(job)


def only(engine: FakeEngine) -> GenerationRequest:
    [request] = engine.requests
    return request


async def test_all_of_decoding_reaches_the_engine(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer)
    decoding = Decoding(
        sampling=SamplingParams(temperature=0.5, min_p=0.1, seed=3),
        processors=ProcessorParams(repetition_penalty=1.5, min_tokens=2),
        bad_words=("no", " so"),
        stop_token_ids=(7,),
        ignore_eos=True,
        max_new_tokens=9,
        logprobs=2,
        priority=-3,
        timeout_seconds=1.5,
    )

    await complete(pipeline, decoding, streams=True)

    request = only(engine)
    assert request.sampling == decoding.sampling
    assert request.processors.repetition_penalty == 1.5
    words = [tokenizer.decode(word) for word in request.processors.bad_words]
    assert words == ["no", " no", "so", " so"]
    assert (request.stop_token_ids, request.ignore_eos) == ((7,), True)
    assert (request.max_new_tokens, request.logprobs, request.streams) == (9, 2, True)
    assert (request.priority, request.timeout_seconds) == (-3, 1.5)


async def test_hypotheses_are_the_choices_of_a_prompt(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer, "hé")

    whole = await complete(pipeline, Decoding(beam=BEAMS, max_new_tokens=9), "p", "q")

    assert [request.request_id for request in engine.requests] == ["job-0", "job-3"]
    assert [choice.text for choice in whole] == ["hé", "hé!", "hé!!"] * 2
    assert [choice.num_generated_tokens for choice in whole][:3] == [3, 4, 5]
    assert {choice.finish_reason for choice in whole} == {FinishReason.STOP}


async def test_the_best_hypothesis_is_told_as_it_grows(tokenizer: Tokenizer) -> None:
    pipeline, _ = scripted_generator(tokenizer, "hé")
    job = CompletionJob("job", ("p",), Decoding(beam=BEAMS, max_new_tokens=9), streams=True)

    deltas = [delta async for delta in pipeline.stream(job)]

    pieces = [(delta.index, delta.text, delta.finish_reason) for delta in deltas]
    assert pieces[:3] == [(0, "h", None), (0, "é", None), (0, "", FinishReason.STOP)]
    assert pieces[3:] == [(1, "hé!", FinishReason.STOP), (2, "hé!!", FinishReason.STOP)]


@pytest.mark.parametrize(("beams", "is_cancelled"), [(BeamParams(4), True), (BEAMS, False)])
async def test_a_stop_string_cuts_each_hypothesis(
    tokenizer: Tokenizer, beams: BeamParams, is_cancelled: bool
) -> None:
    """With others to come the search goes on; alone it is over."""
    pipeline, engine = scripted_generator(tokenizer, "one two!")

    whole = await complete(pipeline, Decoding(beam=beams, max_new_tokens=20), stop=(" tw", "!!"))

    assert {choice.text for choice in whole} == {"one"}
    assert bool(engine.cancelled) == is_cancelled


async def test_hypotheses_that_were_not_found_are_empty(tokenizer: Tokenizer) -> None:
    """A constraint that cannot be met ends a search without any."""

    pipeline, engine = scripted_generator(tokenizer, "")
    engine.end, engine.most_hypotheses = FinishReason.CONSTRAINT, 1

    whole = await complete(pipeline, Decoding(beam=BEAMS, max_new_tokens=9))

    assert [choice.text for choice in whole] == ["", "", ""]
    assert {choice.finish_reason for choice in whole} == {FinishReason.CONSTRAINT}


async def test_logprobs_of_hypotheses_are_their_own(tokenizer: Tokenizer) -> None:
    pipeline, _ = scripted_generator(tokenizer, "a")

    whole = await complete(pipeline, Decoding(beam=BEAMS, max_new_tokens=9, logprobs=1))

    assert [[token.text for token in choice.tokens] for choice in whole] == [
        ["a", ""],
        ["a", "!", ""],
        ["a", "!", "!", ""],
    ]


async def test_an_echo_with_logprobs_forces_the_prompt(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer, "de")
    decoding = Decoding(logprobs=1, max_new_tokens=1)

    [whole] = await complete(pipeline, decoding, "abé", echo=True, stop=("b",))

    request = only(engine)
    assert (request.prompt_ids, tokenizer.decode(request.forced_ids)) == ((), "abé")
    assert (whole.text, whole.finish_reason) == ("abéd", FinishReason.LENGTH)
    names = [token.text for token in whole.tokens]
    assert names == ["a", "b", "bytes:\\xc3", "bytes:\\xa9", "d"]
    assert [token.offset for token in whole.tokens] == [0, 1, 2, 2, 3]
    assert (whole.num_prompt_tokens, whole.num_generated_tokens) == (5, 1)


async def test_scoring_a_prompt_generates_nothing(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer)
    decoding = Decoding(logprobs=0, max_new_tokens=0, stop_token_ids=(100,))

    [whole] = await complete(pipeline, decoding, (99, EOS, 100, 101), echo=True)

    assert only(engine).max_new_tokens == 0
    assert (only(engine).ignore_eos, only(engine).stop_token_ids) == (True, ())
    assert [token.logprob for token in whole.tokens] == [None, -0.5, -0.5, -0.5]
    assert (whole.text, whole.num_generated_tokens) == (tokenizer.decode((99, 100, 101)), 0)


async def test_stop_tokens_of_a_prompt_stand_beside_new_ones(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer, "d")
    decoding = Decoding(logprobs=0, max_new_tokens=1, stop_token_ids=(100,))

    [whole] = await complete(pipeline, decoding, (99, EOS, 100), echo=True)

    assert (only(engine).ignore_eos, only(engine).stop_token_ids) == (False, (100,))
    assert whole.text == tokenizer.decode((99, 100)) + "d"
    assert len(whole.tokens) == 4


async def test_a_first_token_without_context_has_no_logprob(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer, "", prompt_prefix=())
    decoding = Decoding(logprobs=1, max_new_tokens=0)

    [whole] = await complete(pipeline, decoding, "ab", echo=True)

    assert len(only(engine).prompt_ids) == len(only(engine).forced_ids) == 1
    assert [token.logprob for token in whole.tokens] == [None, -0.5]
    assert [token.offset for token in whole.tokens] == [0, 1]


@pytest.mark.parametrize("logprobs", [1, None])
@pytest.mark.parametrize("beam", [None, BEAMS])
@pytest.mark.parametrize(
    ("prefix", "prompt"), [((), "a"), ((BOS,), (BOS,)), ((BOS,), (99,)), ((), (99,))]
)
async def test_a_prompt_with_nothing_to_score_is_told_without_the_engine(
    tokenizer: Tokenizer,
    prefix: tuple[int, ...],
    prompt: str | tuple[int, ...],
    beam: BeamParams | None,
    logprobs: int | None,
) -> None:
    pipeline, engine = scripted_generator(tokenizer, prompt_prefix=prefix)
    decoding = Decoding(logprobs=logprobs, beam=beam, max_new_tokens=0)

    choices = await complete(pipeline, decoding, prompt, echo=True, num_samples=3)

    assert engine.requests == [] and len(choices) == 3
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
    for whole in choices:
        assert (whole.text, whole.finish_reason) == (tokenizer.decode(ids), FinishReason.LENGTH)
        reported = [(token.logprob, token.top) for token in whole.tokens]
        assert reported == ([(None, ())] if logprobs else [])
        assert (whole.num_prompt_tokens, whole.num_generated_tokens) == (1, 0)


async def test_ids_are_the_whole_prompt(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer, prompt_prefix=(BOS,))
    prompt_ids = (BOS, 99, EOS, 100)

    [whole] = await complete(pipeline, Decoding(max_new_tokens=2), prompt_ids)

    assert (only(engine).prompt_ids, only(engine).is_whole) == (prompt_ids, True)
    assert whole.num_prompt_tokens == 4


@pytest.mark.parametrize(
    ("decoding", "prompt", "field"),
    [
        (Decoding(processors=ProcessorParams(min_tokens=5), max_new_tokens=4), "p", "min_tokens"),
        (Decoding(beam=BEAMS, sampling=SamplingParams(0.5), max_new_tokens=4), "p", "temperature"),
        (Decoding(beam=BEAMS, sampling=SamplingParams(top_k=5), max_new_tokens=4), "p", "top_k"),
        (Decoding(bad_words=("x" * 65,), max_new_tokens=4), "p", "bad_words"),
        (
            Decoding(structure=Structure("regex", "a", "r"), ignore_eos=True, max_new_tokens=4),
            "p",
            "ignore_eos",
        ),
    ],
)
async def test_what_cannot_be_is_refused(
    tokenizer: Tokenizer, decoding: Decoding, prompt: str | tuple[int, ...], field: str
) -> None:
    pipeline, engine = scripted_generator(tokenizer)

    with pytest.raises(RequestError) as caught:
        await anext(pipeline.stream(CompletionJob("job", (prompt,), decoding, echo=True)))

    assert caught.value.field == field
    assert engine.requests == []


@pytest.mark.parametrize(
    "structure",
    [
        Structure("json", '{"type": "integer"}', "json"),
        Structure("json_object", "", "json"),
        Structure("regex", "[0-9]+", "regex"),
        Structure("choice", ("yes", "no"), "choice"),
        Structure("grammar", 'start: "a"+', "grammar"),
    ],
    ids=lambda structure: structure.kind,
)
async def test_a_grammar_travels_as_text_and_is_compiled_here(
    tokenizer: Tokenizer, structure: Structure
) -> None:
    pipeline, engine = scripted_generator(tokenizer)
    job = CompletionJob("job", ("p",), Decoding(structure=structure, max_new_tokens=9))

    await pipeline.run(pickle.loads(pickle.dumps(job)))

    assert only(engine).constraint is not None


@pytest.mark.parametrize(
    "structure",
    [
        Structure("json", "{", "response_format"),
        Structure("json", '{"type": "no such"}', "response_format"),
        Structure("regex", "(", "guided_regex"),
        Structure("choice", (), "guided_choice"),
        Structure("grammar", "start: nothing", "guided_grammar"),
    ],
    ids=lambda structure: structure.kind,
)
async def test_what_does_not_compile_is_told_by_its_name(
    tokenizer: Tokenizer, structure: Structure
) -> None:
    pipeline, engine = scripted_generator(tokenizer)

    with pytest.raises(RequestError) as caught:
        await complete(pipeline, Decoding(structure=structure, max_new_tokens=9))

    assert caught.value.field == structure.field
    assert engine.requests == []


async def test_a_deadline_is_told_as_such(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_generator(tokenizer)
    engine.fails_after, engine.failure = 0, DeadlineExceeded(0.5)

    with pytest.raises(DeadlineExceeded):
        await complete(pipeline, Decoding(timeout_seconds=0.5, max_new_tokens=9))
