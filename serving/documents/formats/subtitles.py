"""Read and write subtitles: .srt and .vtt. Numbers, timings, settings, notes and styles stay.

As in ffmpeg, mpv and VLC a cue of .srt ends at the next timing or the number before it, with or
without empty lines. A sentence that was broken to fit the screen is translated at once and broken
again; what different speakers say stays apart.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from serving.documents.document import Document
from serving.documents.encoding import read_text
from serving.documents.messages import split_at_marks
from serving.documents.spans import InlineMark, PlainDocument, TextSpan
from serving.documents.xml_elements import escape_text
from serving.errors import RequestError
from serving.text.wrapped_lines import ends_sentence

_LINE = re.compile(r"([^\r\n]*)(\r{0,2}\n|\r|\Z)")  # some programs write \r\r\n
_LINE_END = re.compile(r"\r{0,2}\n|\r")
_TIME = r"(?:\d+[ \t]*:[ \t]*)?\d+[ \t]*:[ \t]*\d+(?:[ \t]*[,.:][ \t]*\d+)?"
_WEBVTT = re.compile(r"\ufeff?WEBVTT(?=\s|\Z)")
_TIMING = re.compile(rf"[ \t\ufeff]*{_TIME}[ \t]*-{{1,2}}>[ \t]*{_TIME}(?!\d)")
_NUMBER = re.compile(r"[ \t\ufeff]*\d+[ \t]*")
_CODES = r"\s*(?:<[^<>]*>|\{[^{}]*\})*\s*"
_SPEAKER = re.compile(rf"(?P<codes>{_CODES})(?P<dash>[-‐–—](?![\d.])\s*)")
_STARTS = re.compile(
    rf"\s*<v[\s.>]|{_CODES}(?:[-‐–—♪♫#*](?![\d.])|[A-Z][A-Z .'’]*:|\[|\([^()]*\)\s*(?:[A-Z]|$))"
)  # a speech, a line of a song, or a sound in brackets
_SOUND = re.compile(rf"{_CODES}(?:\[[^\[\]]*\]|\([^()]*\)){_CODES}")
_TAGS = re.compile(r"<[^<>]*>|\{[^{}]*\}")
_TIME_TAG = re.compile(r"(<\d[\d:.]*>)")  # when the words that follow are shown
_MOST_LINES = 8  # translated at once; cues have two or three
_BETWEEN_TAGS = re.compile(r"> <")
_TAG_OR_SPACE = re.compile(r"<[^<>]*>| (?![?!:;»%])")


class CueLines(TextSpan):
    """Lines of a cue with one sentence, which is broken again after translation.

    escape: escapes a text for the file.
    """

    def __init__(self, start: int, text: str, escape: Callable[[str], str] = str) -> None:
        lines = _LINE_END.split(text)
        self._ends = _LINE_END.findall(text)
        self._is_tagged = all(_BETWEEN_TAGS.search(f"{a} {b}") for a, b in pairwise(lines))
        self._lengths = [len(_TAGS.sub("", line)) or 1 for line in lines]
        pieces = [piece for line in lines for piece in (" ", *_pieces_of_line(line))]
        super().__init__(start, start + len(text), pieces[1:], escape)

    def apply_translation(self, translation: str) -> str:
        """Break the translation at spaces so that lines have the same shares of it as before.

        If all lines were tagged, break it between an end tag and a start tag.
        """
        text = super().apply_translation(translation)
        *shares, whole = accumulate(self._lengths)
        matches = _TAG_OR_SPACE.finditer(text) if shares else ()
        places = [match.start() for match in matches if match.group() == " "]
        between = [place for place in places if _BETWEEN_TAGS.match(text, place - 1)]
        if self._is_tagged and len(between) == len(shares):
            places = between
        breaks: dict[int, str] = {}
        for share, line_end in zip(shares, self._ends, strict=True):
            if free := [place for place in places if place > max(breaks, default=0)]:
                ideal = len(text) * share / whole
                breaks[min(free, key=lambda place: abs(place - ideal))] = line_end
        for place in sorted(breaks, reverse=True):
            text = text[:place] + breaks[place] + text[place + 1 :]
        return text


def read_srt(path: Path, language: str | None = None) -> Document:
    """Read subtitles. Raises RequestError."""
    file = read_text(path, language)
    lines = [*_LINE.finditer(file.text)]
    if not any(_TIMING.match(line[1]) for line in lines):
        raise RequestError("file", path.name, "is not what its name says: it has no subtitles")
    return PlainDocument(file, (CueLines(*sentence) for sentence in _split_srt(lines)))


def read_vtt(path: Path, language: str | None = None) -> Document:
    """Read subtitles in WebVTT. Raises RequestError."""
    file = read_text(path, language)
    if not _WEBVTT.match(file.text):
        message = "is not what its name says: it does not begin with WEBVTT"
        raise RequestError("file", path.name, message)
    texts = _split_vtt(_LINE.finditer(file.text))
    return PlainDocument(file, (CueLines(*text, escape_text) for text in texts))


def _split_vtt(lines: Iterable["re.Match[str]"]) -> Iterator[tuple[int, str]]:
    """Yield the sentences of each cue, and its separate lines.

    As in WebVTT, 6.1, a line with an arrow begins a cue, and an empty line ends it.
    """
    cue: list[re.Match[str]] = []
    is_cue = False
    for line in lines:
        has_arrow = "-->" in line[1]
        if has_arrow or not line[1].strip():
            yield from _sentences(cue)
            cue = []
        elif is_cue:
            cue.append(line)
        is_cue = _TIMING.match(line[1]) is not None if has_arrow else is_cue and line[1] != ""
    yield from _sentences(cue)


def _split_srt(lines: Iterable["re.Match[str]"]) -> Iterator[tuple[int, str]]:
    """Yield the sentences of each cue, and its separate lines."""
    cue: list[re.Match[str]] = []
    has_begun = False
    for line in lines:
        is_timing = _TIMING.match(line[1]) is not None
        if is_timing and cue and _NUMBER.fullmatch(cue[-1][1]):
            cue.pop()
        if is_timing or not line[1].strip():
            yield from _sentences(cue)
            cue = []
        elif has_begun:
            cue.append(line)
        has_begun = has_begun or is_timing
    yield from _sentences(cue)


def _sentences(lines: Sequence["re.Match[str]"]) -> Iterator[tuple[int, str]]:
    """Yield the place and the text of each sentence of a cue."""
    first = 0
    for number in range(1, len(lines) + 1):
        is_last = number == len(lines) or number - first == _MOST_LINES
        if is_last or _ends_text(lines[number - 1][1], lines[number][1]):
            text = "".join(line.group() for line in lines[first:number])
            yield lines[first].start(), text.rstrip()
            first = number


def _ends_text(line: str, following: str) -> bool:
    """Return whether a line is not continued in the next."""
    if _STARTS.match(following) or _SOUND.fullmatch(line):
        return True
    return ends_sentence(_TAGS.sub("", line), "")


def _pieces_of_line(line: str) -> Iterator[str | InlineMark]:
    """Yield the pieces of a line, with the dash of a speaker as a mark."""
    end = 0
    if match := _SPEAKER.match(line):
        yield from split_at_marks(match["codes"])
        yield InlineMark(match["dash"])
        end = match.end()
    for number, part in enumerate(_TIME_TAG.split(line[end:])):
        yield from (InlineMark(part),) if number % 2 else split_at_marks(part)
