"""Tests what is told of attention: of tokens, of words, of given translations; and where there is
none.

The fake's tokens are bytes, and each attends to the one of its own number.
"""

from typing import Any

import pytest

from serving.errors import RequestError
from serving.pipelines.translation.job import ScoreJob, SentenceAttention, TranslationJob
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import shouting_translator

PAIR = (("l'ab c", "x yz."),)


async def sentence_attentions(
    tokenizer: Tokenizer, *texts: str, **options: Any
) -> tuple[SentenceAttention, ...]:
    pipeline, _ = shouting_translator(tokenizer)
    job = TranslationJob("job", texts, "en", "fr", returns_attention=True, **options)
    return (await pipeline.run(job)).renderings[0][0].attention


async def test_words_have_the_weights_of_their_tokens(tokenizer: Tokenizer) -> None:
    [attention] = await sentence_attentions(tokenizer, "l'a bc.")

    assert attention.source_tokens == ("l", "'", "a", " ", "b", "c", ".", "")
    assert attention.source_words == ("l'", "a", "bc", ".", "")
    assert attention.target_words == ("L'", "A", "BC", ".")
    assert attention.word_weights == tuple(tuple(float(i == j) for i in range(5)) for j in range(4))


async def test_each_sentence_has_its_own(tokenizer: Tokenizer) -> None:
    first, second = await sentence_attentions(tokenizer, "a.\nb c.")

    assert (first.target_words, second.target_words) == (("A", "."), ("B", "C", "."))


async def test_what_is_no_word_takes_the_rest(tokenizer: Tokenizer) -> None:
    """Attend with `x`, ` `, `y`, `z`, `.`: the space attends to the apostrophe, `y` to `a`, `z` to
    `b` and the full stop to the space.
    """
    pipeline, engine = shouting_translator(tokenizer)
    job = ScoreJob("job", PAIR, "en", "fr", returns_attention=True, attention_heads=(3,))

    [score] = await pipeline.run(job)

    assert score.attention is not None
    assert score.attention.source_words == ("l'", "ab", "c", "")
    assert score.attention.target_words == ("x", "yz", ".")
    expected = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert [*map(list, score.attention.word_weights)] == expected
    assert len(score.attention.weights) == len(score.attention.target_tokens) == 5
    assert [request.alignment_heads for request in engine.requests] == [(3,)]


async def test_scores_tell_of_attention_only_if_asked(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    [score] = await pipeline.run(ScoreJob("job", PAIR, "en", "fr"))

    assert score.attention is None
    assert engine.requests[0].alignment_heads is None


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("alignments", {"returns_alignments": True}),
        ("return_attention", {"returns_attention": True}),
        ("placeholders", {"placeholders": ()}),
        ("replace_unknown", {"replaces_unknown": True}),
    ],
)
async def test_a_model_without_attention_says_so(
    tokenizer: Tokenizer, field: str, options: dict[str, Any]
) -> None:
    pipeline, engine = shouting_translator(tokenizer, num_heads=0)

    assert (await pipeline.run(TranslationJob("job", ("a",), "en", "fr"))).texts == ("A",)
    with pytest.raises(RequestError, match=f"{field}: model shout has no attention .* fake, has"):
        await pipeline.run(TranslationJob("job", ("a",), "en", "fr", **options))
    with pytest.raises(RequestError, match="return_attention: model shout has no attention"):
        await pipeline.run(ScoreJob("job", PAIR, "en", "fr", returns_attention=True))
    assert len(engine.requests) == 1
