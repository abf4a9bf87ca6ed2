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


def ended(tokens: OutputTokens, stop_logprob: float | None = -0.25) -> FinishedEvent:
    reason = FinishReason.LENGTH if stop_logprob is None else FinishReason.STOP
    return FinishedEvent("x", (Hypothesis(tokens, 0.0, reason, stop_logprob),), 1, 1, 1)


def test_the_likeliest_come_first_after_the_models_own() -> None:
    own, likely, unlikely, likelier = (
        ended(OutputTokens([1, 2], [-1.0, logprob])) for logprob in (-0.5, -4.0, -8.0, -0.1)
    )
    assert select_likely([own, likely, unlikely, likelier]) == [own, likelier, likely]


def test_the_end_of_the_text_counts() -> None:
    """A thousandth is e to the -6.9."""
    own = ended(OutputTokens([1], [-1.0]))
    ends = [ended(OutputTokens([1], [-1.0]), logprob) for logprob in (-7.0, -7.3, None)]
    assert select_likely([own, *ends]) == [own, ends[2], ends[0]]


def test_texts_that_are_only_spelt_otherwise_are_left_out() -> None:
    texts = ["No, he said.", "no he said", "Nohe said.", "Yes, he said.", "!", "?", "!"]
    kept = [each.text for each in drop_same_wording(map(Rendering, texts))]
    assert kept == ["No, he said.", "Yes, he said.", "!", "?"]


def test_ways_begin_within_the_word_that_the_model_would_write(tokenizer: Tokenizer) -> None:
    """Of `he is`, written after `x`: likelier is `ho` than `t`; the space ends the word."""

    def top(**logprobs: float) -> tuple[TokenLogprob, ...]:
        select_likely = sorted(logprobs.items(), key=lambda each: -each[1])
        return tuple(TokenLogprob(tokenizer.encode(key)[0], value) for key, value in select_likely)

    tops = [top(h=-0.1, t=-3.0), top(e=-0.2, o=-2.0), (TokenLogprob(tokenizer.encode(" ")[0], 0),)]
    ids = tokenizer.encode("xhe ")
    probe = ended(OutputTokens(ids, [-0.5, -0.1, -0.2, 0.0], [(), *tops]), None)
    special_tokens = LanguagePairTokens((), (), (), 0)
    prefix = tuple(tokenizer.encode("x"))
    plan = TranslationPlan(
        special_tokens, (TextLayout(("y",), ("", "")),), (Segment("y", (1,), prefixes=(prefix,)),)
    )

    changed = with_alternative_prefixes(plan, [probe], 4, tokenizer)

    [segment] = changed.segments
    assert [tokenizer.decode(ids) for ids in segment.prefixes] == ["xh", "xho", "xt"]
