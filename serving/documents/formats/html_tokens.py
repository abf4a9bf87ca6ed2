"""Split HTML into tokens, as leniently as browsers do, and find which of them are translated."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from html import unescape
from itertools import accumulate


def names(words: str) -> frozenset[str]:
    return frozenset(words.split())


VOID = names("area base br col embed hr img input link meta param source track wbr")
# Elements within a text; all others end it.
INLINE = names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark q"
    " rp rt ruby s samp small span strike strong sub sup svg time tt u var wbr"
)
# Elements whose content is never translated, and those where it is only if they ask for it.
_NEVER_LANGUAGE = names("iframe math object script style svg template")
_LEFT_ALONE = names("code kbd pre rp rt samp textarea var")
# The open elements that a start tag closes.
_CLOSED_BY = {
    **{name: names(name) for name in ("li", "option", "tr")},
    **{name: names("dt dd") for name in ("dt", "dd")},
    **{name: names("td th") for name in ("td", "th")},
    "tr": names("tr td th"),
}
_ONLY_TEXT = names("iframe noframes script style textarea title xmp")  # contain no tags
_MARK = re.compile(
    r"<!--(?:>|->|.*?(?:-->|--!>|\Z))|<\?(?:php|=).*?(?:\?>|\Z)|<%[^%]{0,2000}+(?:%(?!>)[^%]{0,200}+){0,40}+%>|<[!?][^>]*(?:>|\Z)"
    r"|</[^A-Za-z][^>]*(?:>|\Z)|</(?P<end>[A-Za-z][^\s/>]*+)[^>]*>"
    r"|<(?P<start>[A-Za-z][^\s/>]*+)"
    r"(?P<attributes>(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*')?+)*+)>",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(
    r"(?P<name>[^\s\"'>/=]+)(?:\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
    r"|(?P<bare>[^\s\"'>][^\s>]*)))?"
)
_QUOTES = {"double": '"', "single": "'", "bare": ""}
_TAG_NAME = re.compile(r"<[A-Za-z][^\s/>]*")


class Kind(Enum):
    START = auto()
    END = auto()
    TEXT = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a page. name: of a tag. translate: whether its element asks to be translated."""

    kind: Kind
    start: int
    name: str = ""
    translate: bool | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    """An unescaped attribute value and its place in the page.

    quote: its quotes; empty if there are none.
    """

    name: str
    value: str
    start: int
    end: int
    quote: str


def _tokens(text: str) -> Iterator[Token]:
    """Yield tokens as in the HTML standard, 13.2.5; marks of template engines are tokens too."""
    place = 0
    while place < len(text):
        mark = text.find("<", place)
        found = _MARK.match(text, mark) if mark >= 0 else None
        if mark > place or mark < 0:
            yield Token(Kind.TEXT, place)
            place = mark if mark >= 0 else len(text)
        if found is not None:
            yield _token(found)
            place = found.end()
            if (name := (found["start"] or "").lower()) in _ONLY_TEXT:
                yield Token(Kind.TEXT, place)
                place = _end_of(name, text, place)
        elif mark >= 0:
            is_tag = (
                _TAG_NAME.match(text, mark) is not None
            )  # it never ends, so browsers do not show it
            yield Token(Kind.OTHER if is_tag else Kind.TEXT, mark, "!" * is_tag)
            place = len(text) if is_tag else mark + 1


def _token(found: "re.Match[str]") -> Token:
    place = found.start()
    if found["end"]:
        return Token(Kind.END, place, found["end"].lower())
    if not found["start"]:
        return Token(Kind.OTHER, place, "!" * found.group()[:9].lower().startswith("<!doctype"))
    name = found["start"].lower()
    attributes = {key.lower(): value for key, value in reversed([*_values(found["attributes"])])}
    is_empty = found.group().endswith("/>") and name not in VOID
    kind = Kind.OTHER if is_empty else Kind.START
    return Token(kind, place, name, _translate_attribute(attributes))


def _values(attributes: str) -> Iterator[tuple[str, str]]:
    for found in _ATTRIBUTE.finditer(attributes):
        value = found["double"] or found["single"] or found["bare"] or ""
        yield found["name"], unescape(value).lower()


def _end_of(name: str, text: str, place: int) -> int:
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, place)
    return found.start() if found else len(text)


def _translate_attribute(attributes: Mapping[str, str]) -> bool | None:
    said = attributes.get("translate")
    if said == "no" or "notranslate" in attributes.get("class", "").split():
        return False
    return True if said in ("yes", "") else None


@dataclass(frozen=True, slots=True)
class State:
    """Whether a token is translated, and whether the attributes of its tag are.

    whole: the place after an element without anything to translate; 0 for other tokens.
    """

    is_translated: bool
    has_attributes: bool = False
    whole: int = 0


class Page:
    """The tokens of a page."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: Sequence[Token] = [*_tokens(text)]
        self._ends = [*(token.start for token in self.tokens), len(text)][1:]

    def raw(self, place: int) -> str:
        return self.text[self.tokens[place].start : self._ends[place]]

    def end(self, place: int) -> int:
        return self._ends[place]

    def states(self) -> list[State]:
        """Return the state of each token."""
        stops = _stops(self.tokens)
        wanted = [0, *accumulate(token.translate is True for token in self.tokens)]
        states: list[State] = []
        within: list[tuple[int, bool]] = []  # the token after it, and whether it is translated
        for place, token in enumerate(self.tokens):
            while within and within[-1][0] <= place:
                within.pop()
            outer = within[-1][1] if within else True
            if token.kind is not Kind.START:
                states.append(State(outer))
                continue
            has_attributes = outer if token.translate is None else token.translate
            inner = _is_content_translated(token, outer)
            stop = stops.get(place, place + 1)
            is_whole = outer and not inner and wanted[stop] == wanted[place + 1]
            is_translated = outer if token.name in VOID else inner
            states.append(State(is_translated, has_attributes, stop if is_whole else 0))
            if inner != outer and token.name not in VOID:
                within.append((stop, inner))
        return states

    def attributes(self, place: int) -> Iterator[Attribute]:
        """Yield the attributes of a start tag that have a value."""
        raw, start = self.raw(place), self.tokens[place].start
        tag = _TAG_NAME.match(raw)
        end = tag.end() if tag else 0
        for found in _ATTRIBUTE.finditer(raw, end):
            if not raw[end : found.start()].isspace():
                return  # unpaired quotes
            end = found.end()
            group = next((each for each in _QUOTES if found[each] is not None), None)
            if group is None:
                continue
            first, last = found.span(group)
            value = unescape(found[group])
            name = found["name"].lower()
            yield Attribute(name, value, start + first, start + last, _QUOTES[group])


def _is_content_translated(token: Token, outer: bool) -> bool:
    if token.name in _NEVER_LANGUAGE:
        return False
    if token.translate is not None:
        return token.translate
    return outer and token.name not in _LEFT_ALONE


def _stops(tokens: Sequence[Token]) -> dict[int, int]:
    """Return for each start tag the place of the token after its element."""
    stops: dict[int, int] = {}
    opened: list[int] = []
    num_open: Counter[str] = Counter()

    def close(stop: int) -> str:
        place = opened.pop()
        stops[place] = stop
        num_open[tokens[place].name] -= 1
        return tokens[place].name

    for place, token in enumerate(tokens):
        if token.kind is Kind.START and token.name not in VOID:
            while opened and _closes(token.name, tokens[opened[-1]].name):
                close(place)
            opened.append(place)
            num_open[token.name] += 1
        elif token.kind is Kind.END and num_open[token.name]:
            while tokens[opened[-1]].name != token.name:
                close(place)
            close(place + 1)
    while opened:
        close(len(tokens))
    return stops


def _closes(name: str, open_name: str) -> bool:
    if open_name == "p":
        return name not in INLINE
    return open_name in _CLOSED_BY.get(name, ())
