"""Languages by the codes that people and models write for them.

Models say `eng_Latn`, `en_XX`, `fra` or `pt_BR`, clients `en`, `EN-US`, `eng` or `pt-br`. A code is
a language and perhaps a script and a region, with `-` or `_` between them (BCP 47).

The code of a client means

1. the model's code that is the same, capitals and `_` aside; else
2. all codes of the same language, unless both name a script, or a region, and not the same one; of
   several, those in the script and region that the client's is likeliest in: `zh` is `zh-Hans`;
   and those that name the script, if the client's does.

A region tells the script, `zh-TW` is in `Hant`. Names, aliases (`eng`, `arb`, `iw`) and likely
scripts and regions are those of the Unicode CLDR. Of several codes that are left the client has to
choose. An alias that CLDR lacks is an entry of `_SHORT` if it is of a language alone, and of
`_OF_LIBRETRANSLATE` if it also means a script or a region.
"""

import re
import unicodedata
from collections import Counter
from functools import cache, lru_cache
from typing import NamedTuple

from babel import Locale
from babel.core import get_global

# What CLDR shortens to three letters or not at all.
_SHORT = {"hbs": "sh", "pbt": "ps", "quy": "qu", "tgl": "tl"}
_SAME = {"fil": "tl", "nb": "no"}  # a standard form, and the language that it is the standard of
_OF_LIBRETRANSLATE = {"pb": "pt-br", "zt": "zh-hant"}
_LONGEST_CODE = 35  # characters; BCP 47 has none that are longer (RFC 5646, section 4.4.1)
# Scripts of languages that are written in several, by the first word of their letters' names.
_HAN = "hani"
_LETTERS_OF_HAN = 4  # a Han character says as much as so many letters
_SCRIPTS = {
    "ARABIC": "arab",
    "CJK": _HAN,
    "CYRILLIC": "cyrl",
    "DEVANAGARI": "deva",
    "GURMUKHI": "guru",
    "LATIN": "latn",
}
_NO_REGION = "xx"  # mBART's way to say that there is none
UNDETERMINED = "und"  # ISO 639-3's code of no language in particular


class _Code(NamedTuple):
    """The parts of a language code, in small letters; None for what it leaves open."""

    language: str
    script: str | None
    region: str | None

    def agrees_with(self, other: "_Code") -> bool:
        """Return whether the language is the same, and nothing that both name differs."""
        language, other_language = (
            _SAME.get(code.language, code.language) for code in (self, other)
        )
        pairs = zip(self[1:], other[1:], strict=True)
        return language == other_language and all(
            None in pair or pair[0] == pair[1] for pair in pairs
        )


def match_codes(code: str, known_codes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the known codes that a client's may mean: the same one alone, else the likeliest of
    that language that it does not rule out.
    """
    return _match_codes(code, known_codes) if len(code) <= _LONGEST_CODE else ()


@lru_cache(maxsize=1024)
def _match_codes(code: str, known_codes: tuple[str, ...]) -> tuple[str, ...]:
    for candidate in known_codes:
        if _normalize(candidate) == _normalize(code):
            return (candidate,)
    requested = _parse(_OF_LIBRETRANSLATE.get(_normalize(code), code))
    matches = [other for other in known_codes if _parse(other).agrees_with(requested)]
    if len(matches) > 1:
        likely_script, likely_region = _likely_subtags(requested.language, requested.region)
        script = requested.script or likely_script
        likeliest = requested._replace(script=script, region=likely_region)
        matches = [code for code in matches if _parse(code).agrees_with(likeliest)] or matches
        if requested.script:  # zh-Hant comes before zh, which leaves it open
            named = [code for code in matches if _parse(code).script == requested.script]
            matches = named or matches
    return tuple(matches)


def is_same_language(code: str, other: str) -> bool:
    """Return whether two codes mean one language in one script, in whatever regions: en and en-GB
    do, zh-Hans and zh-TW do not. A script that a code leaves open is the language's likeliest.
    """
    if max(len(code), len(other)) > _LONGEST_CODE:
        return False
    (language, script), (other_language, other_script) = map(_written_language, (code, other))
    if language in ("", UNDETERMINED) or language != other_language:
        return False
    return script == other_script or None in (script, other_script)


@lru_cache(maxsize=1024)
def _written_language(code: str) -> tuple[str, str | None]:
    """Return the language and its script, the likeliest if the code leaves it open."""
    language, script, region = _parse(_OF_LIBRETRANSLATE.get(_normalize(code), code))
    return _SAME.get(language, language), script or _likely_subtags(language, region)[0]


def script_of_code(code: str) -> str | None:
    """Return the script that a code names, or that its region tells; None if it leaves it open."""
    return _parse(_OF_LIBRETRANSLATE.get(_normalize(code), code)).script


def script_of_text(text: str) -> str | None:
    """Return the script of most of a text, if it is one of those in which a language is written
    that has another, too. Han characters are simplified if more of them are missing in Big5,
    traditional if more are missing in GB 2312.
    """
    counts = Counter(map(_script, filter(str.isalpha, text)))
    if _HAN in counts:
        counts[_HAN] *= _LETTERS_OF_HAN
    [(script, _)] = counts.most_common(1) or [(None, 0)]
    if script != _HAN:
        return script
    num_simplified, num_traditional = (
        sum(_script(letter) == _HAN and not _can_write(letter, charset) for letter in text)
        for charset in ("big5", "gb2312")
    )
    if num_simplified == num_traditional:
        return None
    return "hans" if num_simplified > num_traditional else "hant"


@lru_cache(maxsize=4096)
def _script(letter: str) -> str | None:
    return _SCRIPTS.get(unicodedata.name(letter, "").partition(" ")[0])


def _can_write(letter: str, charset: str) -> bool:
    try:
        letter.encode(charset)
    except UnicodeEncodeError:
        return False
    return True


def primary_language(code: str) -> str:
    """Return the language of a code, in two letters if it has such."""
    return _parse(code).language


def language_name(code: str) -> str:
    """Return the English name; the code itself where no name is known."""
    return _english().languages.get(primary_language(code), code)


def full_language_name(code: str) -> str:
    """Return the English name with script and region, where they have one together: Traditional
    Chinese, Brazilian Portuguese. The code itself where no name is known.
    """
    language, script, _ = _parse(code)
    region = _normalize(code).rpartition("-")[2].upper()
    names = _english().languages
    for key in (f"{language}_{(script or '').title()}", f"{language}_{region}"):
        if key in names:
            return str(names[key])
    return language_name(code)


@cache
def _english() -> Locale:
    return Locale("en")


def _parse(code: str) -> _Code:
    """Return the parts of a code. A client's code may be of any length: only those as short as BCP
    47 has them are kept in memory.
    """
    return _parse_short(code) if len(code) <= _LONGEST_CODE else _parse_short.__wrapped__(code)


@lru_cache(maxsize=1024)
def _parse_short(code: str) -> _Code:
    language, *others = _normalize(code).split("-")
    script = next((part for part in others if re.fullmatch("[a-z]{4}", part)), None)
    regions = (part for part in others if re.fullmatch("[a-z]{2}|[0-9]{3}", part))
    region = next((part for part in regions if part != _NO_REGION), None)
    alias = get_global("language_aliases").get(language, language)
    language = _SHORT.get(language, alias if len(alias) == 2 else language)
    if region is not None and script is None:
        script, _ = _likely_subtags(language, region)  # zh-TW is written in Hant
    return _Code(language, script, region)


def _likely_subtags(language: str, region: str | None) -> tuple[str | None, str | None]:
    """Return the likeliest script, and region where none is given."""
    subtags = get_global("likely_subtags")
    likeliest = subtags.get(f"{language}_{(region or '').upper()}") or subtags.get(language)
    if likeliest is None:
        return None, region
    _, script, likely_region = likeliest.lower().split("_")
    return script, region or likely_region


def _normalize(code: str) -> str:
    return code.lower().replace("_", "-")
