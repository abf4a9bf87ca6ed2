"""Turns text with codes between its words into XML fragments, and their translations into text with
codes again.

A code is what a format has there: a change of font, a link, a picture. Here it is a number; what it
stands for is the format's.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from lxml import etree

# What XML cannot hold, whatever it stands for in its format.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
PARTING_TAG = "br"


@dataclass(frozen=True, slots=True)
class Open:
    number: int


@dataclass(frozen=True, slots=True)
class Close:
    number: int


@dataclass(frozen=True, slots=True)
class Single:
    """Stands between words by itself. parts: no sentence goes across it, as a line break."""

    number: int
    parts: bool = False


Item = str | Open | Close | Single


@dataclass(frozen=True, slots=True)
class Fragment:
    """Holds what is translated as one, and what stands around it and stays where it is.

    before, after: codes and white space.
    """

    before: tuple[Item, ...]
    core: tuple[Item, ...]
    after: tuple[Item, ...]

    @property
    def has_words(self) -> bool:
        return any(any(map(str.isalpha, item)) for item in self.core if isinstance(item, str))

    @property
    def xml(self) -> str:
        return "".join(map(_written, self.core))

    def restored(self, translation: str) -> list[Item]:
        """Return the items of a translation of `xml`. Codes that stand by themselves are all there,
        once; pairs are where the translation has them.
        """
        singles = {item.number: item for item in self.core if isinstance(item, Single)}
        pairs = {item.number for item in self.core if isinstance(item, Open)}
        items: list[Item] = []
        for item in _read(translation):
            if isinstance(item, Single):
                if found := singles.pop(item.number, None):
                    items.append(found)
            elif item and (isinstance(item, str) or item.number in pairs):
                items.append(item)
        return [*self.before, *items, *singles.values(), *self.after]


def fragment_of(items: Sequence[Item]) -> Fragment:
    """Cut off what need not go through a translation: codes at the ends, pairs around all."""
    core = _joined(items)
    before: list[Item] = []
    after: list[Item] = []
    while core:
        first, last = core[0], core[-1]
        if _is_still(first):
            before.append(core.pop(0))
        elif _is_still(last):
            after.append(core.pop())
        elif isinstance(first, Open) and last == Close(first.number):
            before.append(core.pop(0))
            after.append(core.pop())
        else:
            break
    before += _take_blank(core, 0)
    after += _take_blank(core, -1)
    return Fragment(tuple(before), tuple(core), tuple(reversed(after)))


def _is_still(item: Item) -> bool:
    return not item.strip() if isinstance(item, str) else isinstance(item, Single)


def _take_blank(core: list[Item], place: int) -> list[Item]:
    """Take the white space from one end of the text."""
    if not core or not isinstance(text := core[place], str):
        return []
    stripped = text.lstrip() if place == 0 else text.rstrip()
    blank = text[: len(text) - len(stripped)] if place == 0 else text[len(stripped) :]
    core[place] = stripped
    return [blank] if blank else []


def _joined(items: Iterable[Item]) -> list[Item]:
    """Make one text of neighbouring ones."""
    joined: list[Item] = []
    for item in items:
        if isinstance(item, str) and joined and isinstance(joined[-1], str):
            joined[-1] += item
        elif item != "":
            joined.append(item)
    return joined


def _written(item: Item) -> str:
    match item:
        case Open(number):
            return f'<g id="{number}">'
        case Close():
            return "</g>"
        case Single(number, parts):
            return f'<{PARTING_TAG if parts else "x"} id="{number}"/>'
    return escape(_NO_XML.sub(" ", item))


def _read(xml: str) -> Iterator[Item]:
    root = etree.fromstring(f"<f>{xml}</f>", etree.XMLParser(resolve_entities=False))
    yield root.text or ""
    for child in root:
        yield from _items_of(child)


def _items_of(element: etree._Element) -> Iterator[Item]:
    number = int(element.get("id", "0"))
    if element.tag == "g":
        yield Open(number)
        yield element.text or ""
        for child in element:
            yield from _items_of(child)
        yield Close(number)
    else:
        yield Single(number)
    yield element.tail or ""
