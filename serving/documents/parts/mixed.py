"""Reads paragraphs of mixed content, text between elements as in HTML, and puts translations there.

Some elements are pairs around words; all others are codes by themselves and move as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from lxml import etree

from serving.documents.parts.inline import Fragment, fragment_of
from serving.documents.parts.items import Close, Item, Open, Single

Element = etree._Element


class MixedParagraph:
    """Holds one paragraph and what its codes stand for. The paragraph is not changed until a
    translation is written, into it or into another element.
    """

    def __init__(
        self,
        element: Element,
        is_pair: Callable[[Element], bool],
        is_break: Callable[[Element], bool] = lambda element: False,
    ) -> None:
        self._element, self._is_pair, self._is_break = element, is_pair, is_break
        self._codes: dict[int, Element] = {}
        self.fragment: Fragment = fragment_of([*self._items(element)])

    def write(self, translation: str, target: Element | None = None) -> None:
        """Put a translation of the fragment into the target, or in the place of the text."""
        place = self._element if target is None else target
        items = self.fragment.restored(translation)
        place.text = None
        for child in [*place]:
            place.remove(child)
        self._fill(place, items, copies=target is not None)

    def _items(self, element: Element) -> Iterator[Item]:
        yield element.text or ""
        for child in element:
            number = len(self._codes) + 1
            self._codes[number] = child
            if isinstance(child.tag, str) and self._is_pair(child):
                yield Open(number)
                yield from self._items(child)
                yield Close(number)
            else:
                yield Single(number, isinstance(child.tag, str) and self._is_break(child))
            yield child.tail or ""

    def _fill(self, place: Element, items: Sequence[Item], copies: bool) -> None:
        places = [place]
        for item in items:
            if isinstance(item, str):
                _add_text(places[-1], item)
            elif isinstance(item, Close):
                places.pop()
            else:
                code = self._codes[item.number]
                own = code
                if isinstance(item, Open):
                    own = _shell(code)
                elif copies:
                    own = deepcopy(code)
                own.tail = None
                places[-1].append(own)
                if isinstance(item, Open):
                    places.append(own)


def _shell(element: Element) -> Element:
    shell = deepcopy(element)
    shell.text = None
    for child in [*shell]:
        shell.remove(child)
    return shell


def _add_text(place: Element, text: str) -> None:
    if len(place):
        place[-1].tail = (place[-1].tail or "") + text
    else:
        place.text = (place.text or "") + text
