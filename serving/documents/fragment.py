"""Turn text with inline codes into XML fragments, and their translations into text with codes.

A code is anything in a text that is not text: a change of font, a link, a picture. A fragment has
only the numbers of codes; the format knows what they mean.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from xml.sax.saxutils import escape

from serving.documents.codes import Close, Item, Open, Protected, Single, protect_words
from serving.text.markup.markdown_tokens import LINE_MARK
from serving.text.markup.tokens import Markup, MarkupKind
from serving.text.markup.xml_tokens import XmlTokenKind, tokenize_xml, unescape_references
from serving.text.wrapped_lines import wrapped_breaks

# Characters that XML cannot have.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SENTENCE_END_TAG = "br"
PROTECTED_TAG = "k"
_CLOSING = frozenset(")]}»”’\"',;:.!?")
SOFT_HYPHEN, ZERO_WIDTH_SPACE, NO_BREAK_HYPHEN = "\u00ad", "\u200b", "\u2011"
_LINE_MARK = re.compile(LINE_MARK)
_SIGNS = re.compile(r"[^\w\s]{1,3}")
_LETTER = "[0-9A-Za-z\u00c0-\u052f]"  # of scripts that have spaces between words
_WITHIN_WORD = re.compile(f"{SOFT_HYPHEN}|(?<={_LETTER})[{ZERO_WIDTH_SPACE}\u2060]+(?={_LETTER})")
_WORD = re.compile(rf"[\w'’{SOFT_HYPHEN}{ZERO_WIDTH_SPACE}\u2060{NO_BREAK_HYPHEN}-]+")
# How fragments are marked up: only line breaks end sentences, other codes do not.
MARKUP = Markup(
    MarkupKind.XML,
    splitting_tags=frozenset({SENTENCE_END_TAG}),
    ignore_tags=frozenset({PROTECTED_TAG}),
    outline_detection=False,
)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A text that is translated at once, and the codes and white space before and after it, which
    stay.
    """

    before: tuple[Item, ...]
    core: tuple[Item, ...]
    after: tuple[Item, ...]

    @property
    def has_words(self) -> bool:
        return any(any(map(str.isalpha, item)) for item in self.core if isinstance(item, str))

    @property
    def xml(self) -> str:
        return "".join(map(_to_xml, self.core))

    def restore_codes(self, translation: str) -> list[Item]:
        """Return the items of a translation of `xml`.

        Each code is in them once; pairs of codes are where the translation has them.
        """
        singles = {item.number: item for item in self.core if isinstance(item, Single | Protected)}
        pairs = {item.number for item in self.core if isinstance(item, Open)}
        missing = dict.fromkeys(sorted(pairs))
        forms = self._special_forms()
        items: list[Item] = []
        for item in _parse_items(translation):
            if isinstance(item, Single):
                if code := singles.pop(item.number, None):
                    items.append(code)
            elif isinstance(item, str):
                items.append(_WORD.sub(lambda word: forms.get(word.group(), word.group()), item))
            elif isinstance(item, Open | Close) and item.number in pairs:
                items.append(item)
                missing.pop(item.number, None)
        items += singles.values()
        items += (end for number in missing for end in (Open(number), Close(number)))
        items = _add_spaces(items, _words_among(self.core))
        items = [item for item in _restore_spaces_at_lines(items, self.core) if item != ""]
        return [*self.before, *_expand_protected(items), *self.after]

    def _special_forms(self) -> dict[str, str]:
        """Return the words with special hyphens or spaces by their plain forms.

        The same words in a translation are written in the same way.
        """
        texts = (item for item in self.core if isinstance(item, str))
        words = (word for text in texts for word in _WORD.findall(text))
        return {_readable(word): word for word in words if _readable(word) != word}


def make_fragment(items: Sequence[Item]) -> Fragment:
    """Return the fragment of items, without codes at its ends and pairs that enclose all of it."""
    core = _join_lines(_join_protected(protect_words(_join_texts(items))))
    core = [*_protect_line_marks(core)]
    start, end = 0, len(core)
    before: list[Item] = []
    after: list[Item] = []
    while start < end:
        first, last = core[start], core[end - 1]
        if _is_outside_text(first):
            before.append(first)
            start += 1
        elif _is_outside_text(last):
            after.append(last)
            end -= 1
        elif isinstance(first, Open) and last == Close(first.number):
            before.append(first)
            after.append(last)
            start, end = start + 1, end - 1
        else:
            break
    core = core[start:end]
    before += _take_blank(core, 0)
    after += _take_blank(core, -1)
    return Fragment(
        tuple(_expand_protected(before)), tuple(core), tuple(_expand_protected(reversed(after)))
    )


def _join_lines(items: Sequence[Item]) -> list[Item]:
    """Return the items with line breaks within sentences marked as such."""
    places = [place for place, item in enumerate(items) if _is_line_break(item)]
    ends = [-1, *places, len(items)]
    lines = ["".join(map(_plain, items[start + 1 : end])) for start, end in pairwise(ends)]
    joined = [*items]
    for place, goes_on in zip(places, wrapped_breaks(lines, ""), strict=True):
        line_break = items[place]
        assert isinstance(line_break, Single)
        joined[place] = replace(line_break, ends_sentence=not goes_on)
    return joined


def _join_protected(items: Iterable[Item]) -> list[Item]:
    """Join protected words with only signs between them, as in Ctrl+C and %d/%d."""
    joined: list[Item] = []
    run: list[Item] = []  # protected words, the signs between them and after the last
    for item in items:
        is_protected = isinstance(item, Protected) and item.text != ""
        is_between = isinstance(run[-1], Protected) if run else False
        if is_protected or (is_between and isinstance(item, str) and _SIGNS.fullmatch(item)):
            run.append(item)
            continue
        joined += _merge_protected(run)
        joined.append(item)
        run = []
    return joined + _merge_protected(run)


def _merge_protected(items: Sequence[Item]) -> list[Item]:
    """Return several protected words as one, with the number of the first, and what follows the
    last.
    """
    words = [*items]
    rest = [words.pop()] if words and isinstance(words[-1], str) else []
    numbers = [item.number for item in words if isinstance(item, Protected)]
    if len(words) < 2:
        return [*words, *rest]
    whole = Protected(numbers[0], tuple(_expand_protected(words)), "".join(map(_plain, words)))
    return [whole, *rest]


def _protect_line_marks(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items with list marks at the beginnings of lines as protected items."""
    begins, number = True, 0
    for item in items:
        if isinstance(item, str):
            if begins and (match := _LINE_MARK.match(item)):
                number -= 1
                yield Protected(number, (match.group(),), "")
                item = item[match.end() :]
            begins = begins and not item.strip()
        elif isinstance(item, Single) and item.ends_sentence:
            begins = True
        elif isinstance(item, Protected):
            begins = False
        yield item


def _is_line_break(item: Item) -> bool:
    return isinstance(item, Single) and item.is_line_break


def _plain(item: Item) -> str:
    """Return an item as text of one line, with a tab where sentences end."""
    match item:
        case str():
            return " ".join(item.splitlines())
        case Protected(text=text):
            return text
        case Single(ends_sentence=True):
            return "\t"
    return ""


def _is_outside_text(item: Item) -> bool:
    if isinstance(item, Protected):
        return not item.text
    return not item.strip() if isinstance(item, str) else isinstance(item, Single)


def _take_blank(core: list[Item], place: int) -> list[Item]:
    """Remove the white space at one end of the text, and return it."""
    if not core or not isinstance(text := core[place], str):
        return []
    stripped = text.lstrip() if place == 0 else text.rstrip()
    blank = text[: len(text) - len(stripped)] if place == 0 else text[len(stripped) :]
    core[place] = stripped
    return [blank] if blank else []


def _join_texts(items: Iterable[Item]) -> list[Item]:
    """Join neighbouring texts."""
    joined: list[Item] = []
    for is_text, group in groupby(items, key=lambda item: isinstance(item, str)):
        if not is_text:
            joined += group
        elif text := "".join(map(str, group)):
            joined.append(text)
    return joined


def _to_xml(item: Item) -> str:
    match item:
        case Open(number):
            return f'<g id="{number}">'
        case Close():
            return "</g>"
        case Protected(number, _, text):
            return (
                f'<{PROTECTED_TAG} id="{number}">{_text(text)}</{PROTECTED_TAG}>'
                if text
                else _single(number)
            )
        case Single(number, ends_sentence=True):
            return f'<{SENTENCE_END_TAG} id="{number}"/>'
        case Single(number, is_line_break=True):
            return f" {_single(number)} "
        case Single(number):
            return _single(number)
    return _text(item)


def _single(number: int) -> str:
    return f'<x id="{number}"/>'


def _text(text: str) -> str:
    return escape(_NO_XML.sub(" ", _readable(text)))


def _readable(text: str) -> str:
    """Return a text as models were trained to read it."""
    return _WITHIN_WORD.sub("", text).replace(NO_BREAK_HYPHEN, "-")


def _parse_items(xml: str) -> Iterator[Item]:
    """Yield text and codes of a translated fragment; codes with words of their own are single."""
    document = f"<f>{xml}</f>"
    open_codes: list[Open | Single] = []
    for token in tokenize_xml(document)[1:-1]:
        is_in_single = bool(open_codes) and isinstance(open_codes[-1], Single)
        if token.kind is XmlTokenKind.END_TAG:
            if isinstance(code := open_codes.pop(), Open):
                yield Close(code.number)
        elif token.kind is XmlTokenKind.TEXT and not is_in_single:
            yield unescape_references(token.raw(document))
        elif token.kind in (XmlTokenKind.START_TAG, XmlTokenKind.EMPTY_TAG):
            number = int(token.attributes.get("id", "0"))
            is_pair = token.name == "g" and not is_in_single
            code = Open(number) if is_pair else Single(number)
            if not is_in_single:
                yield code
            if token.kind is XmlTokenKind.START_TAG:
                open_codes.append(code)
            elif is_pair:
                yield Close(number)


def _words_among(items: Sequence[Item]) -> set[int]:
    """Return the numbers of the codes that are used like words: after a space, and before a space
    or punctuation.
    """
    return {
        item.number
        for item, (before, after) in zip(items, _edges(items), strict=True)
        if isinstance(item, Single)
        and not (item.ends_sentence or item.is_line_break)
        and before.isspace()
        and not after.isalnum()
    }


def _add_spaces(items: Sequence[Item], words: set[int]) -> list[Item]:
    """Add spaces before and after codes that are used like words."""
    spaced: list[Item] = []
    for item, (before, after) in zip(items, _edges(items), strict=True):
        is_word = isinstance(item, Single) and item.number in words
        if is_word and (before.isalnum() or before in _CLOSING):
            place = len(spaced)
            while place and isinstance(spaced[place - 1], Open):
                place -= 1
            spaced.insert(place, " ")
        spaced.append(item)
        if is_word and after.isalnum():
            spaced.append(" ")
    return spaced


def _edges(items: Sequence[Item]) -> list[tuple[str, str]]:
    """Return for each item the nearest character before and after it; a space if there is none."""

    def nearest(items: Iterable[Item], end: int) -> Iterator[str]:
        character = " "
        for item in items:
            yield character
            if isinstance(item, str) and item:
                character = item[end]

    before = [*nearest(items, -1)]
    after = [*nearest(reversed(items), 0)][::-1]
    return [*zip(before, after, strict=True)]


def _restore_spaces_at_lines(items: Sequence[Item], core: Sequence[Item]) -> Iterator[Item]:
    """Yield items with the source's spaces at joined lines instead of the added ones."""
    source_spaces = {
        item.number: (_is_space(before, -1), _is_space(after, 0))
        for before, item, after in _with_neighbours(core)
        if isinstance(item, Single) and _is_joined_line(item)
    }
    for before, item, after in _with_neighbours(items):
        if isinstance(item, str):
            item = item.lstrip() if _is_joined_line(before) else item
            item = item.rstrip() if _is_joined_line(after) else item
        if isinstance(item, Single) and item.number in source_spaces:
            has_before, has_after = source_spaces[item.number]
            yield from (" " * has_before, item, " " * has_after)
        else:
            yield item


def _with_neighbours(items: Sequence[Item]) -> Iterator[tuple[Item, Item, Item]]:
    """Yield each item between its neighbours; at the ends they are empty texts."""
    return zip(["", *items], items, [*items[1:], ""], strict=False)


def _is_space(item: Item, end: int) -> bool:
    return isinstance(item, str) and item != "" and item[end].isspace()


def _is_joined_line(item: Item) -> bool:
    return isinstance(item, Single) and item.is_line_break and not item.ends_sentence


def _expand_protected(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, with the parts of protected ones."""
    for item in items:
        yield from item.items if isinstance(item, Protected) else (item,)
