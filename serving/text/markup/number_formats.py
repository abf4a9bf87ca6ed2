"""Writes numbers, amounts and times of one language as another does, and compares them by value."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache

from babel import Locale, UnknownLocaleError
from babel.numbers import get_decimal_symbol, get_group_symbol

from serving.text.spans import Span

CURRENCIES = "$¢£¤¥֏؋৳฿៛₠-⃀"
SPACE = r"[ \u00a0\u2009\u202f]"
DECIMAL = r"\d+(?:[.,]\d+)*"
CURRENCY_CODE = "|".join(sorted(Locale("en").currencies))
# The scale of an amount, as its language abbreviates it besides the words of the Unicode CLDR.
_ABBREVIATED_SCALES = {
    "en": {"mn": 6, "mln": 6, "bn": 9, "bln": 9, "tn": 12, "trn": 12, "millions": 6, "billions": 9},
    "fr": {"mn": 6, "mrd": 9, "mds": 9, "mille": 3},
    "de": {"mio.": 6, "mrd.": 9, "bio.": 12},
}
_SPACES = " \u00a0\u202f"
_GROUPED = re.compile(rf"\d{{1,3}}(?:([.,'’{_SPACES}])\d{{3}})(?:\1\d{{3}})*(?:[.,]\d+)?")
# One number in the words of a translation, which may write it with spaces, or letters after it.
NUMBER = re.compile(
    rf"(?<![\w.,])\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?:[.,]\d+)?(?![\d.,]*\d)"
    r"|(?<![\w.,])\d+(?:[.,'’]\d+)*"
)
_LONGEST_LETTER = 3  # of an abbreviated scale: k, bn, mio


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
    words = "|".join(re.escape(scale) for scale in scales if len(scale) > 1) or "(?!)"
    letters = [scale for scale in scales if len(scale) == 1]
    attached = "|".join([f"(?i:{words})", *letters, *map(str.upper, letters)])
    separate = "|".join([f"(?i:{words})", *map(str.upper, letters)])  # "€5 a month" has no scale
    sign = rf"(?:(?:[A-Z]{{1,3}})?[{CURRENCIES}]|(?:{CURRENCY_CODE}))"
    number = rf"{DECIMAL}(?:[-–]{DECIMAL})?"
    scale = rf"(?:(?P<scale>{attached})|(?:{SPACE}|-)(?P<scale_apart>{separate}))(?!\w)"
    return re.compile(
        rf"(?<![\w.,$–—-])(?:(?P<sign>{sign}){SPACE}?(?P<number>{number}){scale}"
        rf"|(?P<number_before>{number}){scale.replace('<scale', '<scale_before')}"
        rf"{SPACE}?(?P<sign_after>{sign})(?!\w))"
    )


def scaled_amounts(text: str, language: str) -> Iterator[Span]:
    """Yield where amounts with a currency and a scale lie: $3.2 million, 5bn €."""
    pattern = _scaled_amount(language)
    return (Span(*match.span()) for match in pattern.finditer(text)) if pattern else iter(())


def possible_values(text: str) -> frozenset[Decimal]:
    """Return what a number may mean, in one language or another: 1,500 is 1500 or 1.5."""
    numbers = set()
    if grouped := _GROUPED.fullmatch(text):
        whole, _, decimals = _parts(text, grouped[1])
        numbers.add(Decimal(f"{whole}.{decimals or 0}"))
    if re.fullmatch(r"\d+(?:[.,]\d+)?", text):
        numbers.add(Decimal(text.replace(",", ".")))
    return frozenset(numbers)


def localize_number(text: str, source: str, target: str) -> str:
    """Return a number of one language as another writes it; as it is, if it is none in that
    language. What begins or ends it, as a unit, stays.

    source, target: languages, in two letters.
    """
    source_symbols, target_symbols = _symbols(source), _symbols(target)
    if source_symbols is None or target_symbols is None:
        return text
    point, group = map(re.escape, source_symbols)
    number = re.compile(
        rf"(?<![\d.,])(?:\d{{1,3}}(?:{group}\d{{3}})+|\d+)(?:{point}\d+)?(?![\d.,])"
    )
    changes = str.maketrans(
        {source_symbols[0]: target_symbols[0], source_symbols[1]: target_symbols[1]}
    )
    return number.sub(lambda match: match.group().translate(changes), text)


def localize_amount(text: str, source: str, target: str) -> str:
    """Return an amount with a currency's sign as another language writes it: $3.50 is 3,50 $, and
    $3.2 million 3,2 millions $.
    """
    scaled = _scaled_amount(source)
    if scaled and (match := scaled.fullmatch(text)):
        return _localised_scaled_amount(match, source, target) or text
    sign = next(character for character in text if unicodedata.category(character) == "Sc")
    number = localize_number(text.replace(sign, "").strip(), source, target)
    pattern = _currency_pattern(target)
    if pattern is None:
        return text
    return sign + number if pattern.startswith("¤") else f"{number}\u00a0{sign}"


def _localised_scaled_amount(match: re.Match[str], source: str, target: str) -> str | None:
    """Return None where the target's way to write this scale is not known."""
    sign = match["sign"] or match["sign_after"]
    number = match["number"] or match["number_before"]
    scales = match.group("scale", "scale_apart", "scale_before", "scale_before_apart")
    scale = next(filter(None, scales)).lower()
    number, pattern = localize_number(number, source, target), _currency_pattern(target)
    words = _scale_pattern(_scales(source)[scale], number, len(scale) > _LONGEST_LETTER, target)
    if pattern is None or words is None:
        return None
    written = words.replace("0", number)
    if not pattern.startswith("¤"):
        return f"{written}\u00a0{sign}"
    return f"{sign}\u00a0{written}" if sign[-1:].isalpha() else sign + written


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


def to_24_hours(hour: int, minute: str, is_afternoon: bool) -> str:
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
