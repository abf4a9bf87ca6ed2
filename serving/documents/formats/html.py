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

from serving.documents.encoding import HTML_DECLARATION, TextFile, read_text
from serving.documents.formats.html_tokens import INLINE, VOID, Kind, Page, State, Token, names
from serving.documents.fragment import ZERO_WIDTH_SPACE, Document
from serving.documents.spans import SHIFT_TAGS, LayeredDocument, Mark, Role, Span

Written = Callable[[str], str]

# Attributes that readers see or hear; the HTML standard calls them translatable.
_SHOWN = names(
    "alt aria-description aria-label aria-placeholder aria-roledescription aria-valuetext"
    " placeholder title"
)
_SHOWN_OF = {
    **{name: names("label") for name in ("optgroup", "option", "track")},
    "th": names("abbr"),
    "table": names("summary"),
}
_NAMES_OF_STYLES = names("link style")  # their titles are names
_BUTTONS = names("button reset submit")
_META = names(
    "description keywords og:description og:image:alt og:title twitter:description"
    " twitter:image:alt twitter:title"
)
_LINE_ENDS = re.compile(r"(?<![ \t])[ \t]*\r?\n\s*")  # tries a run of spaces only once
_SPACES = " \t\n\r\f"
_ESCAPED = frozenset("&<> \t\n\r")
# Elements that are marks within a text, besides those with words.
_WITHIN_TEXT = names("math object script svg template textarea")
_WITH_WORDS = INLINE - names("rp rt")
_TAG = re.compile(r"<[^>]*>")
_ENDS_OF_VALUES = {'"': '"', "'": "'", "": " \t\n\r\f\"'=<>`"}
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w*);")


def read(path: Path, language: str | None = None) -> Document:
    """Read an HTML page. Raises RequestError."""
    return page_of(read_text(path, language, HTML_DECLARATION))


def page_of(file: TextFile) -> LayeredDocument:
    layers = (partial(attribute_spans, file.encoding), partial(text_spans, file.encoding))
    return LayeredDocument(file, layers, _in_language)


def attribute_spans(encoding: str, text: str) -> Iterator[Span]:
    """Yield the attributes of a page that readers see or hear."""
    written = partial(_escaped, encoding)
    page = Page(text)
    for place, (token, state) in enumerate(zip(page.tokens, page.states(), strict=True)):
        if not state.has_attributes:
            continue
        attributes = [*page.attributes(place)]
        values = {attribute.name: attribute.value.lower() for attribute in attributes}
        for attribute in attributes:
            if _is_shown(token.name, attribute.name, values):
                in_quotes = partial(_in_quotes, written, attribute.quote)
                value = _LINE_ENDS.sub(" ", attribute.value)
                yield Span(attribute.start, attribute.end, [value], in_quotes)


def _is_shown(tag: str, name: str, values: Mapping[str, str]) -> bool:
    if tag == "meta" and name == "content":
        return values.get("name", "") in _META or values.get("property", "") in _META
    if tag == "input" and name == "value":
        return values.get("type", "") in _BUTTONS
    if name == "title" and tag in _NAMES_OF_STYLES:
        return False
    return name in _SHOWN or name in _SHOWN_OF.get(tag, ())


def _in_quotes(written: Written, quote: str, text: str) -> str:
    """Escape a text as the value of an attribute with these quotes, or without quotes."""
    ends = _ENDS_OF_VALUES[quote]
    value = "".join(f"&#{ord(each)};" if each in ends else each for each in written(text))
    return value.replace("&#34;", "&quot;")


@dataclass
class _Open:
    """The text that is being read: its pieces, and their places in the page."""

    pieces: list[str | Mark] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def add(self, piece: str | Mark, start: int, end: int) -> None:
        if not self.pieces:
            self.start = start
        self.pieces.append(piece)
        self.end = end


def text_spans(encoding: str, text: str) -> Iterator[Span]:
    """Yield the texts between the blocks of a page."""
    written = partial(_escaped, encoding)
    page = Page(text)
    held = _Open()
    whole = 0  # the token after an element that stays as it is
    for place, (token, state) in enumerate(zip(page.tokens, page.states(), strict=True)):
        if place < whole:
            continue
        end = page.end(max(place, state.whole - 1))
        whole = state.whole
        piece = _piece(token, state, text[token.start : end])
        if piece is not None:
            held.add(piece, token.start, end)
        elif held.pieces:
            yield _span(held, text, written)
            held = _Open()
    if held.pieces:
        yield _span(held, text, written)


def _piece(token: Token, state: State, raw: str) -> str | Mark | None:
    """Return a token as a piece of text; None if it ends the text."""
    if not (state.is_translated or state.whole):
        return None
    if token.kind is Kind.TEXT:
        return raw
    if token.name == "br":
        return Mark(raw, Role.LINE_BREAK)
    if token.name and token.name not in INLINE and token.name not in _WITHIN_TEXT:
        return None
    if token.name == "wbr":
        return Mark(raw, character=ZERO_WIDTH_SPACE)
    if state.whole:
        return Mark(raw, shown=unescape(_TAG.sub("", raw)) if token.name in _WITH_WORDS else "")
    if token.kind is Kind.OTHER or token.name in VOID:
        return Mark(raw, shown=raw if raw.startswith(("<%=", "<?=")) else "")
    role = Role.OPENS if token.kind is Kind.START else Role.CLOSES
    return Mark(raw, role, token.name, SHIFT_TAGS.get(token.name))


def _span(held: _Open, text: str, written: Written) -> Span:
    """Return a span without the white space at its ends, which is only layout."""
    pieces, start, end = held.pieces, held.start, held.end
    if isinstance(first := pieces[0], str):
        start += len(first) - len(first.lstrip(_SPACES))
        pieces[0] = first.lstrip(_SPACES)
    if isinstance(last := pieces[-1], str):
        end -= len(last) - len(last.rstrip(_SPACES))
        pieces[-1] = last.rstrip(_SPACES)
    references = _references(pieces)
    meant = [unescape(_LINE_ENDS.sub(" ", p)) if isinstance(p, str) else p for p in pieces]
    return Span(start, max(start, end), meant, partial(_with_references, references, written))


def _references(pieces: Sequence[str | Mark]) -> dict[str, str]:
    """Return the character references of a text by their characters."""
    raws = (raw for p in pieces if isinstance(p, str) for raw in _REFERENCE.findall(p))
    found = {unescape(raw): raw for raw in raws}
    return {
        character: raw
        for character, raw in found.items()
        if len(character) == 1 and character not in _ESCAPED and not character.isalnum()
    }


def _with_references(references: Mapping[str, str], written: Written, text: str) -> str:
    return "".join(references.get(each) or written(each) for each in text)


def _escaped(encoding: str, text: str) -> str:
    """Escape a text as HTML, with references for characters that the page's encoding lacks."""
    return escape(text, quote=False).encode(encoding, "xmlcharrefreplace").decode(encoding)


def _in_language(text: str, language: str) -> str:
    """Declare the language of the page in its `html` tag."""
    page = Page(text)
    for place, token in enumerate(page.tokens):
        if token.kind is Kind.START and token.name == "html":
            return _with_lang(page, place, language)
    return text


def _with_lang(page: Page, place: int, language: str) -> str:
    text = page.text
    said = [each for each in page.attributes(place) if each.name in ("lang", "xml:lang")]
    for attribute in reversed(said):
        text = text[: attribute.start] + language + text[attribute.end :]
    if not said:
        name_end = page.tokens[place].start + len("<html")
        text = f'{text[:name_end]} lang="{language}"{text[name_end:]}'
    return text
