"""Languages by the codes that people and models write for them.

Models say `eng_Latn`, `en_XX`, `fra` or `pt_BR`, clients `en`, `EN-US`, `eng` or `pt-br`. A code is
a language and perhaps a script and a region, apart by `-` or `_` (BCP 47). A client's means

1. the model's code that is the same, capitals and `_` aside; else
2. all codes of the same language, unless both name a script, or a region, and not the same one; of
   several, those in the script and region that the client's is likeliest in: `zh` is `zh-Hans`;
   and those that name the script, if the client's does.

A region tells the script, `zh-TW` is in `Hant`. Names, aliases (`eng`, `arb`, `iw`) and likely
scripts and regions are those of the Unicode CLDR. Of several codes that are left the client has to
choose.
"""

import re
import unicodedata
from collections import Counter
from functools import cache, lru_cache

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


def match_codes(code: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the known codes that a client's may mean: the same one alone, else the likeliest of
    that language that it does not rule out.
    """
    return _matching(code, known) if len(code) <= _LONGEST_CODE else ()


@lru_cache(maxsize=1024)
def _matching(code: str, known: tuple[str, ...]) -> tuple[str, ...]:
    same = [each for each in known if _plain(each) == _plain(code)]
    wanted = _parts(_OF_LIBRETRANSLATE.get(_plain(code), code))
    meant = same[:1] or [each for each in known if _agree(_parts(each), wanted)]
    if len(meant) > 1:
        language, script, region = wanted
        likely_script, likely_region = _likely(language, region)
        likeliest = language, script or likely_script, likely_region
        meant = [each for each in meant if _agree(_parts(each), likeliest)] or meant
        if script:  # zh-Hant comes before zh, which leaves it open
            meant = [each for each in meant if _parts(each)[1] == script] or meant
    return tuple(meant)


def is_same_language(code: str, other: str) -> bool:
    """Check that two codes mean one language in one script, in whatever regions: en and en-GB do,
    zh-Hans and zh-TW do not. A script that a code leaves open is the language's likeliest.
    """
    if max(len(code), len(other)) > _LONGEST_CODE:
        return False
    (language, script), (other_language, other_script) = map(_written_language, (code, other))
    if language in ("", UNDETERMINED) or language != other_language:
        return False
    return script == other_script or None in (script, other_script)


def _written_language(code: str) -> tuple[str, str | None]:
    """Return the language and its script, the likeliest if the code leaves it open."""
    language, script, region = _parts(_OF_LIBRETRANSLATE.get(_plain(code), code))
    return _SAME.get(language, language), script or _likely(language, region)[0]


def script_of_code(code: str) -> str | None:
    """Return the script that a code names, or that its region tells; None if it leaves it open."""
    return _parts(_OF_LIBRETRANSLATE.get(_plain(code), code))[1]


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
    return _parts(code)[0]


def language_name(code: str) -> str:
    """Return the English name; the code itself where no name is known."""
    return _english().languages.get(primary_language(code), code)


def full_language_name(code: str) -> str:
    """Return the English name with script and region, where they have one together: Traditional
    Chinese, Brazilian Portuguese. The code itself where no name is known.
    """
    language, script, _ = _parts(code)
    region = _plain(code).rpartition("-")[2].upper()
    names = _english().languages
    known = (f"{language}_{(script or '').title()}", f"{language}_{region}")
    return next((names[each] for each in known if each in names), language_name(code))


@cache
def _english() -> Locale:
    return Locale("en")


def _parts(code: str) -> tuple[str, str | None, str | None]:
    """Return language, script and region; the script also where the region tells it."""
    language, *others = _plain(code).split("-")
    script = next((part for part in others if re.fullmatch("[a-z]{4}", part)), None)
    regions = (part for part in others if re.fullmatch("[a-z]{2}|[0-9]{3}", part))
    region = next((part for part in regions if part != _NO_REGION), None)
    language = _short(language)
    if region is not None and script is None:
        script, _ = _likely(language, region)
    return language, script, region


def _short(language: str) -> str:
    """Return the code in two letters, if there is one that is not another language's."""
    alias = get_global("language_aliases").get(language, language)
    return _SHORT.get(language, alias if len(alias) == 2 else language)


def _likely(language: str, region: str | None) -> tuple[str | None, str | None]:
    """Return the likeliest script, and region where none is given."""
    known = get_global("likely_subtags")
    found = known.get(f"{language}_{(region or '').upper()}") or known.get(language)
    if found is None:
        return None, region
    _, script, likely_region = found.lower().split("_")
    return script, region or likely_region


def _plain(code: str) -> str:
    return code.lower().replace("_", "-")


def _agree(
    own: tuple[str, str | None, str | None], wanted: tuple[str, str | None, str | None]
) -> bool:
    """Check that the language is the same, and nothing that both name differs."""
    if _SAME.get(own[0], own[0]) != _SAME.get(wanted[0], wanted[0]):
        return False
    pairs = zip(own[1:], wanted[1:], strict=True)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)
