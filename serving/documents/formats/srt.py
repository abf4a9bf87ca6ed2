"""Reads and writes .srt: each cue is one text; numbers and timings stay.

A sentence that was broken to fit the screen is translated whole and broken again into as many
lines; lines that begin with a dash are of different speakers and stay apart.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from serving.documents.document import Document
from serving.documents.formats.plain import PlainDocument
from serving.documents.parts.encoding import read_text
from serving.documents.parts.spans import Mark, Role, Span
from serving.documents.parts.tags import pieces_of
from serving.errors import RequestError

_CUE = re.compile(
    r"^[ \t]*(?:\d+:)?\d+:\d+[,.]\d+[ \t]*-->[ \t]*(?:\d+:)?\d+:\d+[,.]\d+[^\r\n]*\r?\n"
    r"(?P<text>(?:[^\r\n]*\S[^\r\n]*(?:\r?\n|\Z))+)",
    re.MULTILINE,
)
_LINE_END = re.compile(r"\r?\n")
_SPEAKER = re.compile(r"(?P<codes>\s*(?:<[^<>]*>|\{[^{}]*\})*\s*)(?P<dash>[-–—]\s*)")
_SPACE = re.compile(r" (?![^<>]*>)")


class Cue(Span):
    """Holds the text of a cue. num_lines: into which its translation is broken."""

    def __init__(self, start: int, end: int, text: str) -> None:
        [line_end, *_] = [*_LINE_END.findall(text), "\n"]
        lines = _LINE_END.split(text)
        is_talk = any(map(_SPEAKER.match, lines[1:]))
        self._num_lines, self._line_end = 1 if is_talk else len(lines), line_end
        between = Mark(line_end, Role.PARTS) if is_talk else " "
        pieces = [piece for line in lines for piece in (between, *_pieces_of_line(line))]
        super().__init__(start, end, pieces[1:])

    def translated(self, translation: str) -> str:
        return _broken(super().translated(translation), self._num_lines, self._line_end)


def read(path: Path, language: str | None = None) -> Document:
    """Raises RequestError."""
    file = read_text(path, language)
    cues = [*_cues(file.text)]
    if not cues:
        raise RequestError("file", path.name, "is not what its name says: it has no subtitles")
    return PlainDocument(file, cues)


def _cues(text: str) -> Iterator[Cue]:
    for found in _CUE.finditer(text):
        shown = found["text"].rstrip()
        start = found.start("text")
        yield Cue(start, start + len(shown), shown)


def _pieces_of_line(line: str) -> Iterator[str | Mark]:
    """Keep the dash of a speaker out of what is translated."""
    end = 0
    if found := _SPEAKER.match(line):
        yield from pieces_of(found["codes"])
        yield Mark(found["dash"])
        end = found.end()
    yield from pieces_of(line[end:])


def _broken(text: str, num_lines: int, line_end: str) -> str:
    """Break a text at the spaces nearest to where lines of one length would end."""
    places = [found.start() for found in _SPACE.finditer(text)]
    breaks: list[int] = []
    for number in range(1, num_lines):
        if not places:
            break
        wanted = len(text) * number / num_lines
        place = min(places, key=lambda each: abs(each - wanted))
        places.remove(place)
        breaks.append(place)
    for place in sorted(breaks, reverse=True):
        text = text[:place] + line_end + text[place + 1 :]
    return text
