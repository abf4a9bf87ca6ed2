"""Alternatives, prefixes, glossaries, alignments and scores of translations."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.readers.common.word_tokenizers import tokenizer_from_words
from serving.errors import DeadlineExceeded, RequestError
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import (
    AlignedWords,
    GlossaryEntry,
    Rendering,
    ScoreJob,
    TranslationJob,
)
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import FinishReason
from serving.text.alignment import Link
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import EOS, shouting_translator
from tests.serving.text.kinds_of_tokenizers import tokenizer_of

FOUR_BEAMS = Decoding(beam=BeamParams(4, num_hypotheses=4))


def job(*texts: str, **options: Any) -> TranslationJob:
    return TranslationJob("job", texts, "en", "fr", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"target_prefix": "deux Жук"},
        {"target_prefix": "Жук "},
        {"glossary": (GlossaryEntry("two", ("deux", "Жук")),)},
    ],
)
async def test_what_the_vocabulary_cannot_write_is_refused(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    words = ["<pad>", "<s>", "</s>", "<unk>", "two", "deux"]
    path = tmp_path / "tokenizer.json"
    path.write_bytes(tokenizer_from_words(words, unknown="<unk>", special=words[:4]))
    pipeline, engine = shouting_translator(Tokenizer(path))
    with pytest.raises(
        RequestError, match="cannot be written with the model's vocabulary"
    ) as raised:
        await pipeline.run(job("two", **options))
    assert raised.value.field in options
    assert engine.requests == []


@pytest.mark.parametrize(
    ("kind", "prefix", "written"),
    [
        ("plain words", "the do", "the dog"),
        ("plain words", "do", "dog"),
        ("unigram", "the dog\u2026", "the dog..."),
        ("unigram", "the\n\uff44og", "the dog"),
        ("unigram", "\ufb01", "fi"),
        ("byte-level", "the dog\u2026", "the dog\u2026"),
    ],
)
async def test_a_prefix_is_what_the_vocabulary_makes_of_it(
    tmp_path: Path, kind: str, prefix: str, written: str
) -> None:
    tokenizer = tokenizer_of(kind, tmp_path)
    pipeline, engine = shouting_translator(tokenizer)

    await pipeline.run(job("dog", target_prefix=prefix))

    (request,) = engine.requests
    assert request.constraint is not None
    matcher, ids = request.constraint.start(), list(request.forced_ids)
    mask = np.zeros(tokenizer.vocab_size, bool)
    matcher.fill_mask(mask)
    while not mask.all():
        ids.append(int(np.flatnonzero(mask)[0]))
        matcher.accept(ids[-1])
        matcher.fill_mask(mask)
    assert tokenizer.decode(ids).startswith(written)


async def test_a_prefix_may_hold_unknown_words_that_are_replaced(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("plain words", tmp_path)
    pipeline, engine = shouting_translator(tokenizer)

    await pipeline.run(job("dog", target_prefix="the \u0416 ", replaces_unknown=True))

    assert engine.requests[0].forced_ids[-1] == tokenizer.unknown_id


async def test_all_of_decoding_reaches_every_sentence(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    sampling = SamplingParams(temperature=0.5, seed=3)
    decoding = Decoding(sampling=sampling, max_new_tokens=3, priority=5, timeout_seconds=2.0)

    translation = await pipeline.run(job("abcd. efgh.", decoding=decoding))

    assert translation.texts == ("ABC EFG",)
    assert translation.renderings[0][0].reason is FinishReason.LENGTH
    assert [request.sampling.seed for request in engine.requests] == [3, 4]
    for request in engine.requests:
        assert replace(request.sampling, seed=3) == sampling
        assert request.max_new_tokens == 3
        assert (request.priority, request.timeout_seconds) == (5, 2.0)
        assert request.alignment_heads is None


async def test_alternatives_are_combined_rank_by_rank(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)
    translation_job = job("A b.\nC d.", "", "E", decoding=FOUR_BEAMS, num_alternatives=2)

    translation = await pipeline.run(translation_job)

    texts = [[rendering.text for rendering in ranked] for ranked in translation.renderings]
    assert texts == [["A B.\nC D.", "A B.!\nC D.!", "A B.!!\nC D.!!"], [""], ["E", "E!", "E!!"]]
    scores = [[rendering.score for rendering in ranked] for ranked in translation.renderings]
    assert scores == [[-0.5, -1.0, -1.5], [0.0], [-0.5, -1.0, -1.5]]


async def test_alternatives_differ(tokenizer: Tokenizer) -> None:
    """Hypotheses that differ only in the blanks around them are one."""
    pipeline, engine = shouting_translator(tokenizer)
    [engine.ending] = tokenizer.encode(" ")

    translation = await pipeline.run(job("a", decoding=FOUR_BEAMS, num_alternatives=3))

    assert [rendering.text for rendering in translation.renderings[0]] == ["A"]


async def test_the_score_of_greedy_decoding_counts_the_end(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    [[best]] = (await pipeline.run(job("abc"))).renderings

    assert best == Rendering("ABC", -0.5)


async def test_a_prefix_begins_each_text(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    translation = await pipeline.run(job("a.\nb.", "", "c", target_prefix=" Oh "))

    assert translation.texts == ("OhA.\nB.", "", "OhC")
    forced = [tokenizer.decode(request.forced_ids) for request in engine.requests]
    assert forced == ["Oh", "", "Oh"]


async def test_the_last_word_of_a_prefix_may_be_typed_half(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    await pipeline.run(job("a.\nb.", target_prefix="Un chien c"))

    first, second = engine.requests
    assert tokenizer.decode(first.forced_ids) == "Un chien"
    assert (second.forced_ids, second.constraint) == ((), None)
    assert first.constraint is not None
    mask = np.ones(tokenizer.vocab_size, bool)
    first.constraint.start().fill_mask(mask)
    assert all(" c".startswith(tokenizer.decode([i])) for i in np.flatnonzero(mask).tolist())


async def test_alternatives_at_a_prefix_go_on_from_the_likeliest_words(
    tokenizer: Tokenizer,
) -> None:
    """The fake finds the token after any other the next likeliest."""
    pipeline, engine = shouting_translator(tokenizer)
    translation_job = job(
        "a.\nb.",
        target_prefix="x",
        num_alternatives=2,
        alternatives_at_prefix=True,
        decoding=Decoding(priority=2),
    )

    [ranked] = (await pipeline.run(translation_job)).renderings

    probe, *others = engine.requests
    assert (probe.max_new_tokens, probe.processors.min_tokens, probe.priority) == (4, 1, 2)
    # Two for each text, because some may come out alike. The probe wrote "A.": what may follow its
    # first letter counts, too.
    prefixes = ["xA", "xB", "xA/", "xC", "xA0", "xD"]
    assert [tokenizer.decode(request.forced_ids) for request in others] == [*prefixes, ""]
    assert [rendering.text for rendering in ranked] == ["xAA.\nB.", "xBA.\nB.", "xCA.\nB."]


async def test_what_cannot_be_met_is_told_of_the_whole_text(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    engine.end = FinishReason.CONSTRAINT

    [[best]] = (await pipeline.run(job("abc. d."))).renderings

    assert best.reason is FinishReason.CONSTRAINT


async def test_words_are_aligned_over_all_sentences(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    [[best]] = (await pipeline.run(job("a bc.\nd e.", returns_alignments=True))).renderings

    assert all(request.alignment_heads is not None for request in engine.requests)
    assert best.alignment == AlignedWords(
        ("a", "bc.", "d", "e."), ("A", "BC.", "D", "E."), tuple(Link(i, i) for i in range(4))
    )
    assert best.alignment.pharaoh == "0-0 1-1 2-2 3-3"


@pytest.mark.parametrize(
    ("text", "target", "pharaoh"),
    [
        (
            "see `b c` at a.com!",
            "SEE `b c` AT a.com!",
            "0-0 1-1 1-2 3-3 4-4",
        ),  # what is kept is one
        ("I SEE THE DOG", "I SEE THE DOG", "0-0 1-1 2-2 3-3"),
        ("it is 35 kg", "IT IS 35 kg", "0-0 1-1 2-2 2-3"),
        ("it is 4:44 pm", "IT IS 16:44", "0-0 1-1 2-2"),
    ],
)
async def test_words_that_are_protected_are_aligned_as_they_are_written(
    text: str, target: str, pharaoh: str, tokenizer: Tokenizer
) -> None:
    pipeline, _ = shouting_translator(tokenizer)
    translation_job = job(text, returns_alignments=True, protection=True)

    [[best]] = (await pipeline.run(translation_job)).renderings

    assert best.text == target
    assert best.alignment is not None
    assert best.alignment.source_words == tuple(text.split())
    assert best.alignment.target_words == tuple(target.split())
    assert best.alignment.pharaoh == pharaoh


async def test_placeholders_are_taken_over(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    translation = await pipeline.run(job("hi {name} there", placeholders=()))
    named = await pipeline.run(job("hi xy there", placeholders=("xy",)))

    assert (translation.texts, named.texts) == (("HI {name} THERE",), ("HI xy THERE",))


async def test_pairs_are_scored_in_one_batch(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    pairs = ((" One. Two. ", "é"), ("", ""))

    scores = await pipeline.run(ScoreJob("job", pairs, "en", "fr"))

    assert engine.num_runs == 1
    first, second = engine.requests
    assert tokenizer.decode(first.source_ids or ()) == "One. Two."
    assert (first.forced_ids[-1], first.max_new_tokens) == (EOS, 0)
    names = [text for text, _ in scores[0].tokens]
    assert names == ["bytes:\\xc3", "bytes:\\xa9", ""]
    assert (scores[0].logprob, scores[1].tokens) == (-1.5, (("", -0.5),))
    assert (second.source_ids, second.forced_ids) == ((EOS,), (EOS,))


async def test_no_pairs_no_scores(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    assert await pipeline.run(ScoreJob("job", (), "en", "fr")) == ()
    assert engine.num_runs == 0


async def test_scores_of_languages_that_are_not_served(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    with pytest.raises(RequestError, match="source: model shout has en"):
        await pipeline.run(ScoreJob("job", (("a", "b"),), "xx", "fr"))


async def test_a_deadline_is_told_as_such(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    engine.fails_after, engine.failure = 0, DeadlineExceeded(0.5)

    with pytest.raises(DeadlineExceeded):
        await pipeline.run(job("a"))
