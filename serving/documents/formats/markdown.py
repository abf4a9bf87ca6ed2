"""Read and write .md: paragraphs, headings, lists, tables, HTML, the texts of pictures and links,
and titles of the front matter.

Code, directives, formulas and link targets stay. The lines of a paragraph become one, except at
hard breaks. A translation has the same structure as its source.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path

from serving.documents.document import Document
from serving.documents.encoding import read_text
from serving.documents.formats.html import attribute_spans, text_spans
from serving.documents.formats.markdown_blocks import (
    TITLE,
    HtmlBlock,
    InlineReader,
    Label,
    MarkdownPage,
    NotAsParsed,
    TextBlock,
    front_matter_spans,
)
from serving.documents.spans import LayeredDocument, TextSpan
from serving.text.markup.html_elements import INLINE
from serving.text.markup.html_tokens import tokenize_html

_TITLE_AT_END = re.compile(rf"\s(?P<title>{TITLE})\s*\)?[ \t]*\Z")
_REFERENCE = re.compile(rf"[ \t>]*\[[^\[\]]+\]:[ \t]*(?:<[^<>]*>|\S+)[ \t]+{TITLE}[ \t]*\Z")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#+|~$^={}:!-])")
_IN_TITLES = str.maketrans('`"[]{}', "''()()")  # would end titles
_NUMBER_OF_LIST = re.compile(r"^(\d+)([.)])", re.MULTILINE)
# A line that is nothing but a paragraph of text, so that it need not be parsed.
_PLAIN = re.compile(r"(?!import|export)[^\W\d_](?:[^\W_]|[ \u00a0\u202f.,;!?…'’\"«»“”()/–—-])*")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


def read_markdown(path: Path, language: str | None = None) -> Document:
    """Read a Markdown file. Raises RequestError."""
    page_of = lru_cache(maxsize=1)(MarkdownPage)  # both layers read the same text
    layers = [lambda text: _label_spans(page_of(text)), lambda text: _text_spans(page_of(text))]
    return LayeredDocument(read_text(path, language).with_line_feeds(), layers)


def _text_spans(page: MarkdownPage) -> Iterator[TextSpan]:
    for block in page.blocks():
        if isinstance(block, HtmlBlock):
            if not _begins_with_inline_tag(page.text, block):
                yield from _html_spans(page.text, block, text_spans)
            continue
        with suppress(NotAsParsed):
            yield _TextSpan(block, page)


class _TextSpan(TextSpan):
    """The text of a block. Characters that would change the structure are escaped; if that does not
    help, the text is not translated.
    """

    def __init__(self, block: TextBlock, page: MarkdownPage) -> None:
        """Raises NotAsParsed."""
        self._block, self._page = block, page
        self._escapes = False
        super().__init__(block.start, block.end, block.read_pieces().pieces, self._escape_markdown)

    def apply_translation(self, translation: str) -> str:
        if self._may_be_code():
            return self._block.raw
        for self._escapes in (False, True):
            text = super().apply_translation(translation)
            if self._has_outline_of_source(self._block.parsed_content(text)):
                return text
        return self._block.raw

    def _has_outline_of_source(self, content: str) -> bool:
        source = self._block.block.content
        if _PLAIN.fullmatch(source) and _PLAIN.fullmatch(content):
            return True
        return self._page.outline(content) == self._outline

    @cached_property
    def _outline(self) -> list[str]:
        return self._page.outline(self._block.block.content)

    def _may_be_code(self) -> bool:
        """Return whether the first line is indented as code and a later one is not.

        Parsers without definition lists would read the first line as code, so the lines stay apart.
        """
        text, start = self._page.text, self._block.start
        indentation = text[text.rfind("\n", 0, start) + 1 : start]
        later = self._block.raw.splitlines()[1:]
        is_code = indentation.isspace() and len(indentation.expandtabs(4)) >= 4
        return is_code and not all(line.startswith(("    ", "\t")) for line in later)

    def _escape_markdown(self, text: str) -> str:
        if self._block.is_title:
            return text.translate(_IN_TITLES)
        if self._escapes:
            return _NUMBER_OF_LIST.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text))
        return text.replace("|", "\\|") if self._block.is_cell else text


def _label_spans(page: MarkdownPage) -> Iterator[TextSpan]:
    """Yield front matter, and the texts of pictures and links within the marks of other texts."""
    text = page.text
    yield from front_matter_spans(text)
    spans = [
        _title_span(start + len(line), line)
        for start, line in page.lines_without_blocks()
        if _REFERENCE.match(line)
    ]
    for block in page.blocks():
        if isinstance(block, HtmlBlock):
            spans += _html_spans(text, block, attribute_spans)
        else:
            with suppress(NotAsParsed):
                spans += _spans_of_labels(text, block, block.read_pieces())
    yield from sorted((span for span in spans if span), key=lambda span: span.start)


def _spans_of_labels(text: str, block: TextBlock, reader: InlineReader) -> Iterator[TextSpan]:
    place = block.start
    for label in reader.labels:
        start = text.find(label.raw, place, block.end)
        if start < 0:
            continue
        place = start + len(label.raw)
        if label.is_tag:
            yield from _html_spans(text, HtmlBlock(start, place), attribute_spans)
            continue
        if (span := _picture_span(start, label)) is not None:
            yield span
        if (span := _title_span(place, label.raw)) is not None:
            yield span


def _picture_span(start: int, label: Label) -> TextSpan | None:
    """Return the alternative text of a picture."""
    if not label.children:
        return None
    begin = start + len("![")
    reader = InlineReader(label.raw[len("![") :], "\n")
    with suppress(NotAsParsed):
        reader.read_all(label.children)
        if label.raw[len("![") + reader.place :] not in ("]", "][]"):  # a reference by its own text
            return TextSpan(begin, begin + reader.place, reader.pieces)
    return None


def _title_span(end: int, raw: str) -> TextSpan | None:
    """Return the title of a link. end: the end of its mark."""
    match = _TITLE_AT_END.search(raw)
    if match is None:
        return None
    start = end - len(raw) + match.start("title") + 1
    closing = match["title"][-1]
    value = _ESCAPED.sub(r"\1", match["title"][1:-1])

    def escape_title(text: str) -> str:
        return re.sub(rf"([\\{closing}{'(' if closing == ')' else ''}])", r"\\\1", text)

    return TextSpan(start, start + len(match["title"]) - 2, [value], escape_title)


def _begins_with_inline_tag(text: str, block: HtmlBlock) -> bool:
    """Return whether the block is HTML only because its first line is a single inline tag.

    The lines of such a block stay apart.
    """
    tokens = tokenize_html(text[block.start : block.end])
    return next((token.name in INLINE for token in tokens if token.name), False)


def _html_spans(
    text: str, block: HtmlBlock, spans_of: Callable[[str, str], Iterator[TextSpan]]
) -> Iterator[TextSpan]:
    for span in spans_of("utf-8", text[block.start : block.end]):
        span.start += block.start
        span.end += block.start
        yield span
