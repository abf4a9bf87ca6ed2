"""Streamed translations: pieces joined are the translation, and the last item is the whole."""

from typing import Any

import pytest

from serving.errors import EngineError, Overloaded
from serving.pipelines.decoding import Decoding
from serving.pipelines.translation.job import Translation, TranslationDelta, TranslationJob
from serving.pipelines.translation.pipeline import TranslationPipeline
from serving.requests.parameters import BeamParams
from serving.requests.request import FinishReason
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.tokenizer import Tokenizer
from tests.serving.pipelines.fakes import shouting_translator

TEXTS = ("A dog. Two cats!\n\n Three  é mice.", "", " \n", "One more?")


def job(*texts: str, **options: Any) -> TranslationJob:
    return TranslationJob("job", texts, "en", "fr", **options)


async def stream_all(
    pipeline: TranslationPipeline, job: TranslationJob
) -> tuple[list[TranslationDelta], Translation]:
    *deltas, last = [item async for item in pipeline.stream(job)]
    assert isinstance(last, Translation)
    return [delta for delta in deltas if isinstance(delta, TranslationDelta)], last


def joined_text(deltas: list[TranslationDelta], text: int) -> str:
    return "".join(delta.piece for delta in deltas if delta.text == text)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"returns_alignments": True},
        {"placeholders": ()},
        {"decoding": Decoding(beam=BeamParams(2, num_hypotheses=2)), "num_alternatives": 1},
        {"target_prefix": "Un", "alternatives_at_prefix": True, "num_alternatives": 2},
        {"decoding": Decoding(max_new_tokens=2)},
        {"returns_scores": True},
        {"returns_quality": True, "protection": True},
        {"markup": Markup(MarkupKind.HTML)},
        {"protection": True},
    ],
)
async def test_pieces_joined_are_the_translation(
    tokenizer: Tokenizer, options: dict[str, Any]
) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    deltas, last = await stream_all(pipeline, job(*TEXTS, **options))

    assert last == await pipeline.run(job(*TEXTS, **options))
    assert [joined_text(deltas, number) for number in range(len(TEXTS))] == list(last.texts)
    assert [delta.sentence for delta in deltas if delta.text == 0] == sorted(
        delta.sentence for delta in deltas if delta.text == 0
    )
    ends = [(d.text, d.sentence) for d in deltas if d.reason]
    assert sorted(ends) == [(0, 0), (0, 1), (0, 2), (2, 0), (3, 0)]


async def test_tokens_come_one_by_one_and_a_character_is_whole(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    deltas, _ = await stream_all(pipeline, job("ça é  b"))

    assert [delta.piece for delta in deltas] == ["Ç", "A", " É", "  B", ""]
    assert [delta.reason for delta in deltas] == [None] * 4 + [FinishReason.STOP]


async def test_a_mark_that_the_source_has_not_is_not_told(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer, end=" !")

    deltas, last = await stream_all(pipeline, job("A dog", "Two cats.", protection=True))

    assert list(last.texts) == ["A DOG", "TWO CATS. !"]
    assert [joined_text(deltas, number) for number in range(2)] == list(last.texts)


async def test_marks_are_told_with_their_sentences(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)
    text = "<p>One dog.</p>\n<p>See &lt; <b>this</b>. At http://a.example</p>"
    translation_job = job(text, markup=Markup(MarkupKind.HTML), protection=True)

    deltas, last = await stream_all(pipeline, translation_job)

    assert joined_text(deltas, 0) == last.texts[0]
    assert deltas[0].piece == "<p>ON"  # "O" may begin a word that was copied
    assert len({delta.sentence for delta in deltas}) == max(d.sentence for d in deltas) + 1


async def test_where_the_end_may_change_words_whole_sentences_come(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    deltas, _ = await stream_all(pipeline, job("The {x} dog. A cat sleeps.", placeholders=()))

    assert len(deltas) == 2
    assert all(delta.reason for delta in deltas)


async def test_later_sentences_wait_for_earlier_ones(tokenizer: Tokenizer) -> None:
    """The engine tells of the last sentence first."""
    pipeline, _ = shouting_translator(tokenizer)

    deltas, _ = await stream_all(pipeline, job("A long one it is. B."))

    assert [delta.sentence for delta in deltas][-1] == 1
    assert joined_text([d for d in deltas if d.sentence == 0], 0) == "A LONG ONE IT IS."
    assert [d.piece for d in deltas if d.sentence == 1] == [" B."]


async def test_a_stream_that_is_closed_cancels_all(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)

    stream = pipeline.stream(job("One sentence. Another one. A third."))
    await anext(stream)
    await stream.aclose()

    assert len(engine.cancelled) == 3


async def test_what_is_refused_is_refused_before_anything_is_told(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    engine.max_waiting = 1

    with pytest.raises(Overloaded):
        await anext(pipeline.stream(job("One. Two.")))


async def test_a_failure_ends_the_stream(tokenizer: Tokenizer) -> None:
    pipeline, engine = shouting_translator(tokenizer)
    engine.fails_after = 2
    stream = pipeline.stream(job("long enough."))

    first_deltas = [await anext(stream), await anext(stream)]
    with pytest.raises(EngineError):
        await anext(stream)

    assert [item.piece for item in first_deltas if isinstance(item, TranslationDelta)] == ["L", "O"]


async def test_wrapped_lines_come_as_one_sentence(tokenizer: Tokenizer) -> None:
    pipeline, _ = shouting_translator(tokenizer)

    deltas, last = await stream_all(pipeline, job("A dog is in\nthe house. It\nbarks.\nMilk"))

    assert joined_text(deltas, 0) == last.texts[0] == "A DOG IS IN\nTHE HOUSE. IT\nBARKS.\nMILK"
