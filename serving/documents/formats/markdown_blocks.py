"""Find the blocks of a Markdown file that have text, their places, and the pieces of their text."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from serving.documents.codes import Shift
from serving.documents.formats.markdown_rules import add_rules
from serving.documents.messages import tag_mark
from serving.documents.spans import InlineMark, MarkRole, TextSpan

TITLE = r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\((?:\\.|[^()\\])*\))"""
_TARGET = rf"\(\s*(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\([^\s()]*\))*)(?:\s+{TITLE})?\s*\)"
_LINK_END = re.compile(rf"\](?:{_TARGET}|\[[^\[\]]*\])?")
_IMAGE = re.compile(rf"!\[(?:[^\[\]]|\[[^\[\]]*\])*{_LINK_END.pattern}")
_AUTOLINK = re.compile(r"<[^<>\s]+>")
_HARD_BREAK = re.compile(r"(?: {2,}|\\)\n[ \t]*")
_SOFT_BREAK = re.compile(r"[ \t]*\n[ \t]*")
_ALERT = re.compile(r"\[![\w-]+\]")
_LINE_END = re.compile(r"\r\n?|\n")  # the parser's
_NEXT_LINE = re.compile(rf"[ \t]*(?:{_LINE_END.pattern})(?P<marks>[ \t>]*)")
FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^\1[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.M)
_SHOWN = "caption|description|excerpt|lead|linkTitle|sidebar_label|subtitle|summary|tagline|title"
_VALUE = re.compile(
    rf"^(?:{_SHOWN})[ \t]*(?P<is>[:=])[ \t]*(?:\"(?P<double>(?:\\.|[^\"\\\n])*)\""
    r"|'(?P<single>(?:''|[^'\n])*)'|(?P<bare>[^\s\"'|>&*!%@`\[{#][^\n]*?))[ \t]*(?:#[^\n]*)?$",
    re.MULTILINE,
)


class NotAsParsed(Exception):
    """Raised when a text is not as it was parsed; its block is not translated."""


@dataclass(frozen=True)
class Label:
    """An image, the end of a link or a tag, as it is in the file. children: tokens of an image
    text.
    """

    raw: str
    children: Sequence[Token] | None = None
    is_tag: bool = False


@dataclass(frozen=True)
class TextBlock:
    """A text. block: its token. is_cell: it is in a table.

    line_start: how new lines begin.
    """

    start: int
    end: int
    raw: str
    block: Token
    is_cell: bool

    @property
    def line_start(self) -> str:
        match = re.search(r"\n[ \t>]*", self.raw)
        return match.group() if match else "\n"

    def parsed_content(self, raw: str) -> str:
        """Return what a parser would read for this text in the block's place."""
        content = raw.replace(self.line_start, "\n")
        return content.replace("\\|", "|") if self.is_cell else content

    @property
    def is_title(self) -> bool:
        """Return whether it is the title in the line of a directive."""
        return bool(self.block.meta.get("is_title"))

    def read_pieces(self) -> "InlineReader":
        """Read the pieces of the text. Raises NotAsParsed."""
        reader = InlineReader(self.block.content, self.line_start)
        reader.read_all(self.block.children or ())
        return reader


@dataclass(frozen=True)
class HtmlBlock:
    start: int
    end: int


class MarkdownPage:
    """The parsed text of a Markdown file."""

    def __init__(self, text: str) -> None:
        self.text = text
        front = FRONT_MATTER.match(text)
        self._begin = begin = front.end() if front else 0
        ends = (match.end() for match in _LINE_END.finditer(text[begin:]))
        self._lines = [begin, *(begin + end for end in ends)]
        self._environment: dict[str, Any] = {}
        self._parser = _parser()
        self._tokens = self._parser.parse(text[begin:], self._environment)

    def blocks(self) -> Iterator[TextBlock | HtmlBlock]:
        place = self._begin
        for previous, token in pairwise([Token("", "", 0), *self._tokens]):
            if not token.map or not token.content:
                continue
            place = max(place, self._line(token.map[0]))
            if token.type == "html_block":
                end = self._line(token.map[1])
                if self.text[place:end].strip() == token.content.strip():
                    yield HtmlBlock(place, end)
                    place = end
            elif token.type == "inline":
                is_cell = previous.tag in ("th", "td")
                area = self.text, place, max(place, self._line(token.map[1]))
                find = _find_cell if is_cell else _find_lines
                if (span := find(token.content, *area)) is not None:
                    start, place = span
                    yield TextBlock(start, place, self.text[start:place], token, is_cell)

    def lines_without_blocks(self) -> Iterator[tuple[int, str]]:
        """Yield lines outside of blocks with their places, such as link references."""
        lines_of_blocks = {
            line for token in self._tokens if token.map for line in range(*token.map)
        }
        for number, start in enumerate(self._lines):
            if number not in lines_of_blocks:
                yield start, self.text[start : self._line(number + 1)].rstrip("\r\n")

    def outline(self, text: str) -> list[str]:
        """Return the types of all tokens of a text."""
        tokens = self._parser.parse(text, {**self._environment})
        types = [token.type for block in tokens for token in (block, *(block.children or ()))]
        return [kind for kind in types if kind not in ("text", "softbreak")]

    def _line(self, number: int) -> int:
        return self._lines[number] if number < len(self._lines) else len(self.text)


def _parser() -> MarkdownIt:
    """Return a parser that keeps escapes and entities separate from text."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"]).disable("text_join")
    return add_rules(parser)


def _find_cell(content: str, text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the place of a table cell's content in the file, where bars are escaped."""
    if "|" not in content:
        return _find_lines(content, text, start, end)
    pattern = re.compile(re.escape(content).replace(r"\|", r"\\?\|"))
    match = pattern.search(text, start, end)
    return match.span() if match else None


def _find_lines(content: str, text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the place of a block's content in the file, where lines may begin with quote marks."""
    first, *others = [line.lstrip() for line in content.split("\n")]
    begin = text.find(first, start, end)
    while begin >= 0:
        place = begin + len(first)
        for line in others:
            if (line_end := _end_of_line(line, text, place, end)) is None:
                break
            place = line_end
        else:
            return begin, place
        begin = text.find(first, begin + 1, end)
    return None


def _end_of_line(line: str, text: str, place: int, end: int) -> int | None:
    """Return where a line ends that begins after the end of the line before it."""
    match = _NEXT_LINE.match(text, place, end)
    if match is None:
        return None
    starts = range(match.end(), match.start("marks") - 1, -1)
    start = next((start for start in starts if text.startswith(line, start, end)), None)
    return None if start is None else start + len(line)


class InlineReader:
    """A reader of the pieces of a text, token by token. line_start: how new lines begin.

    labels: the images, link ends and tags. place: the end of what is read.
    """

    def __init__(self, text: str, line_start: str) -> None:
        self._text, self._line_start = text, line_start
        self.place = 0
        self.pieces: list[str | InlineMark] = []
        self.labels: list[Label] = []
        self._link_starts: list[int] = []
        self._is_marked = self._is_in_alert_line = False

    def read_all(self, tokens: Sequence[Token]) -> None:
        """Raises NotAsParsed."""
        waiting = iter(tokens)
        for token in waiting:
            self._read(token, waiting)

    def _read(self, token: Token, following: Iterator[Token]) -> None:
        match token.type:
            case "text":
                self.pieces.append(self._match_literally(token.content))
            case "text_special":
                self._add_mark(re.escape(token.markup))
            case "softbreak":
                self._read_soft_break()
            case "hardbreak":
                raw = self._match(_HARD_BREAK).partition("\n")[0]
                self.pieces.append(InlineMark(raw + self._line_start, MarkRole.LINE_BREAK))
            case "code_inline":
                raw = self._match(re.compile(rf"({token.markup})(?!`).*?(?<!`)\1(?!`)", re.DOTALL))
                self.pieces.append(
                    InlineMark(self._with_line_starts(raw), visible_text=token.content)
                )
            case "non_translatable":
                self._read_non_translatable(token)
            case "shifted":
                self._read_shifted(token)
            case "html_inline":
                self._match_literally(token.content)
                self.pieces.append(tag_mark(self._with_line_starts(token.content)))
                self.labels.append(Label(_raw(self.pieces[-1]), is_tag=True))
            case "image":
                self._add_mark(_IMAGE.pattern)
                self.labels.append(Label(_raw(self.pieces[-1]), token.children))
            case "link_open" if token.markup == "autolink":
                self._add_mark(_AUTOLINK.pattern)
                while next(following).type != "link_close":
                    pass
            case "link_open":
                self._add_mark(r"\[", MarkRole.OPENS, "link")
                self._link_starts.append(self.place)
            case "link_close":
                self._read_link_end(self._text[self._link_starts.pop() : self.place])
            case "em_open" | "strong_open" | "s_open":
                self._add_mark(re.escape(token.markup), MarkRole.OPENS, token.tag)
            case "em_close" | "strong_close" | "s_close":
                self._add_mark(re.escape(token.markup), MarkRole.CLOSES, token.tag)
            case _:
                raise NotAsParsed

    def _read_link_end(self, text: str) -> None:
        """Read the end of a link. A link that is found by its text gets the text as a label."""
        self._add_mark(_LINK_END.pattern, MarkRole.CLOSES, "link")
        self.labels.append(Label(raw := _raw(self.pieces[-1])))
        if raw in ("]", "][]"):
            self.pieces[-1] = InlineMark(
                f"][{self._with_line_starts(text)}]", MarkRole.CLOSES, "link"
            )

    def _read_soft_break(self) -> None:
        self._match(_SOFT_BREAK)
        if self._is_in_alert_line:  # which may have a title
            self.pieces.append(InlineMark(self._line_start, MarkRole.SENTENCE_END))
            self._is_in_alert_line = False
        else:
            self.pieces.append(" ")

    def _read_non_translatable(self, token: Token) -> None:
        self._match_literally(token.content)
        raw = self._with_line_starts(token.content)
        role = MarkRole.STANDS
        if _ALERT.match(raw):
            role = MarkRole.SENTENCE_END
            self._is_in_alert_line = "\n" not in raw
        if raw == "==":  # highlights text
            self._is_marked = not self._is_marked
            role = MarkRole.OPENS if self._is_marked else MarkRole.CLOSES
        self.pieces.append(
            InlineMark(raw, role, raw, visible_text=raw if token.meta["is_word"] else "")
        )

    def _read_shifted(self, token: Token) -> None:
        self._match_literally(token.content)
        mark, text = token.content[0], token.content[1:-1]
        shift = Shift.SUPERSCRIPT if mark == "^" else Shift.SUBSCRIPT
        self.pieces += [
            InlineMark(mark, MarkRole.OPENS, mark, shift),
            text,
            InlineMark(mark, MarkRole.CLOSES, mark),
        ]

    def _add_mark(self, pattern: str, role: MarkRole = MarkRole.STANDS, name: str = "") -> None:
        raw = self._match(re.compile(pattern, re.DOTALL))
        self.pieces.append(InlineMark(self._with_line_starts(raw), role, name))

    def _with_line_starts(self, raw: str) -> str:
        """Return a mark with the line beginnings of the file."""
        return raw.replace("\n", self._line_start)

    def _match_literally(self, text: str) -> str:
        if not self._text.startswith(text, self.place):
            raise NotAsParsed
        self.place += len(text)
        return text

    def _match(self, pattern: "re.Pattern[str]") -> str:
        match = pattern.match(self._text, self.place)
        if match is None:
            raise NotAsParsed
        self.place = match.end()
        return match.group()


def _raw(piece: str | InlineMark) -> str:
    return piece.raw if isinstance(piece, InlineMark) else piece


def front_matter_spans(text: str) -> Iterator[TextSpan]:
    front = FRONT_MATTER.match(text)
    for match in _VALUE.finditer(text, 0, front.end() if front else 0):
        kind = next(name for name in ("double", "single", "bare") if match[name] is not None)
        start, end = match.span(kind)
        value = _read(match[kind], kind, match["is"] == ":")
        if value is not None and _goes_on_alone(text, match.end()):
            yield TextSpan(start, end, [value], partial(_quote_value, kind))


def _goes_on_alone(text: str, end: int) -> bool:
    """Return whether a value ends with its line."""
    return re.match(r"\r?\n[ \t]+\S", text[end : end + 200]) is None


def _read(raw: str, kind: str, is_yaml: bool) -> str | None:
    """Return the value if it is a text."""
    if kind == "bare" and not is_yaml:
        return None  # not a text in TOML
    quoted = {"double": f'"{raw}"', "single": f"'{raw}'", "bare": raw}[kind]
    try:
        value = yaml.safe_load(quoted)
    except yaml.YAMLError:
        return None
    return value if isinstance(value, str) else None


def _quote_value(kind: str, text: str) -> str:
    if kind == "double":
        return json.dumps(text, ensure_ascii=False)[1:-1]
    if kind == "single":
        return text.replace("'", "''")
    return text if _is_plain(text) else json.dumps(text, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    """Return whether a text needs no quotes in YAML."""
    try:
        return bool(yaml.safe_load(f"a: {text}") == {"a": text})
    except yaml.YAMLError:
        return False
