"""Read and write XLIFF 1.2 and 2.0: sources without a translation get one. Everything else stays.

Codes of 1.2 are `g`, `x`, `bx`, `ex`, `bpt`, `ept`, `ph` and `it`; of 2.0 `pc`, `sc`, `ec`, `ph`
and `cp`. `mrk`, `sm` and `em` annotate the text within them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from serving.documents.encoding import XML_DECLARATION, TextFile, read_text
from serving.documents.fragment import Document, Fragment, Review, lowest
from serving.documents.spans import Edit, Mark, Role, Span, edited
from serving.documents.tags import CODE, is_placeholder, message_pieces, word_mark
from serving.documents.xml import (
    XmlElement,
    cdata_of,
    escape_text,
    is_cdata,
    parse_xml,
    root_of,
    text_within,
    unescape_text,
)
from serving.errors import RequestError

# Units in these states are not translated yet.
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})
_NEEDS_REVIEW = "attendant:needs-review"
_ITS = {"xmlns:its": "http://www.w3.org/2005/11/its", "its:version": "2.0"}
_DECLARATION = re.compile(r"\A\s*<\?xml\s.*?\?>", re.DOTALL)


class XliffText:
    """A text to translate."""

    def __init__(self, element: XmlElement, document: str) -> None:
        inner = document[element.inner_start : element.inner_end]
        self._is_cdata = is_cdata(inner)
        if self._is_cdata:
            pieces: Iterable[str | Mark] = message_pieces(unescape_text(inner))
            self._span = Span(0, 0, [*pieces])
        else:
            pieces = _pieces([*_parts(element, document)], element, escape_text)
            self._span = Span(0, 0, [*pieces], escape_text)
        self.fragment: Fragment = self._span.fragment

    def translated(self, translation: str) -> str:
        """Return a translation as XML."""
        text = self._span.translated(translation)
        return cdata_of(text) if self._is_cdata else text


@dataclass(frozen=True)
class _Unit:
    """A `trans-unit` of 1.2 or a `segment` of 2.0.

    source: its source, or its `seg-source`. texts: of the source, or of each `mrk` in `seg-source`,
    by their elements.
    """

    element: XmlElement
    source: XmlElement
    texts: Mapping[XmlElement, XliffText]


class XliffDocument:
    def __init__(self, file: TextFile, root: XmlElement) -> None:
        self._file, self._root = file, root
        self._units = [*_units(root, file.text)]
        self.review: Review | None = None

    @property
    def fragments(self) -> Sequence[str]:
        return [text.fragment.xml for unit in self._units for text in unit.texts.values()]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        waiting = iter(translations)
        scores = iter(self.review.scores if self.review else ())
        edits = [*_root_edits(self._root, language, self.review)]
        for unit in self._units:
            made = {each: text.translated(next(waiting)) for each, text in unit.texts.items()}
            inner = _inner_of_target(unit, made, self._file.text)
            score = lowest(islice(scores, len(made)))
            edits += _target_edits(unit, inner, language, self._file.text, self.review, score)
        self._file.write(edited(self._file.text, edits), target)


def read(path: Path) -> Document:
    """Read an XLIFF file. Raises RequestError."""
    parse_xml(path.read_bytes(), path.name)
    file = read_text(path, None, XML_DECLARATION).with_line_feeds()
    parse_xml(_DECLARATION.sub("", file.text).encode(), path.name)  # it may be in another encoding
    root = root_of(file.text)
    if root.name != "xliff" or not root.attributes.get("version", "").startswith(("1.", "2.")):
        raise RequestError("file", path.name, "is not what its name says: no XLIFF 1 or 2")
    return XliffDocument(file, root)


def _units(root: XmlElement, document: str) -> Iterator[_Unit]:
    for element in root.walk():
        if element.name not in ("trans-unit", "segment") or element.prefix != root.prefix:
            continue
        source = element.child("source")
        if source is None or not _may_be_translated(element):
            continue
        parted = element.child("seg-source")
        if parted is not None and _marks(parted):
            source, wanted = parted, _untranslated_marks(element, parted, document)
        else:
            wanted = [] if _is_translated(element, document) else [source]
        found = {each: XliffText(each, document) for each in wanted}
        with_words = {each: text for each, text in found.items() if text.fragment.has_words}
        if with_words:
            yield _Unit(element, source, with_words)


def _may_be_translated(element: XmlElement) -> bool:
    says = element.inherited("translate") or "yes"
    return says != "no" and element.attributes.get("approved") != "yes"


def _is_translated(element: XmlElement, document: str) -> bool:
    """Return whether the unit has a translation that is not preliminary."""
    target = element.child("target")
    if target is None or not _has_text(target, document):
        return False
    state = target.attributes.get("state") or element.attributes.get("state")
    return state not in _UNTRANSLATED


def _has_text(element: XmlElement, document: str) -> bool:
    return bool(text_within(document[element.inner_start : element.inner_end]).strip())


def _marks(element: XmlElement) -> list[XmlElement]:
    """Return the elements that divide a text into sentences."""
    return [
        each
        for each in element.walk()
        if each.name == "mrk" and each.attributes.get("mtype") == "seg" and not each.is_empty
    ]


def _untranslated_marks(unit: XmlElement, parted: XmlElement, document: str) -> list[XmlElement]:
    if not _is_translated(unit, document):
        return _marks(parted)
    done = _translated_marks(unit, document)
    return [each for each in _marks(parted) if done and each.attributes.get("mid") not in done]


def _translated_marks(unit: XmlElement, document: str) -> dict[str, str]:
    """Return the content of each `mrk` of a target by its `mid`."""
    target = unit.child("target")
    if target is None or not _is_translated(unit, document):
        return {}
    return {
        each.attributes.get("mid", ""): document[each.inner_start : each.inner_end]
        for each in _marks(target)
        if _has_text(each, document)
    }


def _inner_of_target(unit: _Unit, made: Mapping[XmlElement, str], document: str) -> str:
    """Return the content of a target: a translation, or one in each `mrk` of `seg-source`."""
    source = unit.source
    if source in made:
        return made[source]
    done = _translated_marks(unit.element, document)
    edits: list[Edit] = []
    for mark in _marks(source):
        new = made.get(mark) or done.get(mark.attributes.get("mid", ""))
        if new is not None:
            start = source.inner_start
            edits.append((mark.inner_start - start, mark.inner_end - start, new))
    return edited(document[source.inner_start : source.inner_end], edits)


def _target_edits(
    unit: _Unit,
    inner: str,
    language: str,
    document: str,
    review: Review | None,
    score: float | None,
) -> Iterator[Edit]:
    """Yield the edits of a unit; a new target follows the source, as the schemas demand."""
    element, target = unit.element, unit.element.child("target")
    is_of_2 = element.name == "segment"
    confidence = _confidence(review, score)
    says: dict[str, str | None] = {}
    if is_of_2:
        sub_state = _NEEDS_REVIEW if review and review.needs_review(score) else None
        changed = element.with_attributes({"state": "translated", "subState": sub_state})
        yield element.start, element.inner_start, changed
        inner = _with_confidence(unit, inner, confidence)
    else:
        is_good = review is not None and not review.needs_review(score)
        state = "translated" if is_good else "needs-review-translation"
        says = {"state": state, "state-qualifier": "mt-suggestion", **confidence}
    if target is not None:
        tag = target.with_attributes(says)
        tag = tag.removesuffix("/>").rstrip() + ">" if target.is_empty else tag
        yield target.start, target.end, tag + inner + target.end_tag
        return
    name = f"{unit.source.prefix}target"
    own = unit.source.attributes
    says |= {"xml:lang": language} if "xml:lang" in own else {}
    says |= {"xml:space": own["xml:space"]} if "xml:space" in own else {}
    tag = "".join(
        [f"<{name}", *(f" {key}={quoteattr(value or '')}" for key, value in says.items())]
    )
    place = unit.source.end
    yield place, place, f"{_indent(unit, document)}{tag}>{inner}</{name}>"


def _confidence(review: Review | None, score: float | None) -> dict[str, str]:
    """Return the attributes of ITS 2.0 that say a translation's score and which model gave it."""
    if review is None or score is None:
        return {}
    annotator = f"mt-confidence|attendant:{quote(review.model)}"
    return {"its:mtConfidence": f"{score:.4f}", "its:annotatorsRef": annotator}


def _with_confidence(unit: _Unit, inner: str, confidence: Mapping[str, str]) -> str:
    """Return the content of a target of 2.0, which has no place for more attributes, in an
    annotation with them.
    """
    if not confidence:
        return inner
    said = {"id": f"quality-{unit.element.start}", "type": "its:any", **confidence}
    written = "".join(f" {name}={quoteattr(value)}" for name, value in said.items())
    return f"<{unit.source.prefix}mrk{written}>{inner}</{unit.source.prefix}mrk>"


def _indent(unit: _Unit, document: str) -> str:
    """Return the white space before a source that begins a line."""
    before = document[unit.element.start : unit.source.start]
    blank = before[len(before.rstrip()) :]
    return blank if "\n" in blank else ""


def _root_edits(root: XmlElement, language: str, review: Review | None) -> Iterator[Edit]:
    """Yield the edits that declare the language of translations, and ITS if they use it."""
    is_of_2 = root.attributes.get("version", "").startswith("2.")
    files = [each for each in root.children if each.name == "file"]
    name, elements = ("trgLang", [root]) if is_of_2 else ("target-language", files)
    changes = {each: {name: language} for each in elements if not each.attributes.get(name)}
    if review is not None:
        changes[root] = changes.get(root, {}) | _ITS
    for element, own in changes.items():
        yield element.start, element.inner_start, element.with_attributes({**own})


_PAIRS = frozenset({"g", "mrk", "pc"})
_ROLES = dict.fromkeys(("bpt", "bx", "sc", "sm"), Role.OPENS) | dict.fromkeys(
    ("ept", "ex", "ec", "em"), Role.CLOSES
)
# Angular has only `x` codes: <x id="START_LINK"/>here<x id="CLOSE_LINK"/>.
_NAMED_ROLE = re.compile(r"(START|CLOSE)_([A-Z_]+?)(?:_\d+)?\Z")
_BLANK_LINES = re.compile(r"\A\s*\n\s*|(?<!\s)\s*\n\s*\Z")
_WRAPPED = re.compile(r"(?<![ \t])[ \t]*\n[ \t]+")  # tries a run of spaces only once
_ELEMENT = "element "  # begins the names of marks for tags of elements


def _pieces(
    parts: list[str | Mark], element: XmlElement, written: Callable[[str], str]
) -> Iterator[str | Mark]:
    """Yield text and marks; opening marks are closed within the same element."""
    codes = [part for part in parts if isinstance(part, Mark)]
    known = {*map(id, codes)}
    text = "".join(CODE if isinstance(part, Mark) else part.replace(CODE, " ") for part in parts)
    if element.inherited("xml:space") != "preserve":
        text = _WRAPPED.sub(" ", _BLANK_LINES.sub("", text))
    within: list[str] = [""]
    for piece in message_pieces(text, codes=codes):
        if isinstance(piece, str):
            yield piece
            continue
        raw = piece.raw if id(piece) in known else written(piece.raw)
        if piece.name.startswith(_ELEMENT):
            yield piece
            if piece.role is Role.OPENS:
                within.append(piece.name)
            else:
                within.pop()
        else:
            yield replace(piece, raw=raw, name=f"{piece.name} in {within[-1]}")


def _parts(element: XmlElement, document: str) -> Iterator[str | Mark]:
    """Yield the content of an element: unescaped text, and codes as they are."""
    place = element.inner_start
    for child in element.children:
        if child.start < place:  # in protected content
            continue
        yield unescape_text(document[place : child.start])
        protected_end = _protected_end(child, element)
        place = protected_end or child.end
        if protected_end:
            raw = document[child.start : place]
            yield word_mark(raw, text_within(raw).strip())
        elif child.name in _PAIRS and not child.is_empty:
            name = f"{_ELEMENT}{child.start}"
            yield Mark(child.tag, Role.OPENS, name)
            yield from _parts(child, document)
            yield Mark(child.end_tag, Role.CLOSES, name)
        else:
            raw = document[child.start : place]
            yield Mark(raw, *_role_of(child), shown=_placeholder(child, raw))
    yield unescape_text(document[place : element.inner_end])


def _protected_end(child: XmlElement, parent: XmlElement) -> int | None:
    """Return the end of content that a child protects from translation; None if it does not."""
    said = child.attributes
    is_protected = said.get("translate") == "no" or said.get("its:translate") == "no"
    if child.name == "sm" and is_protected:
        ends = (each for each in parent.children if each.name == "em" and each.start > child.start)
        return next((each.end for each in ends if _key(each) == _key(child)), None)
    if child.name == "mrk" and (is_protected or said.get("mtype") == "protected"):
        return child.end
    return None


def _role_of(code: XmlElement) -> tuple[Role, str]:
    if code.name in _ROLES:
        kind = "annotation" if code.name in ("sm", "em") else "code"
        return _ROLES[code.name], f"{kind} {_key(code)}"
    if code.name == "x" and (found := _NAMED_ROLE.match(code.attributes.get("id", ""))):
        return Role.OPENS if found[1] == "START" else Role.CLOSES, found[2]
    return Role.STANDS, ""


def _placeholder(code: XmlElement, raw: str) -> str:
    """Return the placeholder that a code declares; else an empty text."""
    said = (code.attributes.get(name, "") for name in ("equiv-text", "equiv", "disp"))
    shown = next((each.strip() for each in (text_within(raw), *said) if each.strip()), "")
    return shown if is_placeholder(shown) else ""


def _key(code: XmlElement) -> str | None:
    """Return the key that both ends of a range share."""
    said = code.attributes
    return said.get("startRef") or said.get("rid") or said.get("id")
