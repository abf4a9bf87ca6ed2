"""Parse the entries of glossaries from TSV, CSV and TBX."""

import csv
import io
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from lxml import etree

from serving.errors import RequestError, TooLarge
from serving.text.languages import primary_language

Entries = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GlossaryPair:
    """The languages of a dictionary, without regions."""

    source: str
    target: str

    @classmethod
    def from_codes(cls, source: str, target: str) -> "GlossaryPair":
        return cls(primary_language(source), primary_language(target))


MAX_BYTES = 10 * 2**20  # of the entries of one glossary, as UTF-8
MAX_TERM_BYTES = 1024
_LINE_SEPARATORS = "\u2028\u2029"


class EntriesFormat(StrEnum):
    TSV = "tsv"
    CSV = "csv"
    TBX = "tbx"


@dataclass(frozen=True, slots=True)
class _EntryRow:
    """One entry as it was written. place: which one it is, for errors."""

    place: str
    cells: tuple[str, ...]


def parse_entries(text: str, written_as: EntriesFormat, pair: GlossaryPair) -> dict[str, str]:
    """Parse entries; blank lines are skipped. CSV and TBX name the languages of entries; those of
    other languages are left out. Raises RequestError naming the first wrong entry.
    """
    if len(text) > MAX_BYTES or len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise TooLarge("entries", f"{len(text)} characters", f"must be at most {MAX_BYTES} bytes")
    text = text.removeprefix("\ufeff")  # of files that programs saved
    rows = _rows(text, written_as, pair)
    places: dict[str, str] = {}
    entries: dict[str, str] = {}
    for row in rows:
        term, translation = row.cells
        _check(row, term)
        _check(row, translation)
        if term in entries:
            raise _wrong(row, f"duplicates key with the {places[term]}", term)
        places[term], entries[term] = row.place, translation
    if not entries:
        raise RequestError("entries", text, "has no entries")
    return entries


def _rows(text: str, written_as: EntriesFormat, pair: GlossaryPair) -> Iterator[_EntryRow]:
    if written_as is EntriesFormat.TSV:
        return _tsv_rows(text)
    return _csv_rows(text, pair) if written_as is EntriesFormat.CSV else _tbx_rows(text, pair)


def as_tsv(entries: Mapping[str, str]) -> str:
    return "\n".join(f"{term}\t{translation}" for term, translation in entries.items())


def _tsv_rows(text: str) -> Iterator[_EntryRow]:
    start = 0
    for index, line in enumerate(text.split("\n")):
        row = _EntryRow(f"index {index} (starting at position {start})", _cells(line.split("\t")))
        start += len(line) + 1
        if not line.strip():
            continue
        if len(row.cells) < 2:
            raise _wrong(row, "misses tab separator", line)
        if len(row.cells) > 2:
            raise _wrong(row, "has more than one tab separator", line)
        yield row


def _csv_rows(text: str, pair: GlossaryPair) -> Iterator[_EntryRow]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for index, cells in enumerate(reader):
            row = _EntryRow(
                f"index {index} (before the end of line {reader.line_num})", _cells(cells)
            )
            if not any(row.cells):
                continue
            if len(row.cells) not in (2, 4):
                raise _wrong(row, "needs 2 values, or 4 with languages", cells)
            if len(row.cells) == 2 or GlossaryPair.from_codes(*row.cells[2:]) == pair:
                yield _EntryRow(row.place, row.cells[:2])
    except csv.Error as error:
        message = f"is not valid CSV at line {reader.line_num}: {error}"
        raise RequestError("entries", text, message) from None


def _cells(cells: list[str]) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in cells)


def _check(row: _EntryRow, term: str) -> None:
    if not term:
        raise _wrong(row, "lacks a term or its translation", row.cells)
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in term):
        raise _wrong(row, "holds a control character", term)
    if any(letter in _LINE_SEPARATORS for letter in term):
        raise _wrong(row, "holds a line separator", term)
    if len(term.encode()) > MAX_TERM_BYTES:
        raise _wrong(row, f"is longer than {MAX_TERM_BYTES} bytes", term)


def _wrong(row: _EntryRow, message: str, value: object) -> RequestError:
    return RequestError("entries", value, f"Key with the {row.place} {message}")


_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of TBX (ISO 30042) of 2008, in `martif`, and of 2019, in `tbx`, and the same in TBX-Min.
_TBX_ROOTS = frozenset({"martif", "tbx", "TBX"})
_CONCEPTS = frozenset({"conceptEntry", "termEntry"})
_LANGUAGES = frozenset({"langGroup", "langSec", "langSet"})
_TERMS = frozenset({"ntig", "termGroup", "termSec", "tig"})
_STATUSES = frozenset({"administrativeStatus", "normativeAuthorization"})
_FORBIDDEN = ("deprecated", "forbidden", "notRecommended", "obsolete", "superseded")


class _Rank(IntEnum):
    """How a term is to be used."""

    PREFERRED = 0
    ADMITTED = 1
    FORBIDDEN = 2


@dataclass(frozen=True, slots=True)
class _Term:
    language: str
    text: str
    rank: _Rank


def _tbx_rows(text: str, pair: GlossaryPair) -> Iterator[_EntryRow]:
    """Yield each source term of a concept with its best target term.

    A term of several concepts has the translation of the first of them.
    """
    translated: set[str] = set()
    for concept in _tbx_concepts(text):
        terms = [*_tbx_terms(concept)]
        targets = [term for term in terms if term.language == pair.target]
        best = min(targets, key=lambda term: term.rank, default=None)
        sources = dict.fromkeys(term.text for term in terms if term.language == pair.source)
        if best is not None and best.rank is not _Rank.FORBIDDEN:
            for source in sources:
                if source not in translated:
                    yield _EntryRow(f"concept of line {concept.sourceline}", (source, best.text))
            translated.update(sources)


def _tbx_concepts(text: str) -> Iterator[etree._Element]:
    """Yield concepts one after another. Raises RequestError for entities and what is no TBX."""
    events: Any = etree.iterparse(
        io.BytesIO(text.encode()),
        ("start", "end"),
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
    )
    try:
        for event, element in events:
            if event == "start" and element.getparent() is None:
                _check_tbx(element)
            elif event == "end" and _local_name(element) in _CONCEPTS:
                yield element
                element.clear()
    except etree.XMLSyntaxError as error:
        problems = (f"{entry.message}, line {entry.line}" for entry in events.error_log)
        message = f"is not well-formed XML: {next(problems, error)}"
        raise RequestError("entries", text, message) from None


def _check_tbx(root: etree._Element) -> None:
    document: Any = root.getroottree().docinfo
    if _local_name(root) not in _TBX_ROOTS:
        raise RequestError("entries", _local_name(root), "is the first element, so this is no TBX")
    if document.internalDTD is not None and document.internalDTD.entities():
        raise RequestError("entries", document.doctype, "must not have entities")


def _tbx_terms(concept: etree._Element) -> Iterator[_Term]:
    language = ""
    for element in concept.iter(etree.Element):
        if _local_name(element) in _LANGUAGES:
            language = primary_language(element.get(_XML_LANGUAGE, ""))
        elif _local_name(element) in _TERMS:
            yield _tbx_term(element, language)


def _tbx_term(section: etree._Element, language: str) -> _Term:
    text, rank = "", _Rank.ADMITTED
    for element in section.iter(etree.Element):
        name = _local_name(element)
        if name == "term":
            text = " ".join("".join(map(str, element.itertext())).split())
        elif name in _STATUSES or element.get("type") in _STATUSES:
            rank = _rank_of(element.text or "")
    return _Term(language, text, rank)


def _rank_of(status: str) -> _Rank:
    status = status.strip()
    if status.startswith("preferred"):
        return _Rank.PREFERRED
    return _Rank.FORBIDDEN if status.startswith(_FORBIDDEN) else _Rank.ADMITTED


def _local_name(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[2]
