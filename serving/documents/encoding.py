"""Read text files in any encoding, and write them in the same one."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

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
_CONTROLS = re.compile("[\x00-\x08\x0e-\x19\x1c-\x1f\x7f-\x9f]")
_DECLARED_WITHIN = 65_536
_CHARACTERS_TO_GUESS_FROM = 2_000
_OWN_LANGUAGE_BONUS = 0.1


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
            return _redeclared(text, self.declaration).encode()
        if self.encoding == "utf-8":
            data = _redeclared(text, self.declaration).encode()
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
    mark, encoding = _by_mark(data)
    data = data.removeprefix(mark)
    encoding = encoding or _declared(data, declaration) or _guessed(data, language)
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


def _by_mark(data: bytes) -> tuple[bytes, str | None]:
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return mark, encoding
    return b"", None


def _declared(data: bytes, declaration: re.Pattern[str] | None) -> str | None:
    """Return the declared encoding if the file can be read in it."""
    if declaration is None:
        return None
    head = data[:_DECLARED_WITHIN].decode("latin-1")
    name = next((head[start:end] for start, end in _names(head, declaration)), "")
    codec = _codec(name)
    if codec is None or (_is_of_bytes(codec) and _is_beyond_ascii_utf8(data)):
        return None
    return next((each for each in (codec, _MEANT.get(codec)) if each and _reads(data, each)), None)


def _names(text: str, declaration: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of encoding names. Comments match too, without a name."""
    for found in declaration.finditer(text, 0, _DECLARED_WITHIN):
        if group := next((name for name, value in found.groupdict().items() if value), None):
            yield found.span(group)


def _codec(name: str) -> str | None:
    """Return Python's name of an encoding; None if it is not one of files."""
    name = _UNKNOWN_TO_PYTHON.get(name.lower(), name)
    try:
        codec = codecs.lookup(name).name
        b"a".decode(codec)  # raises LookupError if it is no text encoding
    except (LookupError, ValueError):
        return None
    return None if _NO_ENCODINGS.search(codec) else codec


def _is_of_bytes(codec: str) -> bool:
    """Return whether nearly every byte is a character, so that the encoding reads any file."""
    return sum(len(bytes([each]).decode(codec, "ignore")) for each in range(0xA1, 0x100)) > 80


def _is_beyond_ascii_utf8(data: bytes) -> bool:
    return not data.isascii() and _reads(data, "utf-8")


def _reads(data: bytes, encoding: str) -> bool:
    try:
        return not _CONTROLS.search(data.decode(encoding))
    except UnicodeDecodeError:
        return False


def _guessed(data: bytes, language: str | None) -> str | None:
    """Guess a Unicode encoding if it fits, else one by the language's letters."""
    if (unicode := _unicode(data)) is not None:
        return unicode
    if b"\x1b$" in data and data.isascii() and _reads(data, "iso2022_jp"):
        return "iso2022_jp"
    return _likeliest(data, language)


def _likeliest(data: bytes, language: str | None) -> str | None:
    """Return the encoding with the fewest characters that its languages do not use."""
    texts: dict[str, str | None] = {}
    best, least = None, 1.0
    for candidate in candidates(language):
        if candidate.encoding not in texts:
            texts[candidate.encoding] = _beyond_ascii(data, candidate.encoding)
        if (text := texts[candidate.encoding]) is None:
            continue
        strangeness = candidate.strangeness(text) - _OWN_LANGUAGE_BONUS * candidate.is_of(language)
        if strangeness < least:
            best, least = candidate.encoding, strangeness
    return best


def _unicode(data: bytes) -> str | None:
    """Return the Unicode encoding of bytes without a mark; UTF-16 is recognized by its zeros."""
    even, odd = data[::2].count(0), data[1::2].count(0)
    if (even == 0) != (odd == 0) and len(data) % 2 == 0:
        encoding = "utf-16-le" if even == 0 else "utf-16-be"
        return encoding if _reads(data, encoding) else None
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "utf-8" if b"\x1b$" not in data else None


def _beyond_ascii(data: bytes, encoding: str) -> str | None:
    """Return some words with characters beyond ASCII; None if the data is not in the encoding."""
    if not _reads(data, encoding):
        return None
    words: list[str] = []
    length = 0
    for found in re.finditer(r"\S*[^\s\x00-\x7f]\S*", data.decode(encoding)):
        words.append(found.group())
        length += len(words[-1])
        if length > _CHARACTERS_TO_GUESS_FROM:
            break
    return " ".join(words)


def _redeclared(text: str, declaration: re.Pattern[str] | None) -> str:
    """Return the text with UTF-8 in the place of other declared encodings."""
    if declaration is None:
        return text
    parts, end = [], 0
    for start, stop in _names(text, declaration):
        if _codec(text[start:stop]) != "utf-8":
            parts += [text[end:start], "UTF-8"]
            end = stop
    return "".join([*parts, text[end:]])


_WESTERN = ("cp1252", "iso8859_15", "cp850")
_CENTRAL = ("cp1250", "iso8859_2", "cp852")
_BALTIC = ("cp1257", "iso8859_13")
_CYRILLIC = ("cp1251", "koi8_u", "iso8859_5", "cp866")
# languages, their encodings with the likeliest first, their letters in lower case
_ALPHABETS = (
    ("es gl eu ast", _WESTERN, "áéíóúüñç"),
    ("fr", _WESTERN, "àâæçéèêëîïôœùûüÿ"),
    ("de", _WESTERN, "äöüßé"),
    ("pt", _WESTERN, "áâãàçéêíóôõúü"),
    ("it", _WESTERN, "àèéìíîòóùú"),
    ("nl af", _WESTERN, "áéëèêïíóöôúüû"),
    ("sv fi", _WESTERN, "åäöéšž"),
    ("da nb nn no", _WESTERN, "æøåéòôä"),
    ("ca oc", _WESTERN, "àçéèíïóòúü"),
    ("is fo", _WESTERN, "áðéíóúýþæö"),
    ("ga gd cy mt", _WESTERN, "áàâéèêíìîóòôúùûŵŷ"),
    ("pl", _CENTRAL, "ąćęłńóśźżéöü"),
    ("cs sk", _CENTRAL, "áäčďéěíĺľňóôŕřšťúůýž"),
    ("hu", _CENTRAL, "áéíóöőúüű"),
    ("hr sl bs", _CENTRAL, "čćđšž"),
    ("ro", _CENTRAL, "ăâîşţ"),
    ("ro", ("iso8859_16",), "ăâîșț"),
    ("sq", _WESTERN, "çë"),
    ("lt", _BALTIC, "ąčęėįšųūž"),
    ("lv", _BALTIC, "āčēģīķļņšūž"),
    ("et", _BALTIC, "äõöüšž"),
    ("tr az", ("cp1254", "iso8859_9", "cp857"), "âçğıîöşüûi"),
    ("ru", ("cp1251", "koi8_r", "iso8859_5", "cp866"), "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"),
    ("uk", _CYRILLIC, "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя"),
    ("be", _CYRILLIC, "абвгдеёжзійклмнопрстуўфхцчшыьэюя"),
    ("bg", _CYRILLIC, "абвгдежзийклмнопрстуфхцчшщъьюя"),
    ("sr mk", _CYRILLIC, "абвгдђѓежзѕијклљмнњопрстћќуфхцчџш"),
    ("el", ("cp1253", "iso8859_7", "cp737"), "αβγδεζηθικλμνξοπρστυφχψωςάέήίόύώϊϋΐΰ"),
    ("he yi", ("cp1255", "iso8859_8"), "אבגדהוזחטיךכלםמןנסעףפץצקרשת"),
    ("ar fa ur", ("cp1256", "iso8859_6"), "ءآأؤإئابةتثجحخدذرزسشصضطظعغـفقكلمنهوىيپچژگ"),
    ("th", ("cp874",), "".join(map(chr, (*range(0xE01, 0xE3B), *range(0xE40, 0xE5B))))),
    ("vi", ("cp1258",), "ăâđêôơưáàãéèíìóòõúùý\u0300\u0301\u0303\u0309\u0323"),
)
# languages, their encodings, a smaller character set of these, and its first bytes of punctuation
# and of common characters
_CHARACTER_SETS = (
    ("ko", ("cp949",), "euc_kr", (0xA1, 0xA3, *range(0xB0, 0xC9))),
    ("ja", ("cp932", "euc_jp"), "euc_jp", (0xA1, 0xA3, 0xA4, 0xA5, *range(0xB0, 0xD0))),
    ("zh", ("gb18030",), "gb2312", (0xA1, 0xA3, *range(0xB0, 0xD8))),
    ("zh", ("big5hkscs",), "big5", (0xA1, 0xA2, *range(0xA4, 0xC7))),
)
_DOS = frozenset({"cp737", "cp850", "cp852", "cp857", "cp866"})
_EUROPEAN = "".join(letters for _, encodings, letters in _ALPHABETS if encodings is _WESTERN)
_JOINING = frozenset("’‘'–—…·\xad\xa0")  # stand between letters
_SIGNS = _JOINING | frozenset("“”„‚«»‹›•°§©®™€£¥¢¡¿†‡‰±×÷²³¹µ¶ªº¼½¾№")
_RAISED = frozenset("¹²³")  # follow letters only in units


@dataclass(frozen=True)
class Candidate:
    """An encoding of some languages. has: returns whether they use a character."""

    languages: frozenset[str]
    encoding: str
    has: Callable[[str], bool]
    is_latin: bool

    @property
    def is_of_dos(self) -> bool:
        return self.encoding in _DOS

    def is_of(self, language: str | None) -> bool:
        return (language or "").lower().replace("_", "-").partition("-")[0] in self.languages

    def strangeness(self, text: str) -> float:
        """Return the share of the characters beyond ASCII that these languages do not use so."""
        padded = f" {text} "
        places = zip(padded[:-2], text, padded[2:], strict=True)
        fits = [self._fits(*place) for place in places if place[1] > "\x7f"]
        return fits.count(False) / max(1, len(fits))

    def _fits(self, before: str, character: str, after: str) -> bool:
        if not self.has(character.lower()[:1]):
            return character in _SIGNS and _is_sign_there(before, character, after)
        if character.isupper() and before.islower():
            return False
        if self.is_latin:  # has ASCII letters too
            return not (_is_letter_beyond_ascii(before) and _is_letter_beyond_ascii(after))
        return not any(each.isascii() and each.isalpha() for each in before + after)


def candidates(language: str | None) -> list[Candidate]:
    """Return possible encodings of a text, those of its language first."""
    return sorted(_candidates(), key=lambda each: (not each.is_of(language), each.is_of_dos))


def _candidates() -> Iterator[Candidate]:
    for languages, own, base, rows in _CHARACTER_SETS:
        yield from _of(languages, own, _has_in_rows(base, rows))
    for languages, encodings, letters in _ALPHABETS:
        has = frozenset(letters).__contains__
        yield from _of(languages, encodings, has, is_latin=letters[0] < "\u0250")
    # Texts of these languages have names of neighbouring ones.
    western = [names for names, encodings, _ in _ALPHABETS if encodings is _WESTERN]
    yield from _of(
        " ".join([*western, "en id ms tl sw"]),
        _WESTERN,
        frozenset(_EUROPEAN).__contains__,
        is_latin=True,
    )


def _of(
    names: str, encodings: Iterable[str], has: Callable[[str], bool], is_latin: bool = False
) -> Iterator[Candidate]:
    return (Candidate(frozenset(names.split()), each, has, is_latin) for each in encodings)


def _has_in_rows(base: str, rows: tuple[int, ...]) -> Callable[[str], bool]:
    def has(character: str) -> bool:
        written = character.encode(base, "ignore")
        return len(written) > 1 and written[0] in rows

    return has


def _is_sign_there(before: str, sign: str, after: str) -> bool:
    if sign in _JOINING:
        return True
    if sign in _RAISED:
        return not before.isalpha() or before in "mM"
    if sign in "¡¿£":
        return not before.isalpha() and (sign != "£" or not after.isalpha())
    return not (before.isalpha() and after.isalpha())


def _is_letter_beyond_ascii(character: str) -> bool:
    return character > "\x7f" and character.isalpha()
