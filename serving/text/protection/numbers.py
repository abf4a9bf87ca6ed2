"""Reads numbers, and writes them as another language does: 3.5 is 3,5 in French."""

import re
import unicodedata
from decimal import Decimal
from functools import lru_cache

from babel import Locale, UnknownLocaleError
from babel.numbers import get_decimal_symbol, get_group_symbol

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
    """Return an amount with a currency's sign as another language writes it: $3.50 is 3,50 $."""
    sign = next(character for character in text if unicodedata.category(character) == "Sc")
    number = localised(text.replace(sign, "").strip(), source, target)
    pattern = _currency_pattern(target)
    if pattern is None:
        return text
    return sign + number if pattern.startswith("¤") else f"{number}\u00a0{sign}"


def in_24_hours(hour: int, minute: str, is_afternoon: bool) -> str:
    """Write a time of a clock of twelve hours as one of 24: 4:44 pm is 16:44."""
    return f"{hour % 12 + 12 * is_afternoon}:{minute}"


@lru_cache(maxsize=256)
def has_24_hours(language: str) -> bool:
    """Say if a language counts the hours of a day from 0 to 23."""
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
