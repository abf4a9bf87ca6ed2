"""Reads and writes the entries of a glossary as TSV and CSV, as DeepL has them."""

import csv
import io
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from serving.errors import RequestError, TooLarge
from serving.text.languages import primary_language

MAX_BYTES = 10 * 2**20  # of the entries of one glossary, as UTF-8
MAX_TERM_BYTES = 1024
_LINE_SEPARATORS = "\u2028\u2029"


class EntriesFormat(StrEnum):
    TSV = "tsv"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Pair:
    """Names the languages of a dictionary, without regions."""

    source: str
    target: str

    @classmethod
    def of(cls, source: str, target: str) -> "Pair":
        return cls(primary_language(source), primary_language(target))


@dataclass(frozen=True, slots=True)
class _Row:
    """Holds one entry as it was written. place: which one it is, for errors."""

    place: str
    cells: tuple[str, ...]


def parse_entries(text: str, written_as: EntriesFormat, pair: Pair) -> dict[str, str]:
    """Read entries; blank lines are none. CSV may name the languages of each entry: those of other
    languages are left out. Raises RequestError naming the first that is wrong.
    """
    if len(text) > MAX_BYTES or len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise TooLarge("entries", f"{len(text)} characters", f"must be at most {MAX_BYTES} bytes")
    text = text.removeprefix("\ufeff")  # of files that programs saved
    rows = _tsv_rows(text) if written_as is EntriesFormat.TSV else _csv_rows(text, pair)
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


def as_tsv(entries: Mapping[str, str]) -> str:
    return "\n".join(f"{term}\t{translation}" for term, translation in entries.items())


def _tsv_rows(text: str) -> Iterator[_Row]:
    start = 0
    for index, line in enumerate(text.split("\n")):
        row = _Row(f"index {index} (starting at position {start})", _cells(line.split("\t")))
        start += len(line) + 1
        if not line.strip():
            continue
        if len(row.cells) < 2:
            raise _wrong(row, "misses tab separator", line)
        if len(row.cells) > 2:
            raise _wrong(row, "has more than one tab separator", line)
        yield row


def _csv_rows(text: str, pair: Pair) -> Iterator[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for index, cells in enumerate(reader):
            row = _Row(f"index {index} (before the end of line {reader.line_num})", _cells(cells))
            if not any(row.cells):
                continue
            if len(row.cells) not in (2, 4):
                raise _wrong(row, "needs 2 values, or 4 with languages", cells)
            if len(row.cells) == 2 or Pair.of(*row.cells[2:]) == pair:
                yield _Row(row.place, row.cells[:2])
    except csv.Error as error:
        message = f"is not valid CSV at line {reader.line_num}: {error}"
        raise RequestError("entries", text, message) from None


def _cells(cells: list[str]) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in cells)


def _check(row: _Row, term: str) -> None:
    if not term:
        raise _wrong(row, "lacks a term or its translation", row.cells)
    if any(unicodedata.category(each) in ("Cc", "Cs") for each in term):
        raise _wrong(row, "holds a control character", term)
    if any(each in _LINE_SEPARATORS for each in term):
        raise _wrong(row, "holds a line separator", term)
    if len(term.encode()) > MAX_TERM_BYTES:
        raise _wrong(row, f"is longer than {MAX_TERM_BYTES} bytes", term)


def _wrong(row: _Row, message: str, value: object) -> RequestError:
    return RequestError("entries", value, f"Key with the {row.place} {message}")
