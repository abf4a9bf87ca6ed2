"""Read and write XLIFF 1.2 and 2.x: sources without a translation get one. Everything else stays.

SDLXLIFF is XLIFF 1.2 in which Trados says more of each `mrk` of a source: whether it is locked, how
far it is, and where its translation is from.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from serving.documents.document import Document, Review, lowest_score
from serving.documents.encoding import TextFile
from serving.documents.formats.inline_codes import CodedText
from serving.documents.spans import Edit, apply_edits
from serving.documents.xml_elements import XmlElement, blank_before, read_xml, unescape_text
from serving.errors import RequestError

# Units in these states are not translated yet.
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})
_NEEDS_REVIEW = "attendant:needs-review"
_ITS = {"xmlns:its": "http://www.w3.org/2005/11/its", "its:version": "2.0"}
# What a segment of Trados says after it was translated by a model.
_FROM_A_MODEL: dict[str, str | None] = {"conf": "Draft", "origin": "mt"} | dict.fromkeys(
    ("origin-system", "percent", "struct-match", "text-match")
)


@dataclass(frozen=True)
class _Unit:
    """A `trans-unit` of 1.2 or a `segment` of 2.0.

    source: its source, or its `seg-source`. texts: of the source, or of each `mrk` in `seg-source`,
    by their elements.
    """

    element: XmlElement
    source: XmlElement
    texts: Mapping[XmlElement, CodedText]


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
            texts = {
                element: text.apply_translation(next(waiting))
                for element, text in unit.texts.items()
            }
            inner = _inner_of_target(unit, texts, self._file.text)
            score = lowest_score(islice(scores, len(texts)))
            edits += _target_edits(unit, inner, language, self._file.text, self.review, score)
            edits += _trados_edits(unit.element, texts)
        self._file.write(apply_edits(self._file.text, edits), target)


def read_xliff(path: Path) -> Document:
    """Read an XLIFF file. Raises RequestError."""
    file, root = read_xml(path.read_bytes(), path.name)
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
        seg_source = element.child("seg-source")
        if seg_source is not None and _marks(seg_source):
            source, untranslated = seg_source, _untranslated_marks(element, seg_source, document)
        else:
            untranslated = [] if _is_translated(element, document) else [source]
        texts = {part: CodedText(part, document) for part in untranslated}
        with_words = {part: text for part, text in texts.items() if text.fragment.has_words}
        if with_words:
            yield _Unit(element, source, with_words)


def _may_be_translated(element: XmlElement) -> bool:
    translate = element.inherited_attribute("translate") or "yes"
    return translate != "no" and element.attributes.get("approved") != "yes"


def _is_translated(element: XmlElement, document: str) -> bool:
    """Return whether the unit has a translation that is not preliminary."""
    target = element.child("target")
    if target is None or not _has_text(target, document):
        return False
    state = target.attributes.get("state") or element.attributes.get("state")
    return state not in _UNTRANSLATED


def _has_text(element: XmlElement, document: str) -> bool:
    return bool(unescape_text(document[element.inner_start : element.inner_end]).strip())


def _marks(element: XmlElement) -> list[XmlElement]:
    """Return the elements that divide a text into sentences."""
    return [
        mark
        for mark in element.walk()
        if mark.name == "mrk" and mark.attributes.get("mtype") == "seg" and not mark.is_empty
    ]


def _untranslated_marks(unit: XmlElement, parted: XmlElement, document: str) -> list[XmlElement]:
    translated = _translated_marks(unit, document)
    if not translated and _is_translated(unit, document):
        return []
    done_or_locked = {*translated, *_locked_ids(unit)}
    return [mark for mark in _marks(parted) if mark.attributes.get("mid") not in done_or_locked]


def _trados_segments(unit: XmlElement) -> dict[str, XmlElement]:
    """Return what Trados says of the `mrk` of a unit, by their `mid`."""
    definitions = (child for child in unit.children if child.name == "seg-defs")
    segments = (child for definition in definitions for child in definition.children)
    return {
        segment.attributes.get("id", ""): segment for segment in segments if segment.name == "seg"
    }


def _locked_ids(unit: XmlElement) -> set[str]:
    segments = _trados_segments(unit).items()
    return {mid for mid, segment in segments if segment.attributes.get("locked") == "true"}


def _trados_edits(unit: XmlElement, translated_elements: Iterable[XmlElement]) -> Iterator[Edit]:
    translated = {element.attributes.get("mid") for element in translated_elements}
    for mid, segment in _trados_segments(unit).items():
        if mid in translated:
            changed = segment.with_attributes(_FROM_A_MODEL)
            yield segment.start, segment.inner_start, changed


def _translated_marks(unit: XmlElement, document: str) -> dict[str, str]:
    """Return the content of each `mrk` of a target by its `mid`."""
    target = unit.child("target")
    if target is None or not _is_translated(unit, document):
        return {}
    return {
        mark.attributes.get("mid", ""): document[mark.inner_start : mark.inner_end]
        for mark in _marks(target)
        if _has_text(mark, document)
    }


def _inner_of_target(unit: _Unit, translations: Mapping[XmlElement, str], document: str) -> str:
    """Return the content of a target: a translation, or one in each `mrk` of `seg-source`."""
    source = unit.source
    if source in translations:
        return translations[source]
    existing = dict.fromkeys(_locked_ids(unit.element), "") | _translated_marks(
        unit.element, document
    )
    edits: list[Edit] = []
    for mark in _marks(source):
        new = translations.get(mark) or existing.get(
            mark.attributes.get("mid", "")
        )  # "" of a locked one
        if new is not None:
            start = source.inner_start
            edits.append((mark.inner_start - start, mark.inner_end - start, new))
    return apply_edits(document[source.inner_start : source.inner_end], edits)


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
    target_attributes: dict[str, str | None] = {}
    if is_of_2:
        sub_state = _NEEDS_REVIEW if review and review.needs_review(score) else None
        changed = element.with_attributes({"state": "translated", "subState": sub_state})
        yield element.start, element.inner_start, changed
        inner = _annotate_confidence(unit, inner, confidence)
    elif not _trados_segments(element):
        is_good = review is not None and not review.needs_review(score)
        state = "translated" if is_good else "needs-review-translation"
        target_attributes = {"state": state, "state-qualifier": "mt-suggestion", **confidence}
    if target is not None:
        tag = target.with_attributes(target_attributes)
        tag = tag.removesuffix("/>").rstrip() + ">" if target.is_empty else tag
        yield target.start, target.end, tag + inner + target.end_tag
        return
    name = f"{unit.source.prefix}target"
    attributes = unit.source.attributes
    target_attributes |= {"xml:lang": language} if "xml:lang" in attributes else {}
    target_attributes |= {"xml:space": attributes["xml:space"]} if "xml:space" in attributes else {}
    tag = "".join(
        [
            f"<{name}",
            *(f" {key}={quoteattr(value or '')}" for key, value in target_attributes.items()),
        ]
    )
    place = unit.source.end
    yield place, place, f"{blank_before(unit.source, document)}{tag}>{inner}</{name}>"


def _confidence(review: Review | None, score: float | None) -> dict[str, str]:
    """Return the attributes of ITS 2.0 that say a translation's score and which model gave it."""
    if review is None or score is None:
        return {}
    annotator = f"mt-confidence|attendant:{quote(review.model)}"
    return {"its:mtConfidence": f"{score:.4f}", "its:annotatorsRef": annotator}


def _annotate_confidence(unit: _Unit, inner: str, confidence: Mapping[str, str]) -> str:
    """Return the content of a target of 2.0, which has no place for more attributes, in an
    annotation with them.
    """
    if not confidence:
        return inner
    attributes = {"id": f"quality-{unit.element.start}", "type": "its:any", **confidence}
    formatted = "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
    return f"<{unit.source.prefix}mrk{formatted}>{inner}</{unit.source.prefix}mrk>"


def _root_edits(root: XmlElement, language: str, review: Review | None) -> Iterator[Edit]:
    """Yield the edits that declare the language of translations, and ITS if they use it."""
    is_of_2 = root.attributes.get("version", "").startswith("2.")
    files = [child for child in root.children if child.name == "file"]
    name, elements = ("trgLang", [root]) if is_of_2 else ("target-language", files)
    changes = {
        element: {name: language} for element in elements if not element.attributes.get(name)
    }
    if review is not None:
        changes[root] = changes.get(root, {}) | _ITS
    for element, changed in changes.items():
        yield element.start, element.inner_start, element.with_attributes({**changed})
