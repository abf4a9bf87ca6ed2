"""Writes brackets, quotation marks, dashes and runs of marks of a translation as its source has
them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from serving.text.end_marks import CLOSING_MARKS, SENTENCE_END_MARKS
from serving.text.markup.escapes import unescape
from serving.text.markup.paired_marks import APOSTROPHES, ROUND_BRACKETS, MarkPairs, find_pairs
from serving.text.markup.tokens import Role, Token, join_text, split_at, with_spans
from serving.text.markup.translated_words import (
    TargetWord,
    find_words_and_marks,
    has_letters_or_digits,
)
from serving.text.markup.typography import DASH, ELLIPSIS, is_run, is_typographic

Places = list[int]
_END_MARKS = frozenset(SENTENCE_END_MARKS)
_CLOSING = frozenset(CLOSING_MARKS)
_LOOSE_APOSTROPHE = re.compile(r"(?<!\w)['‘’]|['‘’](?!\w)")
_PLAIN = frozenset("()\"'`")  # a model may write its language's own marks instead: « »
_ELLIPSES = frozenset({"...", "…"})
_OTHER_MARKS = frozenset(":;,")
_MARKS = re.compile(r"[!?]+|…|\.{2,}")
_END = re.compile(rf"([{SENTENCE_END_MARKS}:;,]?)[\s{re.escape(CLOSING_MARKS)}]*\Z")


def write_dashes(tokens: Sequence[Token], words: Sequence[TargetWord]) -> None:
    """Write the dashes of the source where the translation has as many; else they stay as the model
    wrote them.
    """
    signs = [token for token in tokens if is_typographic(token)]
    dashes = [token for token in signs if token.text.strip() == DASH]
    places = _find_dashes(words)
    if dashes and len(dashes) == len(places):
        for place, token in zip(places, dashes, strict=True):
            words[place].text = unescape(token.raw)
        _remove_spaces(words, places, dashes)


def _find_dashes(words: Sequence[TargetWord]) -> Places:
    return [
        place
        for place, word in enumerate(words)
        if word.raw is None and word.text in "-–—" and (word.gap or not place)
    ]


def _remove_spaces(words: Sequence[TargetWord], places: Places, dashes: Sequence[Token]) -> None:
    """Remove the spaces around dashes that the source writes without."""
    for number, token in zip(places, dashes, strict=True):
        if token.text != token.text.strip():
            words[number].gap = ""
            if number + 1 < len(words):
                words[number + 1].gap = ""


@dataclass(frozen=True, slots=True)
class PairedMarks:
    """The brackets and quotation marks of a segment, and what became of them in a translation.

    Models read sentences with brackets better than without: they become tags only where a
    translation has lost one (loadtest/LOG.md).

    lost: places, in the text that a model reads, of those that the translation does not have alike.
    written: how the others are written, by their places in the translation.
    opening: places in the translation of those that open; no space follows them.
    replaced: places in the translation of what the model wrote for the lost ones.
    """

    lost: frozenset[int]
    written: dict[int, str]
    opening: frozenset[int]
    replaced: frozenset[int]

    @classmethod
    def compare(cls, tokens: Sequence[Token], translation: str) -> "PairedMarks":
        """Return the marks of a segment, compared with those of what a model wrote."""
        text = join_text(tokens)
        source, target = find_pairs(text), find_pairs(translation)
        lost: set[int] = set()
        replaced: set[int] = set()
        written: dict[int, str] = {}
        for is_bracket in (True, False):
            places, others = (
                [place for place in pairs.places if (side[place] in ROUND_BRACKETS) == is_bracket]
                for pairs, side in ((source, text), (target, translation))
            )
            if places and not _are_alike(source, target, places, others, translation):
                lost |= {*places}
                replaced |= {*others}
                if any(text[place] in APOSTROPHES for place in places):
                    replaced |= {match.start() for match in _LOOSE_APOSTROPHE.finditer(translation)}
            elif places:
                raws = _raw_marks(tokens, places)
                is_native = not any(translation[other] in _PLAIN for other in others)
                written |= {
                    other: raw
                    for other, raw in zip(others, raws, strict=True)
                    if not (raw in _PLAIN and is_native)
                }
        opening = frozenset(place for place in written if _opens(target, place))
        return cls(frozenset(lost), written, opening, frozenset(replaced))

    def is_replaced(self, word: TargetWord) -> bool:
        """Return whether a word is a mark that the model wrote for a lost one."""
        return word.raw is None and bool(word.text) and word.span.start in self.replaced

    def write_into(self, words: Sequence[TargetWord]) -> None:
        """Write the marks as the source has them, without spaces within pairs."""
        is_opened = False
        for word in words:
            if is_opened:
                word.gap = ""
            is_opened = False
            if word.raw is None and word.text and word.span.start in self.written:
                word.text = self.written[word.span.start]
                is_opened = word.span.start in self.opening
                if not is_opened:
                    word.gap = ""


def _opens(pairs: MarkPairs, place: int) -> bool:
    return place in pairs.closing or pairs.alone.get(place, False)


def _are_alike(
    source: MarkPairs,
    target: MarkPairs,
    places: Sequence[int],
    others: Sequence[int],
    translation: str,
) -> bool:
    """Return whether a translation has the same brackets or quotation marks, each pair of them
    around words.
    """
    opens = [_opens(source, place) for place in places]
    if opens != [_opens(target, place) for place in others]:
        return False
    pairs = [(start, target.closing[start]) for start in others if start in target.closing]
    return all(has_letters_or_digits(translation[start:end]) for start, end in pairs)


def _raw_marks(tokens: Sequence[Token], places: Sequence[int]) -> Iterator[str]:
    """Yield how the source writes the marks at these places of the text that a model reads."""
    borders = sorted({border for place in places for border in (place, place + 1)})
    starts = {
        span.start: token for token, span in with_spans(split_at(tokens, borders)) if token.text
    }
    return (unescape(starts[place].raw) for place in places)


@dataclass(frozen=True, slots=True)
class _SourceMark:
    """A mark between or after the words of a source.

    run: its token, if it is a run of marks.
    place: number of the token that it is in.
    """

    text: str
    run: Token | None
    place: int


def _find_source_marks(tokens: Sequence[Token]) -> tuple[list[_SourceMark], _SourceMark | None]:
    """Return the marks between a source's words, and the one after them."""
    marks: list[_SourceMark] = []
    last_word = -1
    for place, token in enumerate(tokens):
        if is_run(token):
            marks.append(_SourceMark(token.text, token, place))
        elif token.role in (Role.NON_TRANSLATABLE, Role.NUMBER):
            last_word = place
        elif token.role is Role.TEXT:
            end = _END.search(token.text)
            assert end is not None  # it matches nothing at least
            if has_letters_or_digits(token.text):
                last_word = place - bool(end[1])
            matches = _MARKS.finditer(token.text)
            marks += (_SourceMark(mark.group(), None, place) for mark in matches)
            if end[1] and end[1] not in "!?…":
                marks.append(_SourceMark(end[1], None, place))
    last = marks[-1] if marks and marks[-1].place > last_word else None
    inner = [mark for mark in marks if mark is not last and _MARKS.fullmatch(mark.text)]
    return inner, last


def loses_runs(tokens: Sequence[Token], translation: str) -> bool:
    """Return whether a translation has another number of marks between its words than a source with
    runs of marks there.
    """
    inner, _ = _find_source_marks(tokens)
    if all(mark.run is None for mark in inner):
        return False
    texts = [translation[span.start : span.end] for span in find_words_and_marks(translation)]
    return len(_find_inner_groups(tokens, texts)) != len(inner)


def inner_runs(tokens: Sequence[Token]) -> list[Token]:
    """Return the runs of marks between a segment's words."""
    inner, _ = _find_source_marks(tokens)
    return [mark.run for mark in inner if mark.run is not None]


def _word_texts(words: Sequence[TargetWord]) -> list[str]:
    return [word.text if word.raw is None else word.raw + "\0" for word in words]


def _find_groups(words: Sequence[str]) -> tuple[list[slice], slice]:
    """Return the words of a translation that are marks between its words, and those after the last
    word, which may be none.
    """
    end = len(words)
    while end and words[end - 1] in _CLOSING:
        end -= 1
    groups: list[slice] = []
    start = 0
    while start < end:
        stop = start
        while stop < end and _is_mark(words[stop]):
            stop += 1
        if stop > start:
            groups.append(slice(start, stop))
        start = stop + 1
    last = groups.pop() if groups and groups[-1].stop == end else slice(end, end)
    return [group for group in groups if words[group] != ["."]], last


def _is_mark(word: str) -> bool:
    marks = word.rstrip("1")
    return bool(marks) and _END_MARKS.issuperset(marks)


def inner_marks(words: Sequence[TargetWord]) -> list[TargetWord]:
    """Return the marks between the words of a translation."""
    return [word for group in _find_groups(_word_texts(words))[0] for word in words[group]]


def write_inner_runs(tokens: Sequence[Token], words: list[TargetWord]) -> None:
    """Write the runs of marks between words as the source does, where the translation has as many
    marks there.
    """
    inner, _ = _find_source_marks(tokens)
    groups = _find_inner_groups(tokens, _word_texts(words))
    if len(groups) == len(inner):
        for group, mark in zip(groups[::-1], inner[::-1], strict=True):
            if mark.run is not None:
                words[group] = [_write_run(mark.run, words[group.start])]


def write_end(tokens: Sequence[Token], words: list[TargetWord]) -> None:
    """Write the mark at the end of a translation: a run as the source has it; another mark of the
    source if the translation has none or a run; none if the source has none.
    """
    _, mark = _find_source_marks(tokens)
    _, group = _find_groups(_word_texts(words))
    if not group.start or any(word.text in _run_texts(tokens) for word in words[group]):
        return
    blank = TargetWord("", "", np.zeros_like(words[0].alignment))
    has_mark = group.start < group.stop
    if mark is None:
        del words[group]
    elif mark.run is not None:
        words[group] = [_write_run(mark.run, words[group.start] if has_mark else blank)]
    elif has_mark and (group.stop > group.start + 1 or mark.text in _OTHER_MARKS):
        words[group] = [replace(words[group.start], text=mark.text)]
    elif not has_mark:
        last = words[group.start - 1]
        if last.raw is None and last.text in _OTHER_MARKS:
            last.text = mark.text
        else:
            place = len(words) if join_text(tokens).endswith(mark.text) else group.start
            words.insert(place, replace(blank, text=mark.text))


def _run_texts(tokens: Sequence[Token]) -> set[str]:
    return {run.name.lstrip() for run in inner_runs(tokens)}


def _find_inner_groups(tokens: Sequence[Token], words: Sequence[str]) -> list[slice]:
    """Return the words of a translation that are marks between its words. An ellipsis that a model
    has moved to the end is one of them.
    """
    inner, last = _find_source_marks(tokens)
    groups, end = _find_groups(words)
    is_moved = "".join(words[end]) in _ELLIPSES and (last is None or last.run is None)
    has_ellipsis = any(mark.run is not None and mark.text == ELLIPSIS for mark in inner)
    return [*groups, end] if is_moved and has_ellipsis and len(groups) < len(inner) else groups


def _write_run(run: Token, word: TargetWord) -> TargetWord:
    """Write a run of marks over the first mark that a model wrote in its place, after the space
    that it has there.
    """
    text = run.name.lstrip()
    if (word.text in ".…") != (text[0] in ".…") or not word.text:
        word.gap = run.name[: len(run.name) - len(text)]
    word.text = text
    return word
