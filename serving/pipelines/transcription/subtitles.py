"""Writes transcripts as text or as subtitles: SubRip (.srt) and WebVTT (.vtt).

Subtitles of segments whose words have times are lines that can be read at a glance; others are
whole segments.
"""

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from serving.pipelines.transcription.job import Segment, Word

LINE_CHARACTERS = 42  # two lines of it are the usual limit of subtitles
NUM_LINES = 2
_LONG_PAUSE = 3.0  # seconds within a segment after which a new subtitle begins


@dataclass(frozen=True, slots=True)
class Cue:
    """A text that is shown from `start` to `end`, in seconds of the recording."""

    start: float
    end: float
    text: str


def make_cues(segments: Iterable[Segment]) -> Iterator[Cue]:
    """Yield the subtitles of segments, in order."""
    for segment in segments:
        if segment.words:
            yield from _cues_of_words(segment.words)
        else:
            yield Cue(segment.start, segment.end, " ".join(segment.text.split()))


def _cues_of_words(words: Sequence[Word]) -> Iterator[Cue]:
    """Yield subtitles of at most two lines, which end early before a long pause."""
    lines: list[list[Word]] = [[]]
    for word in words:
        line = lines[-1]
        if line:
            length = len("".join(part.text for part in (*line, word)).strip())
            pauses = word.start - line[-1].end > _LONG_PAUSE
            if pauses or (length > LINE_CHARACTERS and len(lines) == NUM_LINES):
                yield _cue_of_lines(lines)
                lines = [[]]
            elif length > LINE_CHARACTERS:
                lines.append([])
        lines[-1].append(word)
    yield _cue_of_lines(lines)


def _cue_of_lines(lines: Sequence[Sequence[Word]]) -> Cue:
    text = "\n".join("".join(word.text for word in line).strip() for line in lines)
    return Cue(lines[0][0].start, lines[-1][-1].end, text)


def write_srt(segments: Iterable[Segment]) -> str:
    """Return the subtitles of segments as a SubRip file."""
    return "".join(
        f"{number}\n{_format_time(cue.start, ',')} --> {_format_time(cue.end, ',')}\n"
        f"{_remove_arrows(cue.text)}\n\n"
        for number, cue in enumerate(make_cues(segments), start=1)
    )


def write_vtt(segments: Iterable[Segment]) -> str:
    """Return the subtitles of segments as a WebVTT file (W3C)."""
    return "WEBVTT\n\n" + "".join(
        f"{_format_time(cue.start, '.')} --> {_format_time(cue.end, '.')}\n"
        f"{html.escape(_remove_arrows(cue.text), quote=False)}\n\n"
        for cue in make_cues(segments)
    )


def write_text(segments: Iterable[Segment]) -> str:
    """Return a line for each segment."""
    return "".join(f"{segment.text.strip()}\n" for segment in segments)


def _remove_arrows(text: str) -> str:
    """Return a text that is not taken for a line of times."""
    return text.replace("-->", "->")


def _format_time(seconds: float, mark: str) -> str:
    """Return hours, minutes, seconds and, after the mark, milliseconds."""
    minutes, milliseconds = divmod(round(seconds * 1000), 60_000)
    return (
        f"{minutes // 60:02}:{minutes % 60:02}"
        f":{milliseconds // 1000:02}{mark}{milliseconds % 1000:03}"
    )
