"""Reads HTML leniently, as browsers do, and keeps how everything is written.

Libraries for HTML give a tree of it; none says how its tags, references and spaces were written, so
that what is not translated could stay as it is. The rules are those of the HTML standard, 13.2.5.
"""

import html
import re
from collections.abc import Iterator

from serving.text.markup.elements import ElementToken, NonTranslatable, with_whole_elements
from serving.text.markup.tokens import LINE_BREAK_TAG, Markup, Role, Token, text_tokens

_MARK = re.compile(
    r"(?P<comment><!--(?:>|->|.*?(?:-->|--!>|\Z))|<\?(?:php|=).*?(?:\?>|\Z)"
    r"|<%[^<]*?%>"
    r"|<[!?][^>]*(?:>|\Z)|</[^A-Za-z][^>]*(?:>|\Z))"
    r"|</(?P<end>[A-Za-z][^\s/>]*+)[^>]*>"
    r"|<(?P<start>[A-Za-z][^\s/>]*+)"
    r"(?P<attributes>(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+)>",
    re.DOTALL,
)
# In angle brackets: %<count>d of Ruby, %<PRIu64> of C.
_BEFORE_PLACEHOLDER = re.compile(r"(?<!\d)%[-+#0]*\d{0,9}\Z")
_PLACEHOLDER = re.compile(r"<(PRI[A-Za-z]\w+|[A-Za-z_]\w*(?=>[-+#0\d.]*[A-Za-z](?!\w)))>")
_LONGEST_PAIR = 1_000  # characters, of tags that could be such placeholders
_ATTRIBUTE = re.compile(
    r"(?P<name>[^\s\"'>/=]++)(?:\s*+=\s*+(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
    r"|(?P<bare>[^\s\"'>][^\s>]*)))?"
)
_SHOWN_VALUES = ("<%=", "<?=")  # what programs write words in the place of


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Elements between which no sentence goes on; all others stand within sentences.
_BLOCKS = _names(
    "address article aside base blockquote body caption center col colgroup dd details dialog"
    " dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head"
    " header hgroup hr html legend li link main menu meta nav noframes noscript ol optgroup option"
    " p pre search section select source summary table tbody td template textarea tfoot th thead"
    " title tr track ul"
)


_VOID = _names("area base br col embed hr img input link meta param source track wbr")


_NO_TEXT = _names("script style math svg object iframe canvas audio video template rp rt")


_NO_LANGUAGE = _names("code kbd samp var")


_ONLY_TEXT = _names("script style title textarea")  # holds no tags, whatever it looks like


_KEEPS_LINES = _names("pre textarea")


def read_html(text: str, markup: Markup) -> Iterator[Token]:
    """Yield the tokens of HTML. Text in attributes, as `alt`, is not read."""
    return with_whole_elements(_HtmlReader(text, markup).parts())


class _HtmlReader:
    """Goes through a text once, from tag to tag."""

    def __init__(self, text: str, markup: Markup) -> None:
        self._text, self._markup = text, markup
        self._lines_kept = 0

    def parts(self) -> Iterator[ElementToken]:
        start = 0
        while start < len(self._text):
            match = self._next_mark(start)
            end = match.start() if match else len(self._text)
            yield from self._text_parts(self._text[start:end])
            start = end
            if match:
                yield self._mark(match)
                start = match.end()
                if (name := _name(match["start"])) in _ONLY_TEXT:
                    start = self._end_of(name, start)
                    yield from self._only_text(name, self._text[match.end() : start])

    def _next_mark(self, start: int) -> re.Match[str] | None:
        """Return the next tag or comment; None too where one begins that never ends."""
        while (start := self._text.find("<", start)) >= 0:
            if end := self._end_of_placeholder(start):
                start = end
                continue
            follows = self._text[start + 1 : start + 2]
            if match := _MARK.match(self._text, start):
                return match
            if (follows.isascii() and follows.isalpha()) or follows == "/":
                return None
            start += 1
        return None

    def _end_of_placeholder(self, start: int) -> int | None:
        """Return where a placeholder in angle brackets ends, as %<count>d; None for a tag."""
        if not _BEFORE_PLACEHOLDER.search(self._text[max(start - 12, 0) : start]):
            return None
        match = _PLACEHOLDER.match(self._text, start)
        if match is None or self._text.find(f"</{match[1]}", start, start + _LONGEST_PAIR) >= 0:
            return None
        return match.end()

    def _end_of(self, name: str, start: int) -> int:
        match = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self._text, start)
        return match.start() if match else len(self._text)

    def _only_text(self, name: str, raw: str) -> Iterator[ElementToken]:
        return (
            iter([ElementToken(Token(Role.TEXT, raw))])
            if name in _NO_TEXT
            else self._text_parts(raw)
        )

    def _text_parts(self, raw: str) -> Iterator[ElementToken]:
        return map(
            ElementToken, text_tokens(raw, has_entities=True, breaks_lines=bool(self._lines_kept))
        )

    def _mark(self, match: re.Match[str]) -> ElementToken:
        raw = match.group()
        name = _name(match["start"] or match["end"])
        if name == LINE_BREAK_TAG and name not in self._markup.splitting_tags:
            return ElementToken(Token(Role.LINE_BREAK, raw, " "))
        if match["end"] is not None:
            self._lines_kept = max(self._lines_kept - (name in _KEEPS_LINES), 0)
            return ElementToken(Token(self._role(name, Role.CLOSE), raw, name=name), -1)
        if match["start"] is None:
            is_doctype = raw[:9].lower() == "<!doctype"
            if raw.startswith(_SHOWN_VALUES):
                return ElementToken(Token(Role.NON_TRANSLATABLE, raw, raw))
            return ElementToken(Token(Role.BREAK if is_doctype else Role.POINT, raw))
        return self._start(name, raw, match["attributes"])

    def _start(self, name: str, raw: str, attributes: str) -> ElementToken:
        if name in _VOID:
            return ElementToken(Token(self._role(name, Role.POINT), raw, name=name))
        translate_attribute = _translate_attribute(attributes)
        non_translatable = self._non_translatable(name, translate_attribute)
        if name in _KEEPS_LINES and non_translatable is None:
            self._lines_kept += 1
        is_explicitly_translated = translate_attribute is True and non_translatable is None
        return ElementToken(
            Token(self._role(name, Role.OPEN), raw, name=name),
            1,
            non_translatable,
            is_explicitly_translated,
        )

    def _role(self, name: str, within_text: Role) -> Role:
        markup = self._markup
        is_block = name in _BLOCKS and name not in markup.non_splitting_tags
        return Role.BREAK if is_block or name in markup.splitting_tags else within_text

    def _non_translatable(
        self, name: str, translate_attribute: bool | None
    ) -> NonTranslatable | None:
        """Return how an element stays as it is. translate_attribute: what its `translate` says."""
        if name in _NO_TEXT:
            return NonTranslatable.AS_TAG
        stays = translate_attribute is False or (
            name in _NO_LANGUAGE and translate_attribute is None
        )
        if not (stays or name in self._markup.ignore_tags):
            return None
        is_break = self._role(name, Role.OPEN) is Role.BREAK
        return (
            NonTranslatable.AS_BREAK if is_break or self._lines_kept else NonTranslatable.AS_WORDS
        )


def _name(name: str | None) -> str:
    return (name or "").lower()


def _translate_attribute(attributes: str) -> bool | None:
    """Return whether an element asks to be translated; None if it does not say. The first of two
    attributes of a name counts.
    """
    if "translate" not in attributes.lower():
        return None
    values = {
        match["name"].lower(): html.unescape(
            match["double"] or match["single"] or match["bare"] or ""
        ).lower()
        for match in reversed([*_ATTRIBUTE.finditer(attributes)])
    }
    said = values.get("translate")
    if said == "no" or "notranslate" in values.get("class", "").split():
        return False
    return True if said in ("yes", "") else None
