"""Characters that models were hardly trained on: what is read in their place, and which are kept.

Spaces of all kinds are read as a space, typographic quotes, dashes and ellipses as those of a
keyboard, ligatures and full-width letters as plain ones. Signs and letters of foreign scripts are
kept. Controls of direction stand between words; characters without width are not read.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from babel.core import get_global

from serving.text.alignment import Span
from serving.text.markup.tokens import Role, Token
from serving.text.protection.patterns import LETTER_REFERENCE

_SPACES = "\u00a0\u1680\u2000-\u200a\u202f\u205f"
_NO_WIDTH = "\u00ad\u180e\u200b\u2060-\u2064\ufeff"
_JOINERS = "\u200c\u200d"  # letters of Persian or Hindi need them, those of Latin do not
_DIRECTIONS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROLS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufff9-\ufffb\ufffe\uffff"
DASHES, ELLIPSES, QUOTES = "‒–—―−", "…", "“”„‟«»‹›"
# Written between words without spaces, these are read with them.
_DASHES_BETWEEN_WORDS = "—―"
_COMPATIBLE = "\ufb00-\ufb06\uff01-\uff5e"
_UNCOMPOSED = r"[A-Za-z][\u0300-\u036f]+"
_UNUSUAL = re.compile(
    rf"{LETTER_REFERENCE}|[{_SPACES}]|[{_NO_WIDTH}]+|(?<![^\x00-\u024f])[{_JOINERS}]+(?![^\x00-\u024f])"
    rf"|[{_DIRECTIONS}{_CONTROLS}]+|[{DASHES}{ELLIPSES}{QUOTES}]|[{_COMPATIBLE}]+|{_UNCOMPOSED}"
)
_MAY_BE_UNUSUAL = re.compile(r"[&\x00-\x08\x0e-\x1f\x7f-\xad\u0300-\u036f\u061c-\uffff]")
_IN_ASCII = {"…": "...", **dict.fromkeys(DASHES, "-"), **dict.fromkeys(QUOTES, '"')}
_NATIVE_QUOTES = {"zh": "“”", "ja": "“”", "ko": "“”"}  # models for these are trained on them
_GUILLEMETS, _WITHOUT_GUILLEMETS = "«»‹›", frozenset({"en", "nl", "ga", "cy"})

# Not Latin's own punctuation, nor what `_UNUSUAL` has: arrows, bullets, mathematics, currencies.
_SIGN = r"[¢-©¬®-±¶·×÷‖‗†-‣‥‧‱-‸※-⁞₠-⃀℀-↋←-⯿⸎-⸿〃〄〇-〓�\U0001d000-\U0001f0ff]"
_ASCII_SIGN = r"[<>=+*#^~|\\_{}$@]"
_NO_WORD = r"(?![^\s.,;:!?)])"
# Alone between spaces, or at the border of a word.
SIGNS = re.compile(
    rf"(?<!\S){_ASCII_SIGN}[<>=+*#^~|\\_{{}}$@!:&/-]*{_NO_WORD}|(?<!\S)[-!:&|/]{_ASCII_SIGN}+{_NO_WORD}"
    rf"|(?<!\S)(?:--+|&&|\|\||//){_NO_WORD}|(?<![\w&])&(?=[A-Za-z])|{_SIGN}[{_SIGN[1:-1]}\ufe0e\ufe0f]*"
)
# Words with signs in them, as R&D, C++, key=value or std::map, and what brackets belong to.
_WITH_SIGN = re.compile(
    r"(?<![^\s(\"'“«„‘])(?=[^\s\"“”„«»]{0,100}(?:[<>=+*#^~|\\_{}$@]|&(?!#?\w{2,};)))"
    r"[\w.$@#~^*\\/(\[{<-][^\s\"“”„«»,;]{0,300}[^\s\"“”„«».,;:!?…)'’]|(?<!\w)\w{1,40}::\w[\w:]*"
)
_SUBSCRIPTED = re.compile(
    r"(?<![\w.])[A-Za-z_][\w.]{0,80}(?:\[[^\s\[\]]{0,40}\]|\([^\s()]{0,40}\))+"
)
# What parts the items of a menu, a path or a title: Home > Dogs, Save | Cancel.
_SEPARATOR = re.compile(r"(?:(?<=[\w.?!%)\]}…])|\A)\s+[|·•→›»>/]\s+(?=[^\W\d_a-zß-ÿ]|\Z)")
# A remark before a sentence: [laughs] Come in.
_REMARK = re.compile(r"\A\s*\[[^\[\]\n]{2,80}\](\s+)(?=[A-Z♪])")
# Around several words, or around one.
PHRASE_BRACKETS = re.compile(r"(?<!\S)(?:\[[^\[\]\n]{1,300}\]|\{[^{}\n]{0,300}\s[^{}\n]{0,300}\})")
BRACKETS = re.compile(r"\[[^\[\]\n]{1,300}\]|\{[^{}\n]{1,300}\}")


def separators(text: str) -> Iterator[Span]:
    """Yield what parts the items of a text that are no sentence together."""
    if remark := _REMARK.match(text):
        yield Span(*remark.span(1))
    for match in _SEPARATOR.finditer(text):
        before = text[: match.start()]
        if before.count("(") == before.count(")"):
            yield Span(*match.span())


def words_with_signs(text: str) -> Iterator[Span]:
    """Yield where words lie that hold operators or brackets, without what encloses them."""
    for pattern in (_WITH_SIGN, _SUBSCRIPTED):
        for match in pattern.finditer(text):
            yield Span(*match.span())


def foreign_words(text: str, language: str) -> Iterator[Span]:
    """Yield where words lie that are not in a language's script, if that is Latin: letters that a
    model cannot write; those that only spaces part are one.
    """
    if is_in_latin_script(language):
        yield from (Span(*match.span()) for match in _FOREIGN.finditer(text))


_LETTER = (
    r"[\u0370-\u1dff\u2c00-\u2dff\u2e80-\u2fff\u3040-\uabff\uac00-\ud7ff\uf900-\ufaff"
    r"\ufb07-\ufdff\ufe70-\ufefc\U00010000-\U0001cfff\U00020000-\U0003ffff]"
)
_FOREIGN = re.compile(rf"{_LETTER}+(?:[\s\u200c\u200d'’.,、-]{{0,2}}{_LETTER}+)*")


@lru_cache(maxsize=256)
def is_in_latin_script(language: str) -> bool:
    """Say if a language is written in Latin letters, by the Unicode CLDR; False if not known."""
    return "_Latn_" in get_global("likely_subtags").get(language, "")


def readable(tokens: Sequence[Token], language: str) -> Iterator[Token]:
    """Yield the tokens of a text, each unusual character as a token that is read as a usual one."""
    for number, token in enumerate(tokens):
        if token.role is not Role.TEXT or not _MAY_BE_UNUSUAL.search(token.text):
            yield token
        elif token.is_divisible:
            yield from _readable_text(token.text, language)
        else:
            before = tokens[number - 1].text[-1:] if number else ""
            after = tokens[number + 1].text[:1] if number + 1 < len(tokens) else ""
            yield Token(Role.TEXT, token.raw, _read_as(token.text, before, after, language))


def _readable_text(text: str, language: str) -> Iterator[Token]:
    start = 0
    for match in _UNUSUAL.finditer(text):
        unusual = match.group()
        read = _read_as(unusual, text[: match.start()][-1:], text[match.end() :][:1], language)
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
    """Return what a model reads for unusual characters that stand between two others."""
    if re.fullmatch(LETTER_REFERENCE, unusual):
        return _read_as(html.unescape(unusual), before, after, language)
    if re.fullmatch(rf"[{_SPACES}]+", unusual):
        return " "
    if re.fullmatch(rf"[{_NO_WIDTH}{_JOINERS}{_DIRECTIONS}{_CONTROLS}]+", unusual):
        return ""
    if unusual in _NATIVE_QUOTES.get(language, ""):
        return unusual
    if unusual in _GUILLEMETS and language not in _WITHOUT_GUILLEMETS:
        return unusual
    if unusual in _DASHES_BETWEEN_WORDS and before.strip() and after.strip():
        return " - "
    return _IN_ASCII.get(unusual) or unicodedata.normalize("NFKC", unusual)
