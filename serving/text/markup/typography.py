"""Reads unusual characters, dashes, quotes and runs of marks as those that models know."""

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence

from serving.text.markup.patterns import LETTER_REFERENCE
from serving.text.markup.tokens import Role, Token

# What a model reads in the place of typographic signs.
DASH, ELLIPSIS, QUOTE = "-", "...", '"'
_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_NO_WIDTH = "\u00ad\u180e\u200b\u2060-\u2064\ufeff"
_JOINERS = "\u200c\u200d"  # letters of Persian or Hindi need them, those of Latin do not
_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufff9-\ufffb\ufffe\uffff"
_DASHES, _ELLIPSES, _QUOTES = "‒–—―−", "…", "“”„‟«»‹›"
# Between words, these are read with spaces around them.
_DASHES_BETWEEN_WORDS = "—―"
# Ligatures and full-width ASCII, which NFKC writes as letters.
_COMPATIBLE = "\ufb00-\ufb06\uff01-\uff5e"
_UNCOMPOSED = r"[A-Za-z][\u0300-\u036f]+"
_UNUSUAL = re.compile(
    rf"{LETTER_REFERENCE}|[{_SPACES}]|[{_NO_WIDTH}]+|(?<![^\x00-\u024f])[{_JOINERS}]+(?![^\x00-\u024f])"
    rf"|[{_DIRECTIONS}{_CONTROLS}]+|[{_DASHES}{_ELLIPSES}{_QUOTES}‚]|(?<!`)``?(?!`)|''|[{_COMPATIBLE}]+|[。、]|{_UNCOMPOSED}"
)
_MAY_BE_UNUSUAL = re.compile(r"''|[&`\x00-\x08\x0e-\x1f\x7f-\xad\u0300-\u036f\u061c-\uffff]")
_IN_ASCII = {
    "…": "...",
    **dict.fromkeys(_DASHES, "-"),
    **dict.fromkeys([*_QUOTES, "``", "''"], '"'),
}
_IN_ASCII |= {"‚": "'", "`": "'", "。": ".", "、": ","}
_NATIVE_QUOTES = {"zh": "“”", "ja": "“”", "ko": "“”"}  # models for these are trained on them
_GUILLEMETS, _WITHOUT_GUILLEMETS = "«»‹›", frozenset({"en", "nl", "ga", "cy"})


def run_as_read(run: str) -> str:
    """Return the mark that a model reads for a run of marks, as ??? or ?!."""
    if "?" in run or "？" in run:
        return "?"
    return "!" if "!" in run or "！" in run else ELLIPSIS


def is_run(token: Token) -> bool:
    """Return whether a token is a run of marks; its name is how the target language writes it."""
    return token.role is Role.TEXT and bool(token.name)


def is_typographic(token: Token) -> bool:
    """Return whether a token is a dash or a quote that a model reads as another one."""
    is_read_as_other = token.role is Role.TEXT and token.raw != token.text
    return is_read_as_other and token.text.strip() in (DASH, QUOTE)


def with_usual_characters(tokens: Sequence[Token], language: str) -> Iterator[Token]:
    """Yield the tokens of a text, each unusual character as a token that is read as a usual one."""
    for number, token in enumerate(tokens):
        if token.role is not Role.TEXT or not _MAY_BE_UNUSUAL.search(token.text):
            yield token
        elif token.is_divisible:
            yield from _replace_unusual(token.text, language)
        else:
            before = tokens[number - 1].text[-1:] if number else ""
            after = tokens[number + 1].text[:1] if number + 1 < len(tokens) else ""
            yield Token(Role.TEXT, token.raw, _read_as(token.text, before, after, language))


def _replace_unusual(text: str, language: str) -> Iterator[Token]:
    start = 0
    for match in _UNUSUAL.finditer(text):
        unusual = match.group()
        start_of_unusual, end = match.span()
        before = text[max(start_of_unusual - 1, 0) : start_of_unusual]
        read = _read_as(unusual, before, text[end : end + 1], language)
        if read == unusual:
            continue
        if start < match.start():
            yield Token(Role.TEXT, text[start : match.start()], text[start : match.start()])
        is_between_words = unusual[0] not in "\u00ad" and not read
        is_mark = is_between_words and re.match(rf"[{_DIRECTIONS}{_CONTROLS}]", unusual)
        yield Token(Role.POINT if is_mark else Role.TEXT, unusual, read)
        start = match.end()
    if start < len(text):
        yield Token(Role.TEXT, text[start:], text[start:])


def _read_as(unusual: str, before: str, after: str, language: str) -> str:
    """Return what a model reads for unusual characters with these before and after them."""
    if re.fullmatch(LETTER_REFERENCE, unusual):
        return _read_as(html.unescape(unusual), before, after, language)
    if re.fullmatch(rf"[{_SPACES}]+", unusual):
        return " "
    if re.fullmatch(rf"[{_NO_WIDTH}{_JOINERS}{_DIRECTIONS}{_CONTROLS}]+", unusual):
        return ""
    if unusual in "。、" and language in _NATIVE_QUOTES:
        return unusual
    if unusual in _NATIVE_QUOTES.get(language, ""):
        return unusual
    if unusual in _GUILLEMETS and language not in _WITHOUT_GUILLEMETS:
        return unusual
    if unusual in _DASHES_BETWEEN_WORDS and before.strip() and after.strip():
        return " - "
    return _IN_ASCII.get(unusual) or unicodedata.normalize("NFKC", unusual)
