"""Translate transcripts and keep their times.

A sentence that is spoken in several segments is translated at once. Its translation is divided
among them so that each has the same share of it as before.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from serving.documents.formats.subtitles import CueLines
from serving.documents.fragment import MARKUP
from serving.documents.translating import split_into_batches, translate_batches
from serving.pipelines.catalog import Translator
from serving.pipelines.transcription.job import Segment
from serving.pipelines.translation.job import TranslationJob
from serving.text.wrapped_lines import ends_sentence

_LONGEST_PAUSE = 2.0  # seconds within a sentence
_MOST_SEGMENTS = 8  # of a sentence; text without end marks has no sentences


async def translate_segments(
    translator: Translator, job: TranslationJob, segments: Sequence[Segment]
) -> list[Segment]:
    """Return the segments with their texts translated, without words. Where a translation has
    fewer words than the sentence has segments, one segment has their time.

    job: what the translations have in common; its request id begins theirs.

    Raises what the model raises, but waits while it is overloaded or out of memory.
    """
    sentences = list(_group_sentences(segments))
    lines = [
        CueLines(0, "\n".join(_join_lines(part.text) for part in parts)) for parts in sentences
    ]
    texts = {n: line.fragment.xml for n, line in enumerate(lines) if line.fragment.has_words}
    marked_job = replace(job, markup=MARKUP, protection=True)
    work = split_into_batches(texts)
    translations: dict[int, str] = {}
    batches = translate_batches(translator, marked_job, work, job.request_id)
    async with aclosing(batches) as results:
        async for batch in results:
            translations |= {n: rendering.text for n, rendering in batch.items()}
    translated: list[Segment] = []
    for number, parts in enumerate(sentences):
        if number in translations:
            text = lines[number].apply_translation(translations[number])
            translated += _divide_among(parts, text.split("\n"))
        else:
            translated += [replace(part, words=()) for part in parts]
    return [replace(segment, index=index) for index, segment in enumerate(translated)]


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _group_sentences(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield the segments of each sentence; those without text are left out."""
    sentence: list[Segment] = []
    for segment in segments:
        if not segment.text.strip():
            continue
        if sentence and _begins_sentence(segment, sentence):
            yield sentence
            sentence = []
        sentence.append(segment)
    if sentence:
        yield sentence


def _begins_sentence(segment: Segment, sentence: Sequence[Segment]) -> bool:
    last = sentence[-1]
    return (
        len(sentence) == _MOST_SEGMENTS
        or segment.start - last.end > _LONGEST_PAUSE
        or ends_sentence(last.text, "")
    )


def _divide_among(segments: Sequence[Segment], lines: Sequence[str]) -> Iterator[Segment]:
    """Yield a segment for each line; the last has the time of all that are left."""
    for number, (segment, line) in enumerate(zip(segments, lines, strict=False), start=1):
        end = segments[-1].end if number == len(lines) else segment.end
        yield replace(segment, end=end, text=f" {line.strip()}", words=())
