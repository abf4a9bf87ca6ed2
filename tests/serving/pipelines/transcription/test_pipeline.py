"""Recordings become requests of windows, and their answers become transcripts."""

import asyncio
import zlib
from contextlib import aclosing
from itertools import pairwise

import numpy as np
import pytest

from serving.errors import Overloaded, RequestError
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import CompletionJob, DetokenizeJob, TokenizeJob
from serving.pipelines.transcription import pipeline as pipelines
from serving.pipelines.transcription.job import Segment, Transcription, TranscriptionJob
from serving.pipelines.transcription.pipeline import TranscriptionPipeline
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import GenerationRequest
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.transcription.scripted import (
    ENGLISH,
    ENGLISH_AUDIO,
    FRENCH,
    NO_SPEECH,
    NO_TIMES,
    PREVIOUS,
    RATE,
    START,
    TRANSCRIBE,
    TRANSLATE,
    Reply,
    at,
    recording,
    scripted_transcriber,
)

LOOP = " and so and so and so and so and so and so and so and so and so and so and so"


def write(tokenizer: Tokenizer, *parts: str | float) -> list[int]:
    """Return texts, and numbers as timestamps."""
    ids: list[int] = []
    for part in parts:
        ids += tokenizer.encode_inside(part) if isinstance(part, str) else [at(part)]
    return ids


class InTurn:
    """A script that gives one reply after another, the last one for ever."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def __call__(self, request: GenerationRequest) -> Reply:
        return self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]


def transcribe(
    pipeline: TranscriptionPipeline, seconds: float, language: str | None = "en", **options: object
) -> Transcription:
    job = TranscriptionJob("job", recording(seconds), language, **options)  # type: ignore[arg-type]
    transcription = asyncio.run(pipeline.run(job))
    assert isinstance(transcription, Transcription)
    return transcription


def test_a_window_begins_where_the_segments_before_end(tokenizer: Tokenizer) -> None:
    replies = InTurn(
        Reply(write(tokenizer, 0.0, " Hello", 10.0, 10.0, " there.", 24.5, 24.5, " Not fin")),
        Reply(write(tokenizer, 0.5, " Not finished yet.", 5.0)),
    )
    pipeline, engine = scripted_transcriber(tokenizer, replies)
    result = transcribe(pipeline, 40.0)
    assert result.text == "Hello there. Not finished yet."
    times = [(s.index, s.start, s.end, s.window_start) for s in result.segments]
    assert times == [(0, 0.0, 10.0, 0.0), (1, 10.0, 24.5, 0.0), (2, 24.5, 29.5, 24.5)]
    first, second = engine.requests
    assert first.prompt_ids == (START,) and first.forced_ids == (ENGLISH, TRANSCRIBE)
    # The next window reads the segments before, not what was not finished.
    before = write(tokenizer, 0.0, " Hello", 10.0, 10.0, " there.", 24.5)
    assert second.prompt_ids == (PREVIOUS, *before, START)
    assert first.is_whole and first.scored_ids == (NO_SPEECH,)
    assert result.segments[0].token_ids == tuple(write(tokenizer, 0.0, " Hello", 10.0))
    assert (result.language, result.language_probability, result.seconds) == ("en", 1.0, 40.0)
    num_unfinished = 1 + len(" Not fin")
    num_written = sum(len(segment.token_ids) for segment in result.segments)
    assert result.num_generated_tokens == num_written + num_unfinished + 2  # with both ends


def test_a_recording_of_one_window_is_one_request(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " Hi.", 2.0, 2.0))
    pipeline, engine = scripted_transcriber(tokenizer, InTurn(reply, Reply()))
    transcribe(pipeline, 2.0)
    assert len(engine.requests) == 1


@pytest.mark.parametrize("seconds", [30.0, 29.995, 30.005])
def test_exactly_one_window(tokenizer: Tokenizer, seconds: float) -> None:
    reply = Reply(write(tokenizer, 0.0, " Hi.", 12.0))  # ends with one timestamp: nothing follows
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    result = transcribe(pipeline, seconds)
    assert len(engine.requests) == 1 and result.text == "Hi."
    assert result.seconds == round(seconds * RATE) / RATE


def test_what_is_shorter_than_a_tenth_of_a_second_is_refused(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: Reply())
    for seconds in (0.0, 0.05):
        with pytest.raises(RequestError, match=r"at least 0\.1 seconds"):
            transcribe(pipeline, seconds)
    assert engine.requests == []
    assert transcribe(pipeline, 0.1).segments == ()


def test_silence_has_no_segments(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " you", 29.0), logprob=-1.5, no_speech=0.9)
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    result = transcribe(pipeline, 70.0)
    assert result.segments == () and result.text == ""
    # Silence is not decoded again, and each window is passed as a whole.
    assert len(engine.requests) == 3


def test_a_probable_text_is_not_silence(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " you", 29.0), logprob=-0.5, no_speech=0.9)
    pipeline, _ = scripted_transcriber(tokenizer, lambda request: reply)
    assert transcribe(pipeline, 20.0).text == "you"
    assert transcribe(pipeline, 20.0, no_speech_threshold=None).text == "you"
    assert transcribe(pipeline, 20.0, logprob_threshold=None).segments == ()


def test_a_repetitive_text_is_decoded_again(tokenizer: Tokenizer) -> None:
    text = LOOP.encode()
    assert len(text) / len(zlib.compress(text)) > 2.4

    def script(request: GenerationRequest) -> Reply:
        is_good = request.sampling.temperature >= 0.4
        return Reply(write(tokenizer, 0.0, " Good." if is_good else LOOP, 5.0))

    pipeline, engine = scripted_transcriber(tokenizer, script)
    result = transcribe(pipeline, 6.0)
    assert result.text == "Good." and result.segments[0].temperature == 0.4
    assert [request.sampling.temperature for request in engine.requests] == [
        0,
        *[0.2] * 5,
        *[0.4] * 5,
    ]
    assert [len(run) for run in engine.runs] == [1, 5, 5]
    num_loop, num_good = len(tokenizer.encode_inside(LOOP)) + 3, len(" Good.") + 3
    assert result.num_generated_tokens == 6 * num_loop + 5 * num_good


def test_an_improbable_text_is_decoded_again_until_the_last_temperature(
    tokenizer: Tokenizer,
) -> None:
    reply = Reply(write(tokenizer, 0.0, " Hm.", 5.0), logprob=-1.2)
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    result = transcribe(pipeline, 6.0, num_samples=2)
    assert [len(run) for run in engine.runs] == [1, 2, 2, 2, 2, 2]
    assert result.segments[0].temperature == 1.0
    assert result.segments[0].mean_logprob == pytest.approx(-1.2)
    accepted = transcribe(pipeline, 6.0, logprob_threshold=None)
    assert accepted.segments[0].temperature == 0.0


def test_the_end_counts_for_the_mean(tokenizer: Tokenizer) -> None:
    ids = write(tokenizer, 0.0, " Hm.", 5.0)
    pipeline, _ = scripted_transcriber(tokenizer, lambda request: Reply(ids, ends=False))
    [segment] = transcribe(pipeline, 6.0).segments
    # Without an end the sum is divided by one more all the same, as published.
    assert segment.mean_logprob == pytest.approx(-0.2 * len(ids) / (len(ids) + 1))


def test_the_best_sample_is_taken(tokenizer: Tokenizer) -> None:
    def script(request: GenerationRequest) -> Reply:
        if request.sampling.temperature == 0:
            return Reply(write(tokenizer, 0.0, LOOP, 5.0))
        number = int(request.request_id[-1])
        return Reply(write(tokenizer, 0.0, f" Take {number}.", 5.0), -0.1 * abs(number - 3) - 0.1)

    pipeline, _ = scripted_transcriber(tokenizer, script)
    assert transcribe(pipeline, 6.0).text == "Take 3."


def test_seeds_follow_from_the_job_alone(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, LOOP, 5.0))

    def seeds(seconds: float, seed: int | None = None) -> list[int | None]:
        pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
        decoding = Decoding(SamplingParams(seed=seed))
        transcribe(pipeline, seconds, decoding=decoding)
        return [r.sampling.seed for r in engine.requests if r.sampling.temperature > 0]

    assert seeds(6.0) == seeds(6.0) and len(set(seeds(40.0))) == 50
    assert seeds(40.0)[:25] == seeds(6.0)
    assert set(seeds(6.0, seed=1)).isdisjoint(seeds(6.0))


def test_beams_are_for_temperature_0(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, LOOP, 5.0))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    transcribe(pipeline, 6.0, decoding=Decoding(beam=BeamParams(5)), temperatures=(0.0, 0.4))
    assert [request.beam for request in engine.requests] == [BeamParams(5), *[None] * 5]


def test_a_text_of_high_temperature_is_not_read(tokenizer: Tokenizer) -> None:
    def script(request: GenerationRequest) -> Reply:
        is_first = "-0-" in request.request_id
        is_bad = is_first and request.sampling.temperature < 0.6
        return Reply(write(tokenizer, 0.0, LOOP if is_bad else " Good.", 25.0, 25.0))

    pipeline, engine = scripted_transcriber(tokenizer, script)
    transcribe(pipeline, 40.0, num_samples=1)
    assert engine.requests[-1].prompt_ids == (START,)


def test_a_window_need_not_read_the_text_before(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " Hi.", 25.0, 25.0))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    transcribe(pipeline, 40.0, reads_previous_text=False, prompt="Names")
    first, second = engine.requests
    assert first.prompt_ids == (PREVIOUS, *tokenizer.encode_inside(" Names"), START)
    assert second.prompt_ids == (START,)


def test_a_prompt_is_cut_at_its_beginning(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " Hi.", 5.0))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    prompt = "0123456789" * 50
    transcribe(pipeline, 6.0, prompt=prompt)
    [request] = engine.requests
    assert request.prompt_ids == (PREVIOUS, *tokenizer.encode_inside(prompt)[-223:], START)
    assert request.max_new_tokens == 448 - 225 - 2  # the rest of the context


def test_half_of_the_context_is_written_at_most(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: Reply())
    transcribe(pipeline, 6.0)
    transcribe(pipeline, 6.0, decoding=Decoding(max_new_tokens=7))
    assert [request.max_new_tokens for request in engine.requests] == [224, 7]


def test_the_language_is_identified_in_the_first_window(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " Oui.", 5.0), languages=(0.2, 0.6))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    result = transcribe(pipeline, 6.0, language=None)
    assert result.language == "fr" and result.language_probability == pytest.approx(0.75)
    first, second = engine.requests
    assert first.scored_ids == (ENGLISH, FRENCH) and first.prompt_ids == (START,)
    assert first.audio == second.audio and first.max_new_tokens == 1
    assert second.forced_ids == (FRENCH, TRANSCRIBE)
    # Only the first request of a job may be refused.
    assert first.job_accepted_at is None and second.job_accepted_at is not None
    assert {first.job, second.job} == {"job"}


@pytest.mark.parametrize("language", ["fr", "FR", "fr-CA", "fra"])
def test_languages_are_matched(tokenizer: Tokenizer, language: str) -> None:
    reply = Reply(write(tokenizer, 0.0, " Yes.", 5.0))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    assert transcribe(pipeline, 6.0, language, translates=True).language == "fr"
    assert engine.requests[0].forced_ids == (FRENCH, TRANSLATE)


def test_an_unknown_language_is_refused(tokenizer: Tokenizer) -> None:
    pipeline, _ = scripted_transcriber(tokenizer, lambda request: Reply())
    with pytest.raises(RequestError, match="model whisper has en, fr") as info:
        transcribe(pipeline, 6.0, "de")
    assert info.value.field == "language"


def test_a_model_of_english_has_no_tokens_of_language_and_task(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " Yes.", 5.0))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply, ENGLISH_AUDIO)
    assert transcribe(pipeline, 6.0, None).language == "en"
    assert [request.forced_ids for request in engine.requests] == [()]
    with pytest.raises(RequestError, match="model whisper has en"):
        transcribe(pipeline, 6.0, "fr")
    with pytest.raises(RequestError, match="does not translate"):
        transcribe(pipeline, 6.0, "en", translates=True)


def test_without_timestamps_a_window_is_a_segment(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_transcriber(
        tokenizer, lambda request: Reply(write(tokenizer, " Hi."))
    )
    result = transcribe(pipeline, 40.0, has_timestamps=False)
    assert [(s.start, s.end, s.text) for s in result.segments] == [
        (0.0, 30.0, " Hi."),
        (30.0, 40.0, " Hi."),
    ]
    assert engine.requests[0].forced_ids == (ENGLISH, TRANSCRIBE, NO_TIMES)
    assert engine.requests[0].processors.timestamps is None


def test_segments_without_text_or_length_are_left_out(tokenizer: Tokenizer) -> None:
    ids = write(tokenizer, 0.0, " ", 1.0, 1.0, " Hi.", 2.0, 2.0, " There.", 2.0)
    pipeline, _ = scripted_transcriber(tokenizer, lambda request: Reply(ids))
    assert [s.text for s in transcribe(pipeline, 6.0).segments] == [" Hi."]


def test_words_have_times_probabilities_and_attention(tokenizer: Tokenizer) -> None:
    ids = write(tokenizer, 0.0, " Oh, well.", 9.0, 9.0, " No", 10.0)
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: Reply(ids))
    result = transcribe(pipeline, 12.0, returns_words=True, returns_attention=True)
    first, second = result.segments
    assert [word.text for word in first.words] == [" Oh,", " well."]
    assert [word.text for word in second.words] == [" No"]
    words = (*first.words, *second.words)
    share = 10 / (len(ids) + 1)  # seconds of the script's attention to a token
    assert words[0].start == pytest.approx(share, abs=0.05)
    assert all(a.end <= b.start + 1e-9 for a, b in pairwise(words))
    assert words[0].probability == pytest.approx(np.exp(-0.2))
    for word in words:
        assert word.attention is not None and word.attention.shape == (1500,)
        assert word.attention.sum() == pytest.approx(1, abs=1e-3)
        heard = word.attention.argmax() * 0.02
        assert word.start - 0.1 <= heard <= word.end + 0.1
    # Alignment heads 1, 6 and 7 of 2 layers with 4 heads each.
    queries = engine.requests[0].attention_queries
    assert [(query.layers, query.heads) for query in queries] == [((0,), (1,)), ((1,), (2, 3))]
    plain = transcribe(pipeline, 12.0)
    assert plain.text == result.text and plain.segments[0].words == ()
    assert engine.requests[-1].attention_queries == ()


def test_segments_come_when_their_window_is_done(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " Hi.", 25.0, 25.0))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)

    async def listen() -> list[tuple[int, type]]:
        job = TranscriptionJob("job", recording(60.0), "en")
        return [(len(engine.requests), type(part)) async for part in pipeline.stream(job)]

    parts = asyncio.run(listen())
    assert parts == [(1, Segment), (2, Segment), (3, Segment), (3, Transcription)]


@pytest.mark.parametrize("is_parallel", [False, True])
def test_a_listener_who_goes_away_cancels_what_runs(
    tokenizer: Tokenizer, is_parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = [(n * 40 * RATE, (n * 40 + 20) * RATE) for n in range(3)]
    monkeypatch.setattr(pipelines, "speech_spans", lambda samples: spans)
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: Reply())

    async def listen() -> None:
        engine.gate = asyncio.Event()
        job = TranscriptionJob("job", recording(120.0), "en", is_parallel=is_parallel)
        running = asyncio.create_task(pipeline.run(job))
        while len(engine.runs) < (3 if is_parallel else 1):
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.sleep(0.05)

    asyncio.run(listen())
    assert len(engine.cancelled) == (3 if is_parallel else 1)


def test_a_stream_that_is_closed_asks_for_nothing_more(tokenizer: Tokenizer) -> None:
    reply = Reply(write(tokenizer, 0.0, " Hi.", 25.0, 25.0))
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)

    async def listen() -> None:
        job = TranscriptionJob("job", recording(100.0), "en")
        async with aclosing(pipeline.stream(job)) as parts:
            await anext(parts)
        await asyncio.sleep(0.05)

    asyncio.run(listen())
    assert len(engine.requests) == 1


def test_chunks_of_speech_are_decoded_at_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 12 s and 14 s share a chunk; 20 s is one of its own.
    spans = [(5, 17), (40, 54), (100, 120)]
    monkeypatch.setattr(
        pipelines, "speech_spans", lambda samples: [(a * RATE, b * RATE) for a, b in spans]
    )

    def script(request: GenerationRequest) -> Reply:
        if f"-{5 * RATE}-" in request.request_id:
            return Reply(write(tokenizer, 0.0, " One.", 11.0, 13.0, " Two.", 26.0))
        return Reply(write(tokenizer, 1.0, " Three.", 19.0))

    pipeline, engine = scripted_transcriber(tokenizer, script)
    result = transcribe(pipeline, 130.0, is_parallel=True, prompt="Names")
    times = [(s.text, s.start, s.end) for s in result.segments]
    assert times == [(" One.", 5.0, 16.0), (" Two.", 41.0, 54.0), (" Three.", 100.0, 119.0)]
    assert [s.index for s in result.segments] == [0, 1, 2]
    assert len(engine.requests) == 2
    prompt = (PREVIOUS, *tokenizer.encode_inside(" Names"), START)
    assert {request.prompt_ids for request in engine.requests} == {prompt}


def test_chunks_that_are_not_finished_go_on(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "speech_spans", lambda samples: [(0, 25 * RATE)])
    replies = InTurn(
        Reply(write(tokenizer, 0.0, " One.", 10.0, 10.0, " Tw")),
        Reply(write(tokenizer, 0.0, " Two.", 9.0)),
    )
    pipeline, engine = scripted_transcriber(tokenizer, replies)
    result = transcribe(pipeline, 60.0, is_parallel=True)
    assert result.text == "One. Two." and result.segments[1].start == 10.0
    assert [request.prompt_ids for request in engine.requests] == [(START,)] * 2


def test_no_speech_at_all_is_an_empty_transcript(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelines, "speech_spans", lambda samples: [])
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: Reply())
    result = transcribe(pipeline, 60.0, None, is_parallel=True)
    assert result.segments == () and result.language == "en"
    assert len(engine.requests) == 1  # for the language


def test_what_loops_for_ever_ends(tokenizer: Tokenizer) -> None:
    """Minutes of noise in which every window loops at every temperature."""
    reply = Reply(write(tokenizer, 0.0, LOOP * 3), ends=False)
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: reply)
    result = transcribe(pipeline, 180.0, num_samples=1)
    assert len(result.segments) == 6 and len(engine.requests) == 36
    assert {request.prompt_ids for request in engine.requests} == {(START,)}


def test_other_jobs(tokenizer: Tokenizer) -> None:
    pipeline, engine = scripted_transcriber(tokenizer, lambda request: Reply())
    ids = asyncio.run(pipeline.run(TokenizeJob("Hi"))).token_ids
    assert asyncio.run(pipeline.run(DetokenizeJob(ids))) == "Hi"
    with pytest.raises(RequestError, match="does not take a CompletionJob"):
        asyncio.run(pipeline.run(CompletionJob("job", ("Hi",))))
    engine.refusal = Overloaded(1)
    with pytest.raises(Overloaded):
        transcribe(pipeline, 1.0)
