"""Prints the paragraphs of a PDF: a program that is given a path, and writes one line of JSON with
the `text`, or with the `error`.

A PDF can ask for any amount of time and memory, so it is read in a process of its own (`pdf` starts
it), which ends at its limits.
"""

import json
import logging
import re
import resource
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from unicodedata import normalize

from pdfminer.high_level import extract_pages
from pdfminer.layout import LAParams, LTFigure, LTTextBox, LTTextLine
from pdfminer.pdfdocument import PDFEncryptionError

MAX_CHARACTERS = 10_000_000
MAX_MEMORY_BYTES = 2**30
MAX_SECONDS = 60  # of processor time; a page takes about 0.05
_HEAD_BYTES = 1024  # within which a PDF begins
_UNKNOWN = re.compile(r"\(cid:\d+\)")  # characters of fonts that do not say what they mean
_LIGATURES = {ord(ligature): normalize("NFKC", ligature) for ligature in "ﬀﬁﬂﬃﬄﬅﬆ"}
_SPACES = re.compile(r"\s+")
_LEADERS = re.compile(r"(?:\.\s?){4,}")  # of a table of contents
_MAX_HEIGHT_CHANGE = 0.1
_HYPHENATED = re.compile(r"[^\W\d_][-\u00ad\u2010]\Z")
_SENTENCE_END = re.compile(r"[.!?:;…。！？][\"'”’»)\]]*\Z")
_WITHOUT_SPACES = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]")


def extract_paragraphs(path: Path) -> list[str]:
    """Return the paragraphs in reading order. One that goes on in the next box or page is one."""
    texts: list[str] = []
    num_characters = 0
    for page in extract_pages(path, laparams=LAParams(all_texts=True)):
        for text in map(_box_text, _boxes(page)):
            if texts and _goes_on(texts[-1], text):
                texts[-1] = join_lines(texts[-1], text)
            elif text:
                texts.append(text)
            num_characters += len(text)
            if num_characters > MAX_CHARACTERS:
                raise OverflowError
    return texts


def _boxes(container: Iterable[object]) -> Iterator[LTTextBox]:
    for item in container:
        if isinstance(item, LTTextBox):
            yield item
        elif isinstance(item, LTFigure):
            yield from _boxes(item)


def _box_text(box: LTTextBox) -> str:
    """Return the text of a box; lines that its width has broken are joined."""
    lines = [line for line in box if isinstance(line, LTTextLine) and _words(line)]
    full = [_is_full(*pair, box.width) for pair in pairwise(lines)]
    is_paragraph = 2 * sum(full) >= len(full)
    text = _words(lines[0]) if lines else ""
    for (line, following), is_full in zip(pairwise(lines), full, strict=True):
        goes_on = is_paragraph and (is_full or not _SENTENCE_END.search(text))
        words = _words(following)
        text = (
            join_lines(text, words)
            if goes_on and _are_alike(line, following)
            else f"{text}\n{words}"
        )
    return text


def _are_alike(line: LTTextLine, following: LTTextLine) -> bool:
    """Return whether two lines may be of one paragraph: no heading, nor in a table of contents."""
    is_as_high = abs(line.height - following.height) < _MAX_HEIGHT_CHANGE * line.height
    return is_as_high and not _LEADERS.search(_words(line))


def _words(line: LTTextLine) -> str:
    text = _UNKNOWN.sub("", line.get_text()).translate(_LIGATURES)
    return _SPACES.sub(" ", text.replace("\0", "")).strip()


def _is_full(line: LTTextLine, following: LTTextLine, width: float) -> bool:
    """Return whether a line has no room for the next line's first word."""
    words = _words(following)
    first = following.width * len(words.split(" ")[0]) / len(words)
    return line.width + first > width


def _goes_on(text: str, following: str) -> bool:
    """Return whether a sentence goes on in another box."""
    return following[:1].islower() and not _SENTENCE_END.search(text)


def join_lines(line: str, following: str) -> str:
    """Join two lines of a paragraph; a hyphen at the end of a line divides a word."""
    if _HYPHENATED.search(line):
        return (line[:-1] if following[:1].islower() else line) + following
    is_dense = _WITHOUT_SPACES.fullmatch(line[-1]) and _WITHOUT_SPACES.fullmatch(following[0])
    return line + following if is_dense else f"{line} {following}"


def extract_text(path: Path) -> dict[str, str]:
    """Return the text, or why there is none."""
    with path.open("rb") as file:
        if b"%PDF-" not in file.read(_HEAD_BYTES):
            return {"error": "is not what its name says: no PDF"}
    try:
        text = "\n\n".join(extract_paragraphs(path))
    except PDFEncryptionError:
        return {"error": "is encrypted: it opens with a password only"}
    except (MemoryError, OverflowError):
        return {"error": "takes too much time or memory to read"}
    except Exception:  # pdfminer raises any error for damaged data
        return {"error": "is damaged: it cannot be read as a PDF"}
    if not any(map(str.isalpha, text)):
        return {"error": "has no text; scanned pages are pictures, which are not read"}
    return {"text": text}


def main(arguments: Sequence[str]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    logging.disable()
    print(json.dumps(extract_text(Path(arguments[0]))))


if __name__ == "__main__":
    main(sys.argv[1:])
