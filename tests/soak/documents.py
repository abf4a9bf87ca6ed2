"""Documents of several formats, a paragraph or a cell for each line, and the lines of documents."""

import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import docx
import openpyxl


@dataclass(frozen=True)
class Format:
    made: Callable[[Sequence[str]], bytes]
    lines_of: Callable[[bytes], list[str]]


def _text(lines: Sequence[str]) -> bytes:
    return "\n".join(lines).encode()


def _lines_of_text(data: bytes) -> list[str]:
    return data.decode().splitlines()


def _html(lines: Sequence[str]) -> bytes:
    return "".join(f"<p>{html.escape(line)}</p>\n" for line in lines).encode()


def _lines_of_html(data: bytes) -> list[str]:
    return [html.unescape(each) for each in re.findall("<p>(.*?)</p>", data.decode(), re.DOTALL)]


def _word(lines: Sequence[str]) -> bytes:
    document, file = docx.Document(), io.BytesIO()
    for line in lines:
        document.add_paragraph(line)
    document.save(file)
    return file.getvalue()


def _lines_of_word(data: bytes) -> list[str]:
    return [each.text for each in docx.Document(io.BytesIO(data)).paragraphs]


def _sheet(lines: Sequence[str]) -> bytes:
    book, file = openpyxl.Workbook(), io.BytesIO()
    for line in lines:
        book.worksheets[0].append([line])
    book.save(file)
    return file.getvalue()


def _lines_of_sheet(data: bytes) -> list[str]:
    [sheet] = openpyxl.load_workbook(io.BytesIO(data)).worksheets
    return [str(row[0]) for row in sheet.iter_rows(values_only=True)]


FORMATS = {
    "txt": Format(_text, _lines_of_text),
    "html": Format(_html, _lines_of_html),
    "docx": Format(_word, _lines_of_word),
    "xlsx": Format(_sheet, _lines_of_sheet),
}
