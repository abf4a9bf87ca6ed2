"""Quality estimates: a plain loop over the same tokens gives the same, and texts do not change."""

from dataclasses import replace
from math import exp, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import Rendering, TranslationJob
from serving.pipelines.translation.quality import (
    Calibration,
    SegmentQuality,
    segment_quality,
    text_score,
)
from serving.requests.parameters import BeamParams
from serving.requests.request import GenerationRequest, TokenEvent
from serving.text.alignment import TokenizedText
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import FakeEngine, shouting_translator

HTML = Markup(MarkupKind.HTML)
PIECES = st.sampled_from([b"", b" ", b"a", b"chien", b" chien", b"\xc3", b"\xa9", b"l'", b". "])


@given(st.lists(st.tuples(PIECES, st.floats(-9, 0)), max_size=12))
def test_means_are_those_of_a_plain_loop(tokens: list[tuple[bytes, float]]) -> None:
    written = TokenizedText.from_pieces([piece for piece, _ in tokens])
    probabilities = [exp(logprob) for _, logprob in tokens]

    quality = segment_quality(
        Calibration(0, 1), [p for _, p in tokens], written, np.eye(len(tokens))
    )

    means, end = [], 0
    for word in written.text.split():
        start = written.text.index(word, end)
        end = start + len(word)
        shares = [share_of(written.text, span, range(start, end)) for span in written.spans]
        total = sum(p * share for p, share in zip(probabilities, shares, strict=True))
        means.append(total / sum(shares))
    assert quality.words == tuple(written.text.split())
    assert list(quality.word_probabilities) == pytest.approx(means)
    assert quality.score == pytest.approx(sum(probabilities) / max(len(tokens), 1))


def share_of(text: str, token: tuple[int, int], word: range) -> float:
    """Of the token's characters that are in words."""
    inside = [place for place in range(*token) if not text[place].isspace()]
    return sum(place in word for place in inside) / max(len(inside), 1)


@given(st.floats(-2, 2), st.floats(0.01, 5), st.floats(0, 1), st.floats(0, 1))
def test_a_likelier_sentence_never_scores_less(a: float, b: float, one: float, two: float) -> None:
    low, high = sorted([one, two])
    assert 0 <= Calibration(a, b).score(low) <= Calibration(a, b).score(high) <= 1


NONE = [None, 3, {}, {"intercept": 0}]
WRONG = [{"intercept": a, "slope": b} for a, b in [("x", 1), (0, -1), (nan, 1)]]


@pytest.mark.parametrize("value", [*NONE, *WRONG])
def test_what_is_no_calibration_is_not_used(value: Any) -> None:
    assert (
        Calibration.from_quality({"calibration": value})
        == Calibration.from_quality({})
        == Calibration()
    )
    assert Calibration.from_quality({"calibration": {"intercept": 0, "slope": 2}}) == Calibration(
        0, 2
    )


def test_a_text_counts_its_segments_by_their_tokens() -> None:
    parts = [SegmentQuality(score, count, (), ()) for score, count in [(0.9, 3), (0.1, 1)]]
    assert (text_score(parts), text_score([])) == (pytest.approx(0.7), None)


class DoubtfulEngine(FakeEngine):
    """Is less sure of each further token of a sentence."""

    def _token(self, request: GenerationRequest, place: int, ids: list[int]) -> TokenEvent:
        return replace(super()._token(request, place, ids), logprob=-0.1 * place)


async def best_of(tokenizer: Tokenizer, *texts: str, **options: Any) -> list[Rendering]:
    """Translate the texts, with and without estimates: the texts must be the same."""
    pipeline, engine = shouting_translator(tokenizer, num_heads=options.pop("num_heads", 4))
    engine.__class__ = DoubtfulEngine
    job = TranslationJob("job", texts, "en", "fr", **options)
    plain = await pipeline.run(job)
    estimated = await pipeline.run(replace(job, returns_quality=True))
    assert estimated.texts == plain.texts
    assert all(best.quality == () for best, *_ in plain.renderings)
    return [best for best, *_ in estimated.renderings]


SEARCH = Decoding(beam=BeamParams(2, num_hypotheses=2))


@pytest.mark.parametrize("num_heads", [0, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"protection": True}, {"markup": HTML}, {"decoding": SEARCH, "num_alternatives": 1}],
)
async def test_company_and_estimates_change_nothing(
    tokenizer: Tokenizer, num_heads: int, options: dict[str, Any]
) -> None:
    texts = ("One <b>dog</b>. See http://a.example, 12 cats!", " \n", "TWO &lt; é")
    options |= {"num_heads": num_heads}

    together = await best_of(tokenizer, *texts, **options)

    assert [len(best.quality) for best in together] == [2, 0, 1]
    assert together == [best for t in texts for best in await best_of(tokenizer, t, **options)]


async def test_words_have_the_mean_of_their_tokens(tokenizer: Tokenizer) -> None:
    [best] = await best_of(tokenizer, "ab c.")

    [quality] = best.quality
    assert (quality.words, quality.num_tokens) == (("AB", "C."), 5)
    expected = [(1 + exp(-0.1)) / 2, (exp(-0.3) + exp(-0.4)) / 2]
    assert quality.word_probabilities == pytest.approx(expected)


async def test_what_is_copied_has_no_probability(tokenizer: Tokenizer) -> None:
    text = "see <i>http://a.example</i> now"
    [best] = await best_of(tokenizer, text, markup=HTML, protection=True)

    [quality] = best.quality
    assert quality.words == ("SEE", "http://a.example", "NOW")
    see, address, now = quality.word_probabilities
    assert address is None and see and now and see > now


async def test_branches_of_a_message_are_segments(tokenizer: Tokenizer) -> None:
    message = "{n, plural, one {# dog} other {# cats}} there"
    [best] = await best_of(tokenizer, message, protection=True)

    assert [segment.words[-1] for segment in best.quality] == ["THERE", "DOG", "CATS"]
