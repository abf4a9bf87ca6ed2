"""Read text files in any encoding, and write them in the same one."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from serving.documents.encoding_guess import can_decode, guess_encoding
from serving.errors import RequestError

# Where files declare their encoding.
_XML = r"<\?xml\s[^<>]{{0,200}}?\bencoding\s*=\s*[\"'](?P<{}>[\w.:-]+)"
XML_DECLARATION = re.compile(rf"\A\s*{_XML.format('charset')}")
HTML_DECLARATION = re.compile(
    r"<!--.*?(?:-->|\Z)|"
    + _XML.format("xml")
    + r"|<meta\s(?:[^<>]{0,500}?[\s;\"'])?charset\s*=\s*[\"']?\s*(?P<charset>[\w.:-]+)",
    re.IGNORECASE | re.DOTALL,
)
PO_DECLARATION = re.compile(
    r"(?:\"|\\n)Content-Type:[^\"\n]*?\bcharset=(?P<charset>[^\s\"\\;]+)", re.IGNORECASE
)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# The encodings that these names mean on the web (Encoding Standard of the WHATWG).
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
}
_UNKNOWN_TO_PYTHON = {"x-sjis": "cp932", "x-gbk": "gb18030", "x-mac-roman": "mac_roman"}
# Codecs that are not encodings of files, or in which a declaration could not be read.
_NO_ENCODINGS = re.compile(r"unicode_escape|idna|punycode|undefined|mbcs|oem|utf-?_?(7|16|32)")
_DECLARED_WITHIN = 65_536  # bytes; browsers read 1,024, but pages have scripts before it


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file.

    line_end: what a line feed is written as. mark: the byte order mark.
    declaration: matches where the text names its encoding.
    """

    text: str
    encoding: str
    line_end: str = "\n"
    mark: bytes = b""
    declaration: re.Pattern[str] | None = None

    def with_line_feeds(self) -> "TextFile":
        """Return the file with line feeds only; `write` restores its line ends."""
        if "\r\n" not in self.text:
            return self
        return replace(self, text=self.text.replace("\r\n", "\n"), line_end="\r\n")

    def write(self, text: str, target: Path) -> None:
        target.write_bytes(self.encode(text))

    def encode(self, text: str) -> bytes:
        """Return a text in the same encoding. If that has not all characters, use and declare
        UTF-8.
        """
        text = text.replace("\n", self.line_end)
        try:
            data = text.encode(self.encoding)
        except UnicodeEncodeError:
            return _declare_utf8(text, self.declaration).encode()
        if self.encoding == "utf-8":
            data = _declare_utf8(text, self.declaration).encode()
        return self.mark + data


def read_text(
    path: Path, language: str | None = None, declaration: re.Pattern[str] | None = None
) -> TextFile:
    """Read a text file. Raises RequestError if it is not text.

    language: of the text, if it is known. declaration: matches where the text names its encoding,
    in the group `charset` or `xml`.
    """
    return decode_text(path.read_bytes(), path.name, language, declaration)


def decode_text(
    data: bytes,
    name: str,
    language: str | None = None,
    declaration: re.Pattern[str] | None = None,
) -> TextFile:
    """Return the text of a file as `read_text` does. name: of the file, for errors."""
    mark, encoding = _marked_encoding(data)
    data = data.removeprefix(mark)
    encoding = encoding or _declared_encoding(data, declaration) or guess_encoding(data, language)
    if encoding is None:
        raise RequestError("file", name, "is not text in any encoding known here")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"is not text in {encoding}: {error.reason}"
        raise RequestError("file", name, message) from None
    if "\0" in text:
        raise RequestError("file", name, "is not text: it has NUL characters")
    return TextFile(text, encoding, mark=mark, declaration=declaration)


def _marked_encoding(data: bytes) -> tuple[bytes, str | None]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return mark, encoding
    return b"", None


def _declared_encoding(data: bytes, declaration: re.Pattern[str] | None) -> str | None:
    """Return the declared encoding if the file can be read in it."""
    if declaration is None:
        return None
    head = data[:_DECLARED_WITHIN].decode("latin-1")
    name = next((head[start:end] for start, end in _names(head, declaration)), "")
    codec = _codec(name)
    if codec is None or (_is_single_byte(codec) and _is_beyond_ascii_utf8(data)):
        return None
    return next(
        (
            candidate
            for candidate in (codec, _MEANT.get(codec))
            if candidate and can_decode(data, candidate)
        ),
        None,
    )


def _names(text: str, declaration: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of encoding names. Comments match too, without a name."""
    for match in declaration.finditer(text, 0, _DECLARED_WITHIN):
        if group := next((name for name, value in match.groupdict().items() if value), None):
            yield match.span(group)


def _codec(name: str) -> str | None:
    """Return Python's name of an encoding; None if it is not one of files."""
    name = _UNKNOWN_TO_PYTHON.get(name.lower(), name)
    try:
        codec = codecs.lookup(name).name
        b"a".decode(codec)  # raises LookupError if it is no text encoding
    except (LookupError, ValueError):
        return None
    return None if _NO_ENCODINGS.search(codec) else codec


def _is_single_byte(codec: str) -> bool:
    """Return whether nearly every byte is a character, so that the encoding reads any file."""
    return sum(len(bytes([byte]).decode(codec, "ignore")) for byte in range(0xA1, 0x100)) > 80


def _is_beyond_ascii_utf8(data: bytes) -> bool:
    return not data.isascii() and can_decode(data, "utf-8")


def _declare_utf8(text: str, declaration: re.Pattern[str] | None) -> str:
    """Return the text with UTF-8 in the place of other declared encodings."""
    if declaration is None:
        return text
    parts, end = [], 0
    for start, stop in _names(text, declaration):
        if _codec(text[start:stop]) != "utf-8":
            parts += [text[end:start], "UTF-8"]
            end = stop
    return "".join([*parts, text[end:]])
