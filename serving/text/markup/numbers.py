"""Finds numbers and written units that hold digits: ranges, phones, codes, dates, amounts.

Every digit of a text is in some unit. A number of a few digits is left to the model, which may
inflect what stands beside it; anything else that holds a digit is kept whole, from space to space.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import Enum, auto
from functools import lru_cache

from babel import Locale, UnknownLocaleError
from babel.numbers import get_decimal_symbol, get_group_symbol

from serving.text.alignment import Span

CURRENCIES = "$¢£¤¥֏؋৳฿៛₠-⃀"
# Symbols that are the same in all languages, or nearly.
_SYMBOL = (
    r"[kcmdµn]?m[²³23]?|[kmµ]?g|[mcdµ]?[lL]|ha|k?cal|[kMGT]?Hz|[kMG]?W|kWh|MWh|m?A|mAh|[mk]?V|[kMGT]i?B"
    r"|[kMG]bit/s|[kMG]bps|km/h|m/s|°[CF]?|K|[kM]?Pa|bar|dB|[µmn]s|min|px|pt|dpi|rpm|ppm|k?J|k?N|Ω"
    r"|mmHg|mmol|mol|(?<=\s)[sh]|lbs?|oz|mph|psi|[%‰]"
)
_SPACE = r"[ \u00a0\u2009\u202f]"
_DECIMAL = r"\d+(?:[.,]\d+)*"
_SIGN = r"(?:(?<![\w)])[-−+±~≈<>≤≥])?"
_CURRENCY_CODE = "|".join(sorted(Locale("en").currencies))
_FRACTION = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
_MERIDIEM = rf"{_SPACE}?[ap](?:\.{_SPACE}?m\.(?=\s+(?-i:[a-z\d])|[,;:)])|\.{_SPACE}?m|m)(?!\w)"
_HOUR = r"\d{1,2}(?:[:.]\d\d){0,2}"


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


# Groups: the hour, the minute, a or p. The last stop of p.m. may be the sentence's end.
TIME_OF_DAY = re.compile(
    r"(?<![\w.,:-])(1[0-2]|0?[1-9]):([0-5]\d)[ \u00a0\u202f]?([apAP])"
    r"(?:[mM]|\.[mM](?:\.(?=\s+[a-z\d]|[,;:)]))?)(?![\w-])"
)
_AMOUNT = re.compile(
    rf"(?<![\w.,$–—-])(?:[{CURRENCIES}]{_SPACE}?{_DECIMAL}|{_DECIMAL}{_SPACE}?[{CURRENCIES}])"
    rf"(?![\w/+-]|[.,:]\d|{_SPACE}?[-–—]{_SPACE}?[{CURRENCIES}]?\d|{_SPACE}?(?:[kKMm]|[mb]n|thousand|[mbtr]+illions?)\b)"
)
_QUANTITY = re.compile(
    rf"(?<![\w.,:/'’%-]){_SIGN}{_DECIMAL}(?:{_SPACE}?[-–x×]{_SPACE}?{_DECIMAL}){{0,3}}{_SPACE}?"
    rf"(?:{_SYMBOL})(?![\w/²³'’-])"
)
_TIME_WITH_MERIDIEM = re.compile(
    rf"(?<![\w.,:-])(?:{_HOUR}(?:{_MERIDIEM})?{_SPACE}?[-–]{_SPACE}?)?{_HOUR}{_MERIDIEM}",
    re.IGNORECASE,
)
# Units with spaces in them, which begin and end where no word goes on.
_SPACED = re.compile(
    r"(?<![\w.,/+-])(?:"
    # Phones: +33 1 42 34 56 78, (212) 555-0147, 0800 123 456, 555 0182
    rf"\+\d{{1,3}}(?:{_SPACE}?[-./]?{_SPACE}?(?:\d{{1,5}}|\(\d{{1,5}}\))){{1,8}}"
    rf"|\(\+?\d{{1,5}}\)(?:{_SPACE}?[-.]?{_SPACE}?\d{{2,8}}){{1,8}}"
    rf"|0\d{{1,5}}(?:{_SPACE}?[-./]?{_SPACE}?(?:\d{{2,8}}|\(\d{{2,8}}\))){{1,8}}"
    rf"|\d{{3}}{_SPACE}\d{{4}}"
    # Grouped digits: 4111 1111 1111 1111, 1 234 567,89, 978 3 16
    rf"|\d{{1,6}}(?:{_SPACE}\d{{1,7}}){{2,9}}(?:,\d+)?|\d{{1,3}}(?:{_SPACE}\d{{3}})+(?:,\d+)?"
    # IBANs, post codes and plates: GB29 NWBK 6016, SW1A 1AA, K1A 0B1, AB 123 CD, 1012 AB
    rf"|[A-Z]{{2}}\d{{2}}(?:{_SPACE}[A-Z\d]{{1,4}}){{2,8}}|[A-Z]{{2,3}}(?:{_SPACE}\d{{2,5}}){{2,8}}"
    rf"|[A-Z]{{1,2}}\d[A-Z\d]?{_SPACE}\d[A-Z]{{2}}|[A-Z]\d[A-Z]{_SPACE}\d[A-Z]\d"
    rf"|[A-Z]{{1,3}}{_SPACE}\d{{1,4}}{_SPACE}[A-Z]{{1,3}}|\d{{4}}{_SPACE}[A-Z]{{2}}"
    # Masked digits: **** 4242
    rf"|(?:[*xX•]{{2,6}}[ -]){{1,4}}\d{{2,6}}"
    # 1 1/2, 2 ½
    rf"|\d+{_SPACE}(?:\d+/\d+|[{_FRACTION}])"
    # Currencies by their codes: US$ 30, CHF 12.50, 30 EUR
    rf"|(?:[A-Z]{{1,3}}[{CURRENCIES}]|{_CURRENCY_CODE}){_SPACE}?{_DECIMAL}"
    rf"|{_DECIMAL}{_SPACE}?(?:{_CURRENCY_CODE})(?!\w)"
    # Places: 48.8566, 2.3522
    rf"|[-−]?\d{{1,3}}\.\d{{3,9}},{_SPACE}?[-−]?\d{{1,3}}\.\d{{3,9}}"
    # Scores, sizes and sums: 3 - 2, 10 x 15, 16 : 9
    rf"|{_DECIMAL}(?:{_SPACE}[-–—x×/:÷]{_SPACE}{_DECIMAL}){{1,5}}(?:{_SPACE}?(?:{_SYMBOL}))?"
    # Signs that number things: § 5, © 2024, № 7; comparisons: > 100
    rf"|(?:[§©℗№#¶]{{1,2}}|[<>≤≥≈~±≠=]=?){_SPACE}?\d+(?:[.,/–-]\d+)*%?"
    # Coordinates: 48° 51' 24" N
    rf"|\d[\d.,]*°(?:{_SPACE}?\d[\d.,]*['′’](?:{_SPACE}?\d[\d.,]*(?:[\"″”]|'')?)?)?(?:{_SPACE}?[NSEWO]\b)?"
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


def written_units(text: str, has_elisions: bool = False) -> Iterator[tuple[Span, UnitKind]]:
    """Yield where units lie in a text, and what they are; some overlap: of those the first counts.

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


# The scale of an amount, as its language abbreviates it besides the words of the Unicode CLDR.
_ABBREVIATED_SCALES = {
    "en": {"mn": 6, "mln": 6, "bn": 9, "bln": 9, "tn": 12, "trn": 12, "millions": 6, "billions": 9},
    "fr": {"mn": 6, "mrd": 9, "mds": 9, "mille": 3},
    "de": {"mio.": 6, "mrd.": 9, "bio.": 12},
}


@lru_cache(maxsize=256)
def _scales(language: str) -> Mapping[str, int]:
    """Return the powers of ten that the words and letters for scales stand for, as "million"."""
    try:
        formats = Locale.parse(language).compact_decimal_formats
    except (UnknownLocaleError, ValueError):
        return {}
    scales = dict(_ABBREVIATED_SCALES.get(language, {}))
    for by_plural in formats.values():
        for by_magnitude in by_plural.values():
            for magnitude, pattern in by_magnitude.items():
                text = pattern.pattern.replace("'", "")
                word = text.replace("0", "").strip(f".{_SPACES}").lower()
                if word and word != "t" and magnitude.isdecimal():
                    scales.setdefault(word, len(magnitude) - text.count("0"))
    return scales


@lru_cache(maxsize=256)
def _scaled_amount(language: str) -> re.Pattern[str] | None:
    """Return a pattern of amounts with a scale, as $3.2 million; None where no scale is known."""
    scales = sorted(_scales(language), key=len, reverse=True)
    if not scales:
        return None
    words = "|".join(re.escape(scale) for scale in scales if len(scale) > 1)
    letters = "".join(scale for scale in scales if len(scale) == 1)
    written = [rf"(?i:{words})"] if words else []
    if letters:
        capitals = letters.upper()
        written += [rf"(?<=\d)[{letters}{capitals}]", rf"(?<={_SPACE})[{capitals}]"]
    sign = rf"(?:(?:[A-Z]{{1,3}})?[{CURRENCIES}]|(?:{_CURRENCY_CODE}))"
    number = rf"{_DECIMAL}(?:[-–]{_DECIMAL})?"
    scale = rf"(?:{_SPACE}|-)?(?P<scale>{'|'.join(written)})(?!\w)"
    return re.compile(
        rf"(?<![\w.,$–—-])(?:(?P<sign>{sign}){_SPACE}?(?P<number>{number}){scale}"
        rf"|(?P<number_before>{number}){scale.replace('<scale>', '<scale_before>')}"
        rf"{_SPACE}?(?P<sign_after>{sign})(?!\w))"
    )


def scaled_amounts(text: str, language: str) -> Iterator[Span]:
    """Yield where amounts with a currency and a scale lie: $3.2 million, 5bn €."""
    pattern = _scaled_amount(language)
    return (Span(*match.span()) for match in pattern.finditer(text)) if pattern else iter(())


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


_SPACES = " \u00a0\u202f"
_GROUPED = re.compile(rf"\d{{1,3}}(?:([.,'’{_SPACES}])\d{{3}})(?:\1\d{{3}})*(?:[.,]\d+)?")
# One number in the words of a translation, which may write it with spaces, or letters after it.
NUMBER = re.compile(
    rf"(?<![\w.,])\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?:[.,]\d+)?(?![\d.,]*\d)"
    r"|(?<![\w.,])\d+(?:[.,'’]\d+)*"
)


def values(text: str) -> frozenset[Decimal]:
    """Return what a number may mean, in one language or another: 1,500 is 1500 or 1.5."""
    found = set()
    if grouped := _GROUPED.fullmatch(text):
        whole, _, decimals = _parts(text, grouped[1])
        found.add(Decimal(f"{whole}.{decimals or 0}"))
    if re.fullmatch(r"\d+(?:[.,]\d+)?", text):
        found.add(Decimal(text.replace(",", ".")))
    return frozenset(found)


def localised(text: str, source: str, target: str) -> str:
    """Return a number of one language as another writes it; as it is, if it is none in that
    language. What begins or ends it, as a unit, stays.

    source, target: languages, in two letters.
    """
    own, other = _symbols(source), _symbols(target)
    if own is None or other is None:
        return text
    point, group = map(re.escape, own)
    number = re.compile(
        rf"(?<![\d.,])(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{point}\d+)?(?![\d.,])"
    )
    changes = str.maketrans({own[0]: other[0], own[1]: other[1]})
    return number.sub(lambda match: match.group().translate(changes), text)


def localised_amount(text: str, source: str, target: str) -> str:
    """Return an amount with a currency's sign as another language writes it: $3.50 is 3,50 $, and
    $3.2 million 3,2 millions $.
    """
    scaled = _scaled_amount(source)
    if scaled and (match := scaled.fullmatch(text)):
        return _localised_scaled_amount(match, source, target) or text
    sign = next(character for character in text if unicodedata.category(character) == "Sc")
    number = localised(text.replace(sign, "").strip(), source, target)
    pattern = _currency_pattern(target)
    if pattern is None:
        return text
    return sign + number if pattern.startswith("¤") else f"{number}\u00a0{sign}"


def _localised_scaled_amount(match: re.Match[str], source: str, target: str) -> str | None:
    """Return None where the target's way to write this scale is not known."""
    sign = match["sign"] or match["sign_after"]
    number = match["number"] or match["number_before"]
    scale = (match["scale"] or match["scale_before"]).lower()
    number, pattern = localised(number, source, target), _currency_pattern(target)
    words = _scale_pattern(_scales(source)[scale], number, len(scale) > _LONGEST_LETTER, target)
    if pattern is None or words is None:
        return None
    written = words.replace("0", number)
    if not pattern.startswith("¤"):
        return f"{written}\u00a0{sign}"
    return f"{sign}\u00a0{written}" if sign[-1:].isalpha() else sign + written


_LONGEST_LETTER = 3  # of an abbreviated scale: k, bn, mio


def _scale_pattern(power: int, number: str, is_word: bool, language: str) -> str | None:
    """Return how a language writes a number with a scale, the number as a 0."""
    try:
        locale = Locale.parse(language)
    except (UnknownLocaleError, ValueError):
        return None
    figure = re.split("[-–]", number)[-1].replace(",", ".")
    plural = (
        locale.plural_form(Decimal(figure)) if re.fullmatch(r"\d+(\.\d+)?", figure) else "other"
    )
    for length in ("long",) if is_word else ("short", "long"):
        by_plural = locale.compact_decimal_formats[length]
        by_magnitude = by_plural.get(plural, by_plural["other"])
        pattern = by_magnitude.get(f"1{'0' * power}") or by_plural["other"].get(f"1{'0' * power}")
        text = pattern.pattern.replace("'", "") if pattern else ""
        if text.count("0") == 1 and len(text) > 1:
            return text
    return None


def in_24_hours(hour: int, minute: str, is_afternoon: bool) -> str:
    """Write a time of a clock of twelve hours as one of 24: 4:44 pm is 16:44."""
    return f"{hour % 12 + 12 * is_afternoon}:{minute}"


@lru_cache(maxsize=256)
def has_24_hours(language: str) -> bool:
    """Return whether a language counts the hours of a day from 0 to 23."""
    try:
        return "a" not in Locale.parse(language).time_formats["short"].pattern
    except (UnknownLocaleError, ValueError):
        return False


def _parts(text: str, group: str) -> tuple[str, str, str]:
    """Return the digits before the decimal point, the point and the digits after it."""
    bare = text.replace(group, "")
    point = next((mark for mark in ".," if mark in bare), "")
    return bare.partition(point) if point else (bare, "", "")


@lru_cache(maxsize=256)
def _currency_pattern(language: str) -> str | None:
    try:
        return str(Locale.parse(language).currency_formats["standard"].pattern)
    except (UnknownLocaleError, ValueError):
        return None


@lru_cache(maxsize=256)
def _symbols(language: str) -> tuple[str, str] | None:
    """Return a language's decimal point and what groups thousands, by the Unicode CLDR."""
    try:
        return get_decimal_symbol(language), get_group_symbol(language)
    except (UnknownLocaleError, ValueError):
        return None
