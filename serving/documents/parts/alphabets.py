"""Letters that languages write beyond ASCII, and the encodings that their texts were stored in."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

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
# languages, their encodings, the character set of which these hold more, and the first bytes there
# of punctuation and of the characters in common use
_CHARACTER_SETS = (
    ("ko", ("cp949",), "euc_kr", (0xA1, 0xA3, *range(0xB0, 0xC9))),
    ("ja", ("cp932", "euc_jp"), "euc_jp", (0xA1, 0xA3, 0xA4, 0xA5, *range(0xB0, 0xD0))),
    ("zh", ("gb18030",), "gb2312", (0xA1, 0xA3, *range(0xB0, 0xD8))),
    ("zh", ("big5hkscs",), "big5", (0xA1, 0xA2, *range(0xA4, 0xC7))),
)
_DOS = frozenset({"cp737", "cp850", "cp852", "cp857", "cp866"})
_EUROPEAN = "".join(letters for _, encodings, letters in _ALPHABETS if encodings is _WESTERN)
_JOINING = frozenset("’‘'–—…·\xad\xa0")  # what stands between letters
_SIGNS = _JOINING | frozenset("“”„‚«»‹›•°§©®™€£¥¢¡¿†‡‰±×÷²³¹µ¶ªº¼½¾№")
_RAISED = frozenset("¹²³")  # after a letter in units alone


@dataclass(frozen=True)
class Candidate:
    """An encoding that texts of some languages are in. has: whether they have a character."""

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
        """Return which part of the characters beyond ASCII is strange to these languages there."""
        padded = f" {text} "
        places = zip(padded[:-2], text, padded[2:], strict=True)
        fits = [self._fits(*place) for place in places if place[1] > "\x7f"]
        return fits.count(False) / max(1, len(fits))

    def _fits(self, before: str, character: str, after: str) -> bool:
        if not self.has(character.lower()[:1]):
            return character in _SIGNS and _is_sign_there(before, character, after)
        if character.isupper() and before.islower():
            return False
        if self.is_latin:  # which writes ASCII between
            return not (_is_letter_beyond_ascii(before) and _is_letter_beyond_ascii(after))
        return not any(each.isascii() and each.isalpha() for each in before + after)


def candidates(language: str | None) -> list[Candidate]:
    """Return the encodings that a text may be in, those of its language first."""
    return sorted(_candidates(), key=lambda each: (not each.is_of(language), each.is_of_dos))


def _candidates() -> Iterator[Candidate]:
    for languages, own, base, rows in _CHARACTER_SETS:
        yield from _of(languages, own, _in_rows(base, rows))
    for languages, encodings, letters in _ALPHABETS:
        has = frozenset(letters).__contains__
        yield from _of(languages, encodings, has, is_latin=letters[0] < "\u0250")
    # Texts of these languages quote names of their neighbours.
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


def _in_rows(base: str, rows: tuple[int, ...]) -> Callable[[str], bool]:
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
