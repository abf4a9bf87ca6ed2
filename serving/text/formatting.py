"""Gives a translation the outer form of its source: its first letter's case, its last mark."""

import re

_TAGS = r"(?:\s|<[^<>]*>)*"
_FIRST_LETTER = re.compile(rf"^({_TAGS})([^\W\d_])")
# Of a text that is read from its end, where a run of marks is looked at once.
_LAST_MARKS = re.compile(r"((?:\s|>[^<>]*<)*)([.!?…。！？]*)")


def formatted_as(source: str, translation: str) -> str:
    """Return the translation with a first letter as large or small as the source's, and with its
    closing marks. Tags and spaces around both stay.
    """
    return _with_end(source, _with_beginning(source, translation))


def _with_beginning(source: str, translation: str) -> str:
    first = _FIRST_LETTER.match(source)
    if first is None:
        return translation
    recase = str.upper if first[2].isupper() else str.lower if first[2].islower() else str
    return _FIRST_LETTER.sub(lambda match: match[1] + recase(match[2]), translation, count=1)


def _with_end(source: str, translation: str) -> str:
    """Marks are left as the target language writes them where both have one."""
    wanted, own = _LAST_MARKS.match(source[::-1]), _LAST_MARKS.match(translation[::-1])
    assert wanted is not None and own is not None  # they match nothing at least
    if bool(wanted[2]) == bool(own[2]):
        return translation
    return translation[: len(translation) - own.end()] + wanted[2][::-1] + own[1][::-1]
