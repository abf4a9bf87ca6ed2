"""Read and write .html: the text between blocks and the attributes that readers see are translated.

Everything else stays as it is. HTML is read as leniently as browsers do: nothing needs to be
closed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape, unescape
from pathlib import Path

from serving.documents.document import Document
from serving.documents.encoding import HTML_DECLARATION, TextFile, read_text
from serving.documents.fragment import ZERO_WIDTH_SPACE
from serving.documents.spans import SHIFT_TAGS, InlineMark, LayeredDocument, MarkRole, TextSpan
from serving.text.markup.html_elements import BLOCK, LINE_BREAK, VOID, WORD_BREAK, WORDLESS
from serving.text.markup.html_tokens import (
    HtmlToken,
    HtmlTokenKind,
    is_printed,
    tag_attributes,
    tokenize_html,
    translatabilities,
    visible_text,
)

Escape = Callable[[str], str]

# Attributes that readers see or hear; the HTML standard calls them translatable.
_TRANSLATED_ATTRIBUTES = frozenset(
    {
        *("alt", "placeholder", "title"),
        *("aria-description", "aria-label", "aria-placeholder", "aria-roledescription"),
        "aria-valuetext",
    }
)
# Those of some elements, which are attributes with other meanings elsewhere.
_TRANSLATED_ATTRIBUTES_OF = {
    **dict.fromkeys(("optgroup", "option", "track"), "label"),
    "th": "abbr",
    "table": "summary",
}
_STYLES = frozenset({"link", "style"})  # their titles are names
_BUTTON_TYPES = frozenset({"button", "reset", "submit"})
_TRANSLATED_METADATA = frozenset(
    {
        *("description", "keywords", "og:description", "og:image:alt", "og:title"),
        *("twitter:description", "twitter:image:alt", "twitter:title"),
    }
)
_LINE_ENDS = re.compile(r"(?<![ \t])[ \t]*\r?\n\s*")  # tries a run of spaces only once
_SPACES = " \t\n\r\f"
_ESCAPED = frozenset("&<> \t\n\r")
_ENDS_OF_VALUES = {'"': '"', "'": "'", "": " \t\n\r\f\"'=<>`"}
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w*);")


def read_html_file(path: Path, language: str | None = None) -> Document:
    """Read an HTML page. Raises RequestError."""
    return html_document(read_text(path, language, HTML_DECLARATION))


def html_document(file: TextFile) -> LayeredDocument:
    layers = (partial(attribute_spans, file.encoding), partial(text_spans, file.encoding))
    return LayeredDocument(file, layers, _declare_language)


def attribute_spans(encoding: str, text: str) -> Iterator[TextSpan]:
    """Yield the attributes of a page that readers see or hear."""
    escape_value = partial(_escape_text, encoding)
    tokens = tokenize_html(text)
    for token, state in zip(tokens, translatabilities(tokens), strict=True):
        if not state.has_attributes:
            continue
        attributes = [*tag_attributes(text, token)]
        values = {attribute.name: (attribute.value or "").lower() for attribute in attributes}
        for attribute in attributes:
            if attribute.value and _is_translated(token.name, attribute.name, values):
                escape_in_quotes = partial(_escape_in_quotes, escape_value, attribute.quote)
                value = _LINE_ENDS.sub(" ", attribute.value)
                yield TextSpan(attribute.start, attribute.end, [value], escape_in_quotes)


def _is_translated(tag: str, name: str, values: Mapping[str, str]) -> bool:
    """Return whether an attribute is translated. values: of the tag's attributes by their names."""
    if tag == "meta" and name == "content":
        names = (values.get("name", ""), values.get("property", ""))
        return not _TRANSLATED_METADATA.isdisjoint(names)
    if tag == "input" and name == "value":
        return values.get("type", "") in _BUTTON_TYPES
    if name == "title" and tag in _STYLES:
        return False
    return name in _TRANSLATED_ATTRIBUTES or name == _TRANSLATED_ATTRIBUTES_OF.get(tag)


def _escape_in_quotes(escape_value: Escape, quote: str, text: str) -> str:
    """Escape a text as the value of an attribute with these quotes, or without quotes."""
    ends = _ENDS_OF_VALUES[quote]
    value = "".join(f"&#{ord(c)};" if c in ends else c for c in escape_value(text))
    return value.replace("&#34;", "&quot;")


@dataclass
class _OpenText:
    """The text that is being read: its pieces, and their places in the page."""

    pieces: list[str | InlineMark] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def add(self, piece: str | InlineMark, start: int, end: int) -> None:
        if not self.pieces:
            self.start = start
        self.pieces.append(piece)
        self.end = end


def text_spans(encoding: str, text: str) -> Iterator[TextSpan]:
    """Yield the texts between the blocks of a page."""
    escape_text = partial(_escape_text, encoding)
    tokens = tokenize_html(text)
    states = translatabilities(tokens)
    open_text = _OpenText()
    number = 0
    while number < len(tokens):
        token, state = tokens[number], states[number]
        element_end = state.element_end or number + 1
        element = tokens[number:element_end]
        number = element_end
        pieces: Sequence[str | InlineMark]
        if state.element_end is not None:
            pieces = _untranslated_element(text, element)
        elif not state.is_translated:
            pieces = []
        elif token.kind is HtmlTokenKind.TEXT and state.is_preformatted:
            pieces = _lines(text[token.start : token.end])
        else:
            pieces = _pieces(token, text[token.start : token.end])
        place = token.start
        for piece in pieces:
            end = place + len(piece if isinstance(piece, str) else piece.raw)
            open_text.add(piece, place, end)
            place = end
        if not pieces and open_text.pieces:
            yield _span(open_text, text, escape_text)
            open_text = _OpenText()
    if open_text.pieces:
        yield _span(open_text, text, escape_text)


def _untranslated_element(text: str, element: Sequence[HtmlToken]) -> list[InlineMark]:
    """Return an element that stays as it is as a mark; nothing if it ends the text."""
    name = element[0].name
    if name in BLOCK:
        return []
    raw = text[element[0].start : element[-1].end]
    return [InlineMark(raw, visible_text="" if name in WORDLESS else visible_text(text, element))]


def _pieces(token: HtmlToken, raw: str) -> list[str | InlineMark]:
    """Return a token as a piece of text; nothing if it ends the text."""
    match token.kind:
        case HtmlTokenKind.TEXT:
            return [raw]
        case HtmlTokenKind.COMMENT:
            return [InlineMark(raw)]
        case HtmlTokenKind.TEMPLATE:
            return [InlineMark(raw, visible_text=raw if is_printed(raw) else "")]
        case HtmlTokenKind.DOCTYPE | HtmlTokenKind.UNFINISHED_TAG:  # browsers do not show these
            return []
    if token.name == LINE_BREAK:
        return [InlineMark(raw, MarkRole.LINE_BREAK)]
    if token.name in BLOCK:
        return []
    if token.name == WORD_BREAK:
        return [InlineMark(raw, character=ZERO_WIDTH_SPACE)]
    if token.kind is HtmlTokenKind.EMPTY_TAG or token.name in VOID:
        return [InlineMark(raw)]
    role = MarkRole.OPENS if token.kind is HtmlTokenKind.START_TAG else MarkRole.CLOSES
    return [InlineMark(raw, role, token.name, SHIFT_TAGS.get(token.name))]


def _lines(raw: str) -> list[str | InlineMark]:
    """Return preformatted text, with its line ends as marks."""
    pieces: list[str | InlineMark] = []
    end = 0
    for match in _LINE_ENDS.finditer(raw):
        pieces.append(raw[end : match.start()])
        is_blank_line = match.group().count("\n") > 1
        role = MarkRole.SENTENCE_END if is_blank_line else MarkRole.LINE_BREAK
        pieces.append(InlineMark(match.group(), role))
        end = match.end()
    return [*pieces, raw[end:]]


def _span(open_text: _OpenText, text: str, escape_text: Escape) -> TextSpan:
    """Return a span without the white space at its ends, which is only layout."""
    pieces, start, end = open_text.pieces, open_text.start, open_text.end
    if isinstance(first := pieces[0], str):
        start += len(first) - len(first.lstrip(_SPACES))
        pieces[0] = first.lstrip(_SPACES)
    if isinstance(last := pieces[-1], str):
        end -= len(last) - len(last.rstrip(_SPACES))
        pieces[-1] = last.rstrip(_SPACES)
    references = _references(pieces)
    meant = [unescape(_LINE_ENDS.sub(" ", p)) if isinstance(p, str) else p for p in pieces]
    return TextSpan(
        start, max(start, end), meant, partial(_escape_with_references, references, escape_text)
    )


def _references(pieces: Sequence[str | InlineMark]) -> dict[str, str]:
    """Return the character references of a text by their characters."""
    raws = (raw for p in pieces if isinstance(p, str) for raw in _REFERENCE.findall(p))
    return {
        character: raw
        for character, raw in ((unescape(raw), raw) for raw in raws)
        if len(character) == 1 and character not in _ESCAPED and not character.isalnum()
    }


def _escape_with_references(references: Mapping[str, str], escape_text: Escape, text: str) -> str:
    return "".join(references.get(character) or escape_text(character) for character in text)


def _escape_text(encoding: str, text: str) -> str:
    """Escape a text as HTML, with references for characters that the page's encoding lacks."""
    return escape(text, quote=False).encode(encoding, "xmlcharrefreplace").decode(encoding)


def _declare_language(text: str, language: str) -> str:
    """Return a page with its language declared in its `html` tag."""
    for token in tokenize_html(text):
        if token.kind is HtmlTokenKind.START_TAG and token.name == "html":
            return _set_language(text, token, language)
    return text


def _set_language(text: str, tag: HtmlToken, language: str) -> str:
    declared = [
        attribute
        for attribute in tag_attributes(text, tag)
        if attribute.name in ("lang", "xml:lang") and attribute.value is not None
    ]
    for attribute in reversed(declared):
        text = text[: attribute.start] + language + text[attribute.end :]
    if not declared:
        name_end = tag.start + len("<html")
        text = f'{text[:name_end]} lang="{language}"{text[name_end:]}'
    return text
