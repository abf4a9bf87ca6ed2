"""Gives a translation the first letter and the end marks of its source, as a whole text or as a
part of a sentence that was cut.
"""

import re

from serving.text.end_marks import (
    CLAUSE_END_MARKS,
    CLOSING_MARKS,
    COMMAS,
    SCRIPT_END_MARKS,
    SENTENCE_END_MARKS,
)

_TAGS = r"(?:\s|<[^<>]*>)*"
_FIRST_LETTER = re.compile(rf"^({_TAGS})([^\W\d_])")
# Matches reversed texts, so that a search from the end takes linear time.
_LAST_MARKS = re.compile(rf"((?:\s|>[^<>]*<)*)([{SENTENCE_END_MARKS}]*)")
_ENDS_WITH_WORD = re.compile(r"\w(?:[\s)\]}'’\"”»]|<[^<>]*>)*\Z")
_ENDS_SENTENCE = re.compile(
    rf"[{SENTENCE_END_MARKS}{SCRIPT_END_MARKS}][{re.escape(CLOSING_MARKS)}]*\Z"
)
_LAST_CLAUSE_MARKS = re.compile(
    rf"((?:\s|>[^<>]*<)*)([{SENTENCE_END_MARKS}{CLAUSE_END_MARKS}{COMMAS}]*)"
)
_SENTENCE_MARKS = frozenset(SENTENCE_END_MARKS)
_KEEPS_CAPITAL = re.compile(rf"{_TAGS}(?:I\b|[^\W\d_]\w*[A-Z])")  # I, NATO, McDonald
LANGUAGES_WITH_CAPITALIZED_NOUNS = frozenset({"de", "lb"})  # there a capital does not make a name


def format_like_source(source: str, translation: str) -> str:
    """Return the translation with its first letter capitalized as the source's is, and with the
    source's end marks. Tags and spaces around both stay.
    """
    return match_end_marks(source, _match_first_letter(source, translation))


def _match_first_letter(source: str, translation: str) -> str:
    first = _FIRST_LETTER.match(source)
    if first is None:
        return translation
    recase = str.upper if first[2].isupper() else str.lower if first[2].islower() else str
    return _FIRST_LETTER.sub(lambda match: match[1] + recase(match[2]), translation, count=1)


def match_end_marks(source: str, translation: str) -> str:
    """Return the translation with the source's end marks if it has none, and without its own if the
    source ends with a word. Where both have some, the translation's stay as its language writes
    them.
    """
    source_end, end = _LAST_MARKS.match(source[::-1]), _LAST_MARKS.match(translation[::-1])
    assert source_end is not None and end is not None  # they match nothing at least
    if source_end[2] and not end[2]:
        text = translation[: len(translation) - end.end()]
        return text + source_end[2][::-1] + end[1][::-1]
    end_marks = _LAST_CLAUSE_MARKS.match(translation[::-1])
    assert end_marks is not None  # it matches nothing at least
    text = translation[: len(translation) - end_marks.end()].rstrip()
    if end_marks[2] and text and _ENDS_WITH_WORD.search(source):
        return text + end_marks[1][::-1]
    return translation


def is_unfinished_sentence(segment: str, gap: str) -> bool:
    """Return whether a segment is a part of a sentence that goes on after it.

    gap: what stands between it and the next segment of the text.
    """
    is_within_line = not gap.strip(" \t\u00a0\u202f\u3000")
    return is_within_line and _ENDS_SENTENCE.search(segment) is None


def format_sentence_start(source: str, translation: str, language: str) -> str:
    """Return the translation of a part of a sentence that goes on after it: with the mark that its
    source ends with, where the model has ended a sentence.
    """
    source_end = _LAST_CLAUSE_MARKS.match(source[::-1])
    end = _LAST_CLAUSE_MARKS.match(translation[::-1])
    assert source_end is not None and end is not None  # they match nothing at least
    if not (set(end[2]) <= _SENTENCE_MARKS or (source_end[2] and end[2] == ",")):
        return translation
    mark = source_end[2][::-1]
    if language == "fr" and mark in (";", ":"):
        mark = " " + mark
    return translation[: len(translation) - end.end()] + mark + end[1][::-1]


def format_sentence_rest(source: str, translation: str, language: str) -> str:
    """Return the translation of a part of a sentence that goes on from an earlier one: with a small
    first letter if its source has one, except in languages that write all nouns with capitals.
    """
    first = _FIRST_LETTER.match(source)
    is_small = first is not None and first[2].islower()
    is_name = _KEEPS_CAPITAL.match(translation) is not None or translation.isupper()
    if not is_small or is_name or language in LANGUAGES_WITH_CAPITALIZED_NOUNS:
        return translation
    return _match_first_letter(source, translation)
