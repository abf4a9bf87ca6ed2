"""Reads plain text files in whatever encoding they are, and writes them in it again."""

import codecs
from dataclasses import dataclass
from pathlib import Path

from charset_normalizer import from_bytes

from serving.errors import RequestError

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BYTES_TO_GUESS_FROM = 65_536


@dataclass(frozen=True, slots=True)
class TextFile:
    """Holds the text of a file. line_end: what its line feeds stand for."""

    text: str
    encoding: str
    line_end: str = "\n"

    def with_line_feeds(self) -> "TextFile":
        """Return the same with line feeds alone, which are written as the line ends there were."""
        if "\r\n" not in self.text:
            return self
        return TextFile(self.text.replace("\r\n", "\n"), self.encoding, "\r\n")

    def write(self, text: str, target: Path) -> None:
        """Write in the same encoding; in UTF-8 what that cannot hold."""
        text = text.replace("\n", self.line_end)
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError:
            data = text.encode("utf-8")
        target.write_bytes(data)


def read_text(path: Path) -> TextFile:
    """Raises RequestError for what is no text."""
    data = path.read_bytes()
    encoding = _encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"is not text in {encoding}: {error.reason}"
        raise RequestError("file", path.name, message) from None
    if "\0" in text:
        raise RequestError("file", path.name, "is not text: it has NUL characters")
    return TextFile(text, encoding)


def _encoding(data: bytes) -> str:
    """Take the byte order mark's word, else UTF-8 where it fits, else a guess."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return encoding
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        best = from_bytes(data[:_BYTES_TO_GUESS_FROM]).best()
        return best.encoding if best else "utf-8"
    return "utf-8"
