"""Finds numbers and written units that hold digits: ranges, phones, codes, dates, amounts.

Every digit of a text is in some unit. A number of a few digits is left to the model, which may
inflect what stands beside it; anything else that holds a digit is not translated, from space to
space.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto

from serving.text.markup.number_formats import CURRENCIES, CURRENCY_CODE, DECIMAL, SPACE
from serving.text.spans import Span

# Symbols that are the same in all languages, or nearly.
_SYMBOL = (
    r"[kcmdµn]?m[²³23]?|[kmµ]?g|[mcdµ]?[lL]|ha|k?cal|[kMGT]?Hz|[kMG]?W|kWh|MWh|m?A|mAh|[mk]?V|[kMGT]i?B"
    r"|[kMG]bit/s|[kMG]bps|km/h|m/s|°[CF]?|K|[kM]?Pa|bar|dB|[µmn]s|min|px|pt|dpi|rpm|ppm|k?J|k?N|Ω"
    r"|mmHg|mmol|mol|(?<=\s)[sh]|lbs?|oz|mph|psi|[%‰]"
)
_SIGN = r"(?:(?<![\w)])[-−+±~≈<>≤≥])?"
_FRACTION = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_GOES_ON = r"(?=[\"'”’»)]*\s+(?-i:[a-z\d])|[,;:)])"
_MERIDIEM = rf"{SPACE}?[ap](?:\.{SPACE}?m\.{_GOES_ON}|\.{SPACE}?m|m)(?!\w)"
_HOUR = r"\d{1,2}(?:[:.]\d\d){0,2}"
# Groups: the hour, the minute, a or p. The last stop of p.m. may be the sentence's end.
TIME_OF_DAY = re.compile(
    r"(?<![\w.,:-])(1[0-2]|0?[1-9]):([0-5]\d)[ \u00a0\u202f]?([apAP])"
    rf"(?:[mM]|\.[mM](?:\.{_GOES_ON})?)(?![\w-])"
)
_AMOUNT = re.compile(
    rf"(?<![\w.,$–—-])(?:[{CURRENCIES}]{SPACE}?{DECIMAL}|{DECIMAL}{SPACE}?[{CURRENCIES}])"
    rf"(?![\w/+-]|[.,:]\d|{SPACE}?[-–—]{SPACE}?[{CURRENCIES}]?\d|{SPACE}?(?:[kKMm]|[mb]n|thousand|[mbtr]+illions?)\b)"
)
_QUANTITY = re.compile(
    rf"(?<![\w.,:/'’%-]){_SIGN}{DECIMAL}(?:{SPACE}?[-–x×]{SPACE}?{DECIMAL}){{0,3}}{SPACE}?"
    rf"(?:{_SYMBOL})(?![\w/²³'’-])"
)
_TIME_WITH_MERIDIEM = re.compile(
    rf"(?<![\w.,:-])(?:{_HOUR}(?:{_MERIDIEM})?{SPACE}?[-–]{SPACE}?)?{_HOUR}{_MERIDIEM}",
    re.IGNORECASE,
)
# Units with spaces in them, which begin and end where no word goes on.
_SPACED = re.compile(
    r"(?<![\w.,/+-])(?:"
    # Phones: +33 1 42 34 56 78, (212) 555-0147, 0800 123 456, 555 0182
    rf"\+\d{{1,3}}(?:{SPACE}?[-./]?{SPACE}?(?:\d{{1,5}}|\(\d{{1,5}}\))){{1,8}}"
    rf"|\(\+?\d{{1,5}}\)(?:{SPACE}?[-.]?{SPACE}?\d{{2,8}}){{1,8}}"
    rf"|0\d{{1,5}}(?:{SPACE}?[-./]?{SPACE}?(?:\d{{2,8}}|\(\d{{2,8}}\))){{1,8}}"
    rf"|\d{{3}}{SPACE}\d{{4}}"
    # Grouped digits: 4111 1111 1111 1111, 1 234 567,89, 978 3 16
    rf"|\d{{1,6}}(?:{SPACE}\d{{1,7}}){{2,9}}(?:,\d+)?|\d{{1,3}}(?:{SPACE}\d{{3}})+(?:,\d+)?"
    # IBANs, post codes and plates: GB29 NWBK 6016, SW1A 1AA, K1A 0B1, AB 123 CD, 1012 AB
    rf"|[A-Z]{{2}}\d{{2}}(?:{SPACE}[A-Z\d]{{1,4}}){{2,8}}|[A-Z]{{2,3}}(?:{SPACE}\d{{2,5}}){{2,8}}"
    rf"|[A-Z]{{1,2}}\d[A-Z\d]?{SPACE}\d[A-Z]{{2}}|[A-Z]\d[A-Z]{SPACE}\d[A-Z]\d"
    rf"|[A-Z]{{1,3}}{SPACE}\d{{1,4}}{SPACE}[A-Z]{{1,3}}|\d{{4}}{SPACE}[A-Z]{{2}}"
    # Masked digits: **** 4242
    rf"|(?:[*xX•]{{2,6}}[ -]){{1,4}}\d{{2,6}}"
    # 1 1/2, 2 ½
    rf"|\d+{SPACE}(?:\d+/\d+|[{_FRACTION}])"
    # Currencies by their codes: US$ 30, CHF 12.50, 30 EUR
    rf"|(?:[A-Z]{{1,3}}[{CURRENCIES}]|{CURRENCY_CODE}){SPACE}?{DECIMAL}"
    rf"|{DECIMAL}{SPACE}?(?:{CURRENCY_CODE})(?!\w)"
    # Places: 48.8566, 2.3522
    rf"|[-−]?\d{{1,3}}\.\d{{3,9}},{SPACE}?[-−]?\d{{1,3}}\.\d{{3,9}}"
    # Scores, sizes and sums: 3 - 2, 10 x 15, 16 : 9
    rf"|{DECIMAL}(?:{SPACE}[-–—x×/:÷]{SPACE}{DECIMAL}){{1,5}}(?:{SPACE}?(?:{_SYMBOL}))?"
    # Signs that number things: § 5, © 2024, № 7; comparisons: > 100
    rf"|(?:[§©℗№#¶]{{1,2}}|[<>≤≥≈~±≠=]=?){SPACE}?\d+(?:[.,/–-]\d+)*%?"
    # Coordinates: 48° 51' 24" N
    rf"|\d[\d.,]*°(?:{SPACE}?\d[\d.,]*['′’](?:{SPACE}?\d[\d.,]*(?:[\"″”]|'')?)?)?(?:{SPACE}?[NSEWO]\b)?"
    r"|\d+['′]\d+(?:[\"″]|'')?|\d+(?:[\"″])(?!\w)"
    r"|\[\d[\d,;– -]{0,30}\]"
    rf"|['’]\d0s)(?![\w°#]|[.,:/-]\d)"
)
# What a number follows makes it a name that no language writes otherwise: version 3.10, Python 3.12
_NAMED = re.compile(
    r"(?:\b(?:[Vv]ersions?|[Rr]eleases?|[Ss]ections?|[Cc]hapters?|[Ff]igures?|[Ff]ig\.|[Tt]ables?"
    r"|[Uu]pdate|[Pp]arts?|[Ss]teps?|[Aa]rticles?|[Ll]evels?)|(?<=[a-z,] )[A-Z][A-Za-z+#]*)"
    r" (\d+\.\d+)(?![\w%-]|[.,]\d)"
)
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uff65"
)
_CHUNK = re.compile(rf"[^\s;…\"“”„«»‹›—―{_WITHOUT_SPACES}]+")
_LEADING = re.compile(r"^(?:[^\w$€£¥@#№&§©+±~≈<>=≤≥≠°\\/*.¢-]+|[-.*~=+<>]+(?!\.?[\d#])|['‘’(\[{])+")
_TRAILING = re.compile(r"[^\w%‰°+#/\\)\]}>²³$€£¥¢'′]")
_BRACKETS = {")": "(", "]": "[", "}": "{", ">": "<"}
_ELIDED = re.compile(r"^(?:[cdjlmnst]|qu)['’]", re.IGNORECASE)
_HAS_DIGIT = re.compile(rf"[\d²³¹⁰-₉{_FRACTION}]")
_PLAIN = re.compile(r"(?!0\d)\d{1,4}")
_NUMERAL = re.compile(
    r"(?!0\d)(?:\d{1,4}(?:[.,]\d{1,2})?|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+(?:,\d+)?"
    r"|\d[.,]\d{1,6})"
)
# A plain number joined to words: 2-year-old, mid-1990s, 3rd, 2024's
_JOINED_BEFORE = re.compile(r"(?:[a-z]{2,}[-–/])+$")
_JOINED_AFTER = re.compile(r"(?:(?:st|nd|rd|th|s|e|er|º|ª)?(?:[-–/][a-z]{2,})*|['’]s)$")


class UnitKind(Enum):
    """What a unit is, which says how a translation writes it.

    NUMBER: a whole number of at most four digits: the model translates it, and it is put right
        where it came out wrong.
    QUANTITY: another number, or some with a symbol, written with the target's separators.
    AMOUNT: one number with a currency's sign, written as the target language does.
    TIME: a time of a clock of twelve hours.
    WHOLE: anything else, kept to the letter.
    """

    NUMBER = auto()
    QUANTITY = auto()
    AMOUNT = auto()
    TIME = auto()
    WHOLE = auto()


def written_units(text: str, has_elisions: bool = False) -> Iterator[tuple[Span, UnitKind]]:
    """Yield the units of a text, and what they are; of those that overlap the first counts.
    Patterns that know what a unit is come before the one that takes whatever holds a digit.

    has_elisions: a word may be written in one with what follows it, as in French "l'11 mai".
    """
    for match in TIME_OF_DAY.finditer(text):
        yield Span(*match.span()), UnitKind.TIME
    for pattern, kind in (
        (_TIME_WITH_MERIDIEM, UnitKind.WHOLE),
        (_AMOUNT, UnitKind.AMOUNT),
        (_SPACED, UnitKind.WHOLE),
        (_QUANTITY, UnitKind.QUANTITY),
    ):
        yield from ((Span(*match.span()), kind) for match in pattern.finditer(text))
    yield from ((Span(*match.span(1)), UnitKind.WHOLE) for match in _NAMED.finditer(text))
    for match in _CHUNK.finditer(text):
        if _HAS_DIGIT.search(match.group()):
            yield from _chunk_units(match, has_elisions)


def _chunk_units(match: re.Match[str], has_elisions: bool) -> Iterator[tuple[Span, UnitKind]]:
    """Yield the unit that a run of characters without spaces holds: all of it, without the
    punctuation around it, or the number that words are joined to.
    """
    start, chunk = match.start(), match.group()
    if has_elisions and (elided := _ELIDED.match(chunk)):
        start, chunk = start + elided.end(), chunk[elided.end() :]
    core = _core(chunk)
    start += core.start
    chunk = chunk[core.start : core.end]
    number = _joined_number(chunk)
    if number is None:
        is_numeral = _NUMERAL.fullmatch(chunk) is not None
        kind = UnitKind.QUANTITY if is_numeral else UnitKind.WHOLE
        yield Span(start, start + len(chunk)), kind
    else:
        yield Span(start + number.start, start + number.end), UnitKind.NUMBER


def _core(chunk: str) -> Span:
    """Return where a chunk lies without the punctuation around it; brackets that it opens and
    closes itself stay.
    """
    start, end = 0, len(chunk)
    if leading := _LEADING.match(chunk):
        start = leading.end()
    while start < end:
        last = chunk[end - 1]
        opening = _BRACKETS.get(last)
        is_closed = opening is not None and opening in chunk[start:end]
        if is_closed or not (opening or _TRAILING.match(last)):
            break
        end -= 1
    return Span(start, max(end, start))


def _joined_number(chunk: str) -> Span | None:
    """Return where the plain number of a chunk lies, None if there is more than words beside it."""
    figures = [place for place, character in enumerate(chunk) if character.isdecimal()]
    if not figures:
        return None
    start, end = figures[0], figures[-1] + 1
    is_plain = _PLAIN.fullmatch(chunk, start, end) is not None
    begins = start == 0 or _JOINED_BEFORE.fullmatch(chunk, 0, start) is not None
    ends = end == len(chunk) or _JOINED_AFTER.fullmatch(chunk, end) is not None
    return Span(start, end) if is_plain and begins and ends else None
