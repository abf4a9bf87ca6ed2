"""Tests which ways to go on are offered, and in which order."""

import pytest

from serving.pipelines.translation.alternatives import (
    drop_same_wording,
    select_likely,
    with_alternative_prefixes,
)
from serving.pipelines.translation.job import Rendering
from serving.pipelines.translation.plan import Segment, TranslationPlan
from serving.pipelines.translation.tokenizer_pair import LanguagePairTokens
from serving.requests.request import (
    FinishedEvent,
    FinishReason,
    Hypothesis,
    OutputTokens,
    TokenLogprob,
)
from serving.text.sentences import TextLayout
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import byte_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def end_of(tokens: OutputTokens, stop_logprob: float | None = -0.25) -> FinishedEvent:
    reason = FinishReason.LENGTH if stop_logprob is None else FinishReason.STOP
    return FinishedEvent("x", (Hypothesis(tokens, 0.0, reason, stop_logprob),), 1, 1, 1)


def test_the_likeliest_come_first_after_the_models_own() -> None:
    first, likely, unlikely, likelier = (
        end_of(OutputTokens([1, 2], [-1.0, logprob])) for logprob in (-0.5, -4.0, -8.0, -0.1)
    )
    assert select_likely([first, likely, unlikely, likelier]) == [first, likelier, likely]


def test_the_end_of_the_text_counts() -> None:
    """A thousandth is e to the -6.9."""
    first = end_of(OutputTokens([1], [-1.0]))
    ends = [end_of(OutputTokens([1], [-1.0]), logprob) for logprob in (-7.0, -7.3, None)]
    assert select_likely([first, *ends]) == [first, ends[2], ends[0]]


def test_texts_that_are_only_spelt_otherwise_are_left_out() -> None:
    texts = ["No, he said.", "no he said", "Nohe said.", "Yes, he said.", "!", "?", "!"]
    distinct = [rendering.text for rendering in drop_same_wording(map(Rendering, texts))]
    assert distinct == ["No, he said.", "Yes, he said.", "!", "?"]


def test_ways_begin_within_the_word_that_the_model_would_write(tokenizer: Tokenizer) -> None:
    """Of `he is`, written after `x`: likelier is `ho` than `t`; the space ends the word."""

    def top(**logprobs: float) -> tuple[TokenLogprob, ...]:
        ranked = sorted(logprobs.items(), key=lambda pair: -pair[1])
        return tuple(TokenLogprob(tokenizer.encode(key)[0], value) for key, value in ranked)

    tops = [top(h=-0.1, t=-3.0), top(e=-0.2, o=-2.0), (TokenLogprob(tokenizer.encode(" ")[0], 0),)]
    ids = tokenizer.encode("xhe ")
    probe = end_of(OutputTokens(ids, [-0.5, -0.1, -0.2, 0.0], [(), *tops]), None)
    special_tokens = LanguagePairTokens((), (), (), 0)
    prefix = tuple(tokenizer.encode("x"))
    plan = TranslationPlan(
        special_tokens, (TextLayout(("y",), ("", "")),), (Segment("y", (1,), prefixes=(prefix,)),)
    )

    changed = with_alternative_prefixes(plan, [probe], 4, tokenizer)

    [segment] = changed.segments
    assert [tokenizer.decode(ids) for ids in segment.prefixes] == ["xh", "xho", "xt"]
