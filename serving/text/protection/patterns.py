"""Finds what reaches a translation as it is: addresses, code, placeholders, versions, and more."""

import re

# Braces within braces, as ICU's messages have them, up to three deep.
_INNER = r"[^{}]*"
for _ in range(2):
    _INNER = rf"[^{{}}]*(?:\{{{_INNER}\}}[^{{}}]*)*"

_TLD = "com|org|net|io|dev|edu|gov|info|fr|de|uk|eu|ch"
_FILE = (
    "txt|md|pdf|docx?|xlsx?|pptx?|odt|csv|json|ya?ml|xml|html?|png|jpe?g|gif|svg|zip|gz|tar|exe"
    "|py|js|ts|java|cpp|rs|go|sh|ini|cfg|conf|log|toml"
)
# None takes more than a few steps at a character: each begins where nothing of its kind stands
# before, or is bounded.
_PATTERNS = {
    "code": r"`[^`\n]+`",
    "icu": rf"\{{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal|number|date|time|duration"
    rf"|ordinal|spellout)\s*(?:,{_INNER})?\}}",
    "braces": r"\{\{[^{}\n]{1,80}\}\}|\{%[^{}\n]{1,80}%\}|\$?\{[^\s{}]{0,80}\}|\$\([A-Za-z_]\w*\)",
    "printf": r"(?<!\d)%(?:\d+\$)?(?:\([A-Za-z_]\w*\))?[-+#0]*\d*(?:\.\d+)?(?:ll|[hlz])?"
    r"[cdfgisuxX@](?!\w)",
    "web": r"\b(?:https?|ftps?|file|ssh|git)://[^\s<>\"]+|\bmailto:[^\s<>\"]+|\bwww\.[^\s<>\"]+",
    "mail": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}",
    "domain": rf"(?<![\w.-])[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,4}}\.(?:{_TLD})"
    r"(?:/[^\s<>\"]*)?(?![\w@-])",
    "path": r"(?<![\w/.])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*/?(?!\w)"
    r"|\b[A-Za-z]:\\[\w.\\-]*\w|(?<![\w/.-])[\w-]+(?:/[\w.-]+){2,}"
    rf"|(?<![\w/.-])[\w-]+\.(?:{_FILE})\b",
    "call": r"(?<![\w.])[A-Za-z_][\w.]*\(\)|\b[A-Za-z]\w*_\w+\b|(?<!\S)--[a-z][\w-]+",
    "tag": r"(?<![\w&@#])[@#][A-Za-z_]\w*",
    "version": r"\bv\d+(?:\.\d+)*\b|(?<![\w.])\d+(?:\.\d+){2,}(?:-[a-z\d]+(?:\.[a-z\d]+)*)?\b",
    "date": r"(?<![\w-])\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?Z?)?\b",
    "hex": r"\b0x[\da-fA-F]+\b|#[\da-fA-F]{6}\b"
    r"|\b[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}\b",
    "identifier": r"(?<![\w-])(?=[A-Z-]*\d)(?=[\d-]*[A-Z])[A-Z\d]+(?:-[A-Z\d]+)+\b",
}
# Symbols that are the same in all languages, or nearly.
_UNIT = (
    r"[kcmdµn]?m[²³23]?|[kmµ]?g|[mcdµ]?[lL]|ha|k?cal|[kMGT]?Hz|[kMG]?W|kWh|MWh|m?A|mAh|[mk]?V|[kMGT]i?B"
    r"|[kMG]bit/s|[kMG]bps|km/h|m/s|°[CF]?|K|[kM]?Pa|bar|dB|[µmn]s|min|px|pt|dpi|rpm|ppm|k?J|k?N|Ω"
    r"|mmHg|mmol|mol"
)
KEPT = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS.items()))
# Not what is said in another way elsewhere, as times of day and ordinals.
_NUMBER = r"(?<![\w.,:/'’])\d+(?:[.,]\d+)*"
QUANTITY = re.compile(rf"{_NUMBER}[ \u00a0\u202f]?(?:{_UNIT})(?![\w/])")
AMOUNT = re.compile(
    rf"(?:[€$£¥] ?(?<![\w.,])\d+(?:[.,]\d+)*|{_NUMBER}[ \u00a0\u202f]?[€$£¥])"
    r"(?![\w/]|[.,]\d|\s?(?:[kKMm]|[mb]n|thousand|[mb]illions?)\b)"
)
NUMBER = re.compile(rf"{_NUMBER}(?![\w:/'’]|[.,-]\d|\s?[ap]\.?m\b)")
# Groups: the hour, the minute, a or p. The last stop of p.m. may be the sentence's end.
TIME_OF_DAY = re.compile(
    r"(?<![\w.,:])(1[0-2]|0?[1-9]):([0-5]\d)[ \u00a0\u202f]?([apAP])"
    r"(?:[mM]|\.[mM](?:\.(?=\s+[a-z\d]|[,;:)]))?)(?!\w)"
)
# What ends a sentence, or closes what was opened before an address, is no part of it.
_TRAILING = re.compile(r"(?<![.,;:!?…'\"»”)\]])[.,;:!?…'\"»”)\]]+$")

_PICTURE = (
    r"[\U0001F1E6-\U0001F1FF]{2}"  # flags
    r"|[\d#*]\uFE0F?\u20E3"  # keycaps
    r"|(?:[\u2190-\u21FF\u2300-\u27BF\u2B00-\u2BFF\u3030\u303D\u00A9\u00AE\u2122]\uFE0F"
    r"|[\u231A\u231B\u23E9-\u23F3\u2600-\u27BF\u2B50\u2B55]|[\U0001F000-\U0001FAFF])"
)
_JOINED = rf"(?:{_PICTURE})[\uFE0F\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]*"
EMOJI = re.compile(rf"{_JOINED}(?:\u200D{_JOINED})*(?:\s?{_JOINED}(?:\u200D{_JOINED})*)*")


# What neither of these finds has nothing that the others find: most sentences are done so.
MAY_BE_KEPT = re.compile(r"[\d`{}$%/@\\_#:]|\.\S|--|\(\)")
MAY_BE_EMOJI = re.compile(r"[^\x00-\xa8\xaa-\xad\xaf-\u203b]")


def kept_end(match: re.Match[str]) -> int:
    """Return where what was found ends: an address without the punctuation after it."""
    if match.lastgroup not in ("web", "domain"):
        return match.end()
    text = match.group()
    trailing = _TRAILING.search(text)
    if trailing is None:
        return match.end()
    end = trailing.start()
    if text[end] == ")" and "(" in text[:end]:
        end += 1
    return match.start() + end
