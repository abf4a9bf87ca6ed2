"""Read the entries of PO files with their places, and format statements for these files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_STRINGS = r'(?:\s*"(?:[^"\\\n]|\\[^\n])*")+'
_STATEMENT = re.compile(
    rf"[ \t]*(?P<keyword>msg(?:ctxt|id_plural|id|str(?:\[\d{{1,2}}\])?))(?P<strings>{_STRINGS})"
    r"[ \t]*(?:\n|\Z)"
)
_STRING = re.compile(r'"((?:[^"\\\n]|\\[^\n])*)"')
_ESCAPE = re.compile(r"\\(x[\da-fA-F]{1,2}|[0-7]{1,3}|.)")
_MEANINGS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = {meaning: f"\\{letter}" for letter, meaning in _MEANINGS.items()} | {
    '"': r"\"",
    "\\": r"\\",
}
_MAX_WIDTH = 79  # of lines in gettext's tools


@dataclass(frozen=True, slots=True)
class Statement:
    """The text of a statement and its place, without the last line end."""

    text: str
    start: int
    end: int


@dataclass(slots=True)
class PoEntry:
    """An entry. comments: its lines that begin with `#`, with their places."""

    comments: list[tuple[int, str]]
    statements: dict[str, Statement] = field(default_factory=dict)

    @property
    def start(self) -> int:
        return min(statement.start for statement in self.statements.values())

    @property
    def msgid(self) -> str:
        return self.statements["msgid"].text

    @property
    def msgid_plural(self) -> str | None:
        plural = self.statements.get("msgid_plural")
        return plural.text if plural else None

    @property
    def translations(self) -> dict[str, Statement]:
        return {
            name: statement
            for name, statement in self.statements.items()
            if name.startswith("msgstr")
        }

    @property
    def is_header(self) -> bool:
        return self.msgid == "" and "msgctxt" not in self.statements

    @property
    def flags(self) -> list[str]:
        lines = (line[2:] for _, line in self.comments if line.startswith("#,"))
        return [flag.strip() for line in lines for flag in line.split(",")]


def read_entries(text: str) -> list[PoEntry]:
    """Return the entries that are not obsolete. Raises ValueError naming the wrong line."""
    entries = [*_entries(text)]
    for entry in entries:
        if "msgid" not in entry.statements or not entry.translations:
            number = text.count("\n", 0, entry.start) + 1
            raise ValueError(f"line {number}: an entry needs msgid and msgstr")
    return entries


def _entries(text: str) -> Iterator[PoEntry]:
    entry = PoEntry([])
    place = 0
    while place < len(text):
        if statement := _STATEMENT.match(text, place):
            if _begins_another(entry, keyword := statement["keyword"]):
                yield entry
                entry = PoEntry([])
            if keyword in entry.statements:
                raise ValueError(f"line {text.count(chr(10), 0, place) + 1}: {keyword} again")
            start, end = statement.start("keyword"), statement.end("strings")
            entry.statements[keyword] = Statement(_unquote(statement["strings"]), start, end)
            place = statement.end()
            continue
        line, end = _line(text, place)
        if line.startswith("#"):
            if entry.statements:
                yield entry
                entry = PoEntry([])
            # Obsolete entries have their own comments and flags.
            if line.startswith("#~"):
                entry.comments.clear()
            else:
                entry.comments.append((place, line))
        elif line and not line.startswith("domain"):
            raise ValueError(f"line {text.count(chr(10), 0, place) + 1}: no statement")
        place = end
    if entry.statements:
        yield entry


def _begins_another(entry: PoEntry, keyword: str) -> bool:
    has_translation = bool(entry.statements) and bool(entry.translations)
    return keyword in ("msgctxt", "msgid") and has_translation


def _line(text: str, place: int) -> tuple[str, int]:
    end = text.find("\n", place)
    end = len(text) if end < 0 else end + 1
    return text[place:end].strip(), end


def _unquote(strings: str) -> str:
    """Return the text of quoted strings."""
    joined = "".join(_STRING.findall(strings))
    return _ESCAPE.sub(lambda match: _meaning(match[1]), joined)


def _meaning(escape: str) -> str:
    if escape[0] == "x" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _MEANINGS.get(escape, escape)


def statement(keyword: str, text: str, width: int | None = _MAX_WIDTH) -> str:
    """Format a statement in lines of at most this width; None does not wrap."""
    lines = text.splitlines(keepends=True) if "\n" in text else [text]
    quoted = [_escape(line) for line in lines]
    first = f'{keyword} "{quoted[0]}"'
    if len(quoted) == 1 and (width is None or len(first) <= width):
        return first
    wrapped = [part for line in quoted for part in _wrap_line(line, width)]
    return "\n".join([f'{keyword} ""', *(f'"{part}"' for part in wrapped)])


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


def _wrap_line(line: str, width: int | None) -> Iterator[str]:
    """Cut a line after spaces to fit between quotes."""
    line_part = ""
    for word in re.findall(r"[^ ]* *", line) if width else [line]:
        if line_part and width and len(line_part) + len(word) + 2 > width:
            yield line_part
            line_part = ""
        line_part += word
    if line_part:
        yield line_part


def wrap_width(text: str) -> int | None:
    """Return the width that a file is wrapped to; None if it is not wrapped."""
    lines = (line for line in text.splitlines() if line.startswith(('"', "msg")) and " " in line)
    longest = max(map(len, lines), default=0)
    return _MAX_WIDTH if longest <= _MAX_WIDTH + 1 else None
