"""Patterns of what a translation keeps as it is written: addresses, code, placeholders, signs."""

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
_KEY = "Ctrl|Control|Alt|AltGr|Shift|Cmd|Command|Option|Opt|Win|Windows|Super|Meta|Fn"
_PLACEHOLDER = r"\{\{[^{}\n]{1,80}\}\}|\{%[^{}\n]{1,80}%\}|[$#]?\{[^\s{}]{0,80}\}"
# An address may hold placeholders: https://a.b/{id}?q=${query}
_ADDRESS_END = rf"(?:{_PLACEHOLDER}|[^\s<>\"{{}}])+"
_OPERATOR = (
    r"(?:[<>=!:+*/^~|&-]?=|<=?>|[-=]>|<-|&&|\|\||<<|>>|&(?:amp;)?|[<>=+*/^≤≥≠≈≡±×÷−→⇒∈⊂∪∩-])"
)
_OPERAND = (
    r"(?:(?:[A-Za-z]|[A-Za-z]+[\d_]\w*|\d*[a-z])(?:\([\w,]{1,20}\)|\[\w{1,20}\])?(?:\^\w+)?"
    r"|[-−]?\d[\d.,]*\d|[-−]?\d)%?"
)
# References to letters and spaces, which a model reads as what they stand for.
LETTER_REFERENCE = (
    r"&(?:[A-Za-z]{1,2}(?:acute|grave|circ|uml|tilde|cedil|ring|caron|slash|lig|ogon)|szlig|nbsp"
    r"|e[mn]sp|thinsp|#160|#[xX][aA]0|#8239|shy|#173|zwnj|zwj);"
)
_ENTITY = rf"(?!{LETTER_REFERENCE})" r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z\d]{1,30});"
# None takes more than a few steps at a character: each begins where nothing of its kind stands
# before, or is bounded.
_PATTERNS = {
    "code": r"`[^`\n]+`",
    "icu": rf"\{{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal|number|date|time|duration"
    rf"|ordinal|spellout)\s*(?:,{_INNER})?\}}",
    "braces": rf"{_PLACEHOLDER}|\$\([A-Za-z_]\w*\)|<%[^<>\n]{{1,80}}%>|%%[A-Za-z_]\w*%%"
    r"|%[A-Z][A-Z\d_]*%|(?<!\d)(?<!\d[ \u00a0])%L?\d{1,2}(?!\d|[$.]?\d*[a-zA-Z])",
    # A flag may be a space; "50 % discount" has none.
    "printf": r"(?<!\d)(?<!\d[ \u00a0])%(?:\d+\$)?(?:\([A-Za-z_]\w*\))?[-+#0' ]*(?:\d+|\*)?"
    r"(?:\.(?:\d+|\*))?(?:hh|ll|[hlLqjzt])?[cdeEfFgGiosuxXn@](?![\w'’])",
    "web": rf"\b(?:https?|ftps?|file|ssh|git)://{_ADDRESS_END}|\bmailto:{_ADDRESS_END}"
    rf"|\bwww\.{_ADDRESS_END}",
    "mail": r"<?(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}>?",
    # What follows is "<" and a name or a slash; "a < b and c > d" are comparisons.
    "bracketed": r"(?:(?<![\w.])[A-Za-z_]\w{0,40})?<[/!?]?[A-Za-z_][^<>\n]{0,200}>+",
    "domain": rf"(?<![\w.-])[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,4}}\.(?:{_TLD})"
    r"(?:/[^\s<>\"]*)?(?![\w@-])",
    "path": r"(?<![\w/.])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*/?(?!\w)"
    r"|\b[A-Za-z]:\\[\w.\\-]*\w|(?<![\w/.-])[\w-]+(?:/[\w.-]+){2,}"
    rf"|(?<![\w/.-])[\w-]+\.(?:{_FILE})\b"
    r"|(?<![\w./])\.[A-Za-z][\w-]{0,12}(?:/\.[\w-]{1,12})*(?![\w/])",
    "acronyms": r"(?<![\w/-])(?!AND/OR\b)[A-Z]{1,6}(?:/[A-Z]{1,6})+(?![\w/-])"
    r"|(?<![\w/-])[a-z](?:/[a-z])+(?![\w/-])",
    "call": r"(?<![\w.])[A-Za-z_][\w.]{0,80}\(\)|\b[A-Za-z]\w*_\w+\b|(?<!\S)--[a-z][\w-]+",
    "tag": r"(?<![\w&@#])[@#][A-Za-z_]\w*",
    "entity": rf"(?<![^\W_])\w{{0,40}}(?:{_ENTITY}\w{{0,40}})+",
    "keys": rf"\b(?:{_KEY})(?: ?[+-] ?(?:{_KEY}|F\d\d?|[A-Z][a-z]{{1,8}}\b|[A-Z\d]\b))+",
    "expression": rf"(?<![^\s(\"'“]){_OPERAND}(?: {_OPERATOR} {_OPERAND})+(?![\w(])",
    "empty": r"\[(?:[ xX]|[^\w\[\]\n]{1,9})\]",
    "trademark": r"(?<!\w)[A-Za-z][\w-]{0,40}[®™℠]",
    "hex": r"\b0x[\da-fA-F]+\b|#[\da-fA-F]{6}\b",
}
KEPT = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS.items()))
# What ends a sentence, or closes what was opened before an address, is no part of it.
_TRAILING = re.compile(r"(?<![.,;:!?…'\"»”)\]])[.,;:!?…'\"»”)\]]+$")

_PICTURE = (
    r"[\U0001F1E6-\U0001F1FF]{2}"  # flags
    r"|[\d#*]\uFE0F?\u20E3"  # keycaps
    r"|(?:[\u2190-\u21FF\u2300-\u27BF\u2B00-\u2BFF\u3030\u303D\u00A9\u00AE\u2122]\uFE0F"
    r"|[\u231A\u231B\u23E9-\u23F3\u2600-\u27BF\u2B50\u2B55]|[\U0001F000-\U0001FAFF])"
)
_JOINED = rf"(?:{_PICTURE})[\uFE0F\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]*"
_EMOTICON = r"(?<!\S)[:;=][-']?[()\[\]DPpOo|*/](?![\w(])"
EMOJI = re.compile(
    rf"{_EMOTICON}|{_JOINED}(?:\u200D{_JOINED})*(?:\s?{_JOINED}(?:\u200D{_JOINED})*)*"
)

# What this does not find has nothing that the others find: most sentences are done so.
MAY_BE_KEPT = re.compile(
    r"[\d`{}\[\]$%/@\\_#:;<>=&+*^~|]|\.\S|--|\(\)|[^\x00-\x7f\u00c0-\u024f\u2018\u2019]"
)


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
