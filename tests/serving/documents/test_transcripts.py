"""Transcripts are translated by sentences, and keep their times."""

from serving.documents.transcripts import translate_segments
from serving.pipelines.transcription.job import Segment, Word
from serving.pipelines.translation.job import Rendering, Translation, TranslationJob
from tests.serving.documents.shouting import shout_fragment


def make_segments(*parts: tuple[float, float, str]) -> list[Segment]:
    return [
        Segment(
            number, start, end, text, (1,), 0.0, 0.0, -0.5, 1.0, 0.1, (Word(text, start, end, 1),)
        )
        for number, (start, end, text) in enumerate(parts)
    ]


class Translator:
    """Translates by a table."""

    def __init__(self, **table: str) -> None:
        self.table = table
        self.texts: list[str] = []

    async def run(self, job: TranslationJob) -> Translation:
        self.texts += job.texts
        renderings = tuple(
            (Rendering(self.table.get(text) or shout_fragment(text)),) for text in job.texts
        )
        return Translation(renderings, 0, 0)


async def translate(translator: Translator, segments: list[Segment]) -> list[tuple]:
    job = TranslationJob("talk", (), "en", "fr")
    translated = await translate_segments(translator, job, segments)  # type: ignore[arg-type]
    assert [segment.index for segment in translated] == list(range(len(translated)))
    assert not any(segment.words for segment in translated)
    return [(segment.start, segment.end, segment.text) for segment in translated]


async def test_a_sentence_of_several_segments_is_translated_at_once() -> None:
    segments = make_segments(
        (0, 2, " And so, my fellow Americans,"),
        (2, 5, " ask not what your country can do for you."),
        (5, 7, " Ask what you can do."),
    )
    translator = Translator()
    assert await translate(translator, segments) == [
        (0, 2, " AND SO, MY FELLOW AMERICANS,"),
        (2, 5, " ASK NOT WHAT YOUR COUNTRY CAN DO FOR YOU."),
        (5, 7, " ASK WHAT YOU CAN DO."),
    ]
    assert translator.texts == [
        "And so, my fellow Americans, ask not what your country can do for you.",
        "Ask what you can do.",
    ]


async def test_segments_have_their_shares_of_a_translation_with_another_order() -> None:
    segments = make_segments((0, 1, " The white"), (1, 2, " horse there."))
    translator = Translator(**{"The white horse there.": "Là le cheval blanc."})
    assert await translate(translator, segments) == [(0, 1, " Là le"), (1, 2, " cheval blanc.")]


async def test_a_translation_of_fewer_words_has_the_time_of_all_segments() -> None:
    segments = make_segments((0, 1, " of"), (1, 2, " the"), (2, 3, " house."))
    translator = Translator(**{"of the house.": "maison."})
    assert await translate(translator, segments) == [(0, 3, " maison.")]


async def test_long_pauses_and_many_segments_divide_sentences() -> None:
    segments = make_segments(
        (0, 1, " one"), (4, 5, " two"), *((n, n + 1, " more") for n in range(5, 14))
    )
    translator = Translator()
    translated = await translate(translator, segments)
    assert [start for start, _, _ in translated] == [0, 4, *range(5, 14)]
    assert translator.texts == ["one", "two more more more more more more more", "more more"]


async def test_texts_without_words_and_with_marks_stay_as_they_are() -> None:
    segments = make_segments((0, 1, " 123."), (1, 2, "  "), (2, 3, " a < b & c > d."))
    assert await translate(Translator(), segments) == [(0, 1, " 123."), (2, 3, " A < B & C > D.")]
