"""A completion as it grows: whatever was emitted stays, and no stop string is ever begun."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.pipelines.completion.incremental import IncrementalCompletion
from serving.pipelines.completion.requests import CompletionRun
from serving.pipelines.decoding import Decoding
from serving.pipelines.jobs import CompletionDelta, CompletionJob, join_deltas
from serving.requests.request import FinishReason, GenerationRequest
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import EOS

TEXTS = st.text("aé€😀 ", max_size=12)
STOPS = st.lists(st.text("aé€😀 ", min_size=1, max_size=3), max_size=4)


def grow(
    tokenizer: Tokenizer, prompt: str, text: str, stops: list[str], **options: Any
) -> list[CompletionDelta]:
    """The deltas of a completion whose prompt is forced, token by token."""
    job = CompletionJob("job", (), Decoding(**options), stop=tuple(stops))
    forced = tokenizer.encode(prompt)
    request = GenerationRequest("job", forced_ids=tuple(forced))
    run = CompletionRun(request, 0, 1 + len(forced), (), False)
    completion = IncrementalCompletion(tokenizer, job, run, 0)
    deltas = []
    for token_id in [*forced, *tokenizer.encode(text)]:
        if (delta := completion.push(token_id, -0.5)) is not None:
            deltas.append(delta)
        if completion.is_finished:
            return deltas
    return [*deltas, completion.finish(FinishReason.LENGTH, -0.25)]


def before_stops(text: str, stops: list[str]) -> tuple[str, bool]:
    """The text before the stop string that is whole first, and whether there is one."""
    for end in range(len(text) + 1):
        if matching_stops := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, matching_stops))], True
    return text, False


@given(prompt=TEXTS, text=TEXTS, stops=STOPS)
def test_what_is_emitted_is_final(
    tokenizer: Tokenizer, prompt: str, text: str, stops: list[str]
) -> None:
    """Stop strings across the borders of tokens and characters, but not those of the prompt."""
    deltas = grow(tokenizer, prompt, text, stops)

    whole, is_cut = before_stops(text, stops)
    whole_delta = join_deltas(deltas)
    assert whole_delta.text == prompt + whole
    assert whole_delta.finish_reason is (FinishReason.STOP if is_cut else FinishReason.LENGTH)
    assert all("\ufffd" not in delta.text for delta in deltas)
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)


@given(prompt=TEXTS, text=TEXTS, stops=STOPS)
def test_no_token_is_ahead_of_the_text(
    tokenizer: Tokenizer, prompt: str, text: str, stops: list[str]
) -> None:
    deltas = grow(tokenizer, prompt, text, stops, logprobs=1)

    num_emitted = 0
    for delta in deltas[:-1]:
        num_emitted += len(delta.text)
        assert all(token.offset < num_emitted for token in delta.tokens)
    whole_delta = join_deltas(deltas)
    offsets = [token.offset for token in whole_delta.tokens]
    assert offsets == sorted(offsets)
    if whole_delta.finish_reason is FinishReason.LENGTH:
        assert len(whole_delta.tokens) == len(tokenizer.encode(prompt + text)) + 1
        assert (whole_delta.tokens[-1].text, whole_delta.tokens[-1].logprob) == ("", -0.25)
    else:
        assert all(offset < len(whole_delta.text) for offset in offsets)


def test_tokens_that_nothing_is_known_of_come_first(tokenizer: Tokenizer) -> None:
    job = CompletionJob("job", (), Decoding(logprobs=1))
    run = CompletionRun(GenerationRequest("job"), 0, 2, tuple(tokenizer.encode("ab")), False)
    completion = IncrementalCompletion(tokenizer, job, run, 0)

    [a, b, c] = join_deltas(list(filter(None, [completion.push(EOS + 3, -1.0)]))).tokens

    assert [(token.text, token.logprob, token.offset) for token in (a, b)] == [
        ("a", None, 0),
        ("b", None, 1),
    ]
    assert (c.logprob, c.offset) == (-1.0, 2)
