"""Guess the encoding of a text that declares none, by the letters of its language.

Each candidate is decoded; the one with the fewest characters that its languages do not use is the
likeliest.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

_CONTROLS = re.compile("[\x00-\x08\x0e-\x19\x1c-\x1f\x7f-\x9f]")
_CHARACTERS_TO_GUESS_FROM = 2_000  # beyond these a longer text only takes longer
# A share of strange characters: names of other languages are in most texts.
_OWN_LANGUAGE_BONUS = 0.1
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


def guess_encoding(data: bytes, language: str | None) -> str | None:
    """Guess a Unicode encoding if it fits, else one by the language's letters."""
    if (unicode := _unicode(data)) is not None:
        return unicode
    if b"\x1b$" in data and data.isascii() and can_decode(data, "iso2022_jp"):
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
        strangeness = candidate.strangeness(text) - _OWN_LANGUAGE_BONUS * candidate.has_language(
            language
        )
        if strangeness < least:
            best, least = candidate.encoding, strangeness
    return best


def _unicode(data: bytes) -> str | None:
    """Return the Unicode encoding of bytes without a mark; UTF-16 is recognized by its zeros."""
    even, odd = data[::2].count(0), data[1::2].count(0)
    if (even == 0) != (odd == 0) and len(data) % 2 == 0:
        encoding = "utf-16-le" if even == 0 else "utf-16-be"
        return encoding if can_decode(data, encoding) else None
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "utf-8" if b"\x1b$" not in data else None


def _beyond_ascii(data: bytes, encoding: str) -> str | None:
    """Return some words with characters beyond ASCII; None if the data is not in the encoding."""
    if not can_decode(data, encoding):
        return None
    words: list[str] = []
    length = 0
    for match in re.finditer(r"\S*[^\s\x00-\x7f]\S*", data.decode(encoding)):
        words.append(match.group())
        length += len(words[-1])
        if length > _CHARACTERS_TO_GUESS_FROM:
            break
    return " ".join(words)


def can_decode(data: bytes, encoding: str) -> bool:
    try:
        return not _CONTROLS.search(data.decode(encoding))
    except UnicodeDecodeError:
        return False


@dataclass(frozen=True)
class EncodingCandidate:
    """An encoding of some languages. has: returns whether they use a character."""

    languages: frozenset[str]
    encoding: str
    has: Callable[[str], bool]
    is_latin: bool

    @property
    def is_dos(self) -> bool:
        return self.encoding in _DOS

    def has_language(self, language: str | None) -> bool:
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
        return not any(neighbour.isascii() and neighbour.isalpha() for neighbour in before + after)


def candidates(language: str | None) -> list[EncodingCandidate]:
    """Return possible encodings of a text, those of its language first."""
    return sorted(
        _candidates(),
        key=lambda candidate: (not candidate.has_language(language), candidate.is_dos),
    )


def _candidates() -> Iterator[EncodingCandidate]:
    for languages, multibyte_encodings, base, rows in _CHARACTER_SETS:
        yield from _make_candidates(languages, multibyte_encodings, _has_in_rows(base, rows))
    for languages, encodings, letters in _ALPHABETS:
        has = frozenset(letters).__contains__
        yield from _make_candidates(languages, encodings, has, is_latin=letters[0] < "\u0250")
    # Texts of these languages have names of neighbouring ones.
    western = [names for names, encodings, _ in _ALPHABETS if encodings is _WESTERN]
    yield from _make_candidates(
        " ".join([*western, "en id ms tl sw"]),
        _WESTERN,
        frozenset(_EUROPEAN).__contains__,
        is_latin=True,
    )


def _make_candidates(
    names: str, encodings: Iterable[str], has: Callable[[str], bool], is_latin: bool = False
) -> Iterator[EncodingCandidate]:
    return (
        EncodingCandidate(frozenset(names.split()), encoding, has, is_latin)
        for encoding in encodings
    )


def _has_in_rows(base: str, rows: tuple[int, ...]) -> Callable[[str], bool]:
    def is_in_rows(character: str) -> bool:
        data = character.encode(base, "ignore")
        return len(data) > 1 and data[0] in rows

    return is_in_rows


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
