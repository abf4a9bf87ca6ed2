"""Patterns of what is not translated: addresses, code, placeholders, emoji, signs, foreign scripts;
of marks that the model does not read, and of what separates the items of a text.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from babel.core import get_global

from serving.text.markup.escapes import LATEX, MATHEMATICS, REGULAR_EXPRESSION, WINDOWS_PATH
from serving.text.markup.placeholders import DIRECTIVE, IN_TEXT, TEMPLATE_BORDER, TEMPLATE_TAG
from serving.text.spans import Span

_TLD = "com|org|net|io|dev|edu|gov|info|fr|de|uk|eu|ch"
_FILE = (
    "txt|md|pdf|docx?|xlsx?|pptx?|odt|csv|json|ya?ml|xml|html?|png|jpe?g|gif|svg|zip|gz|tar|exe"
    "|py|js|ts|java|cpp|rs|go|sh|ini|cfg|conf|log|toml"
)
_KEY = "Ctrl|Control|Alt|AltGr|Shift|Cmd|Command|Option|Opt|Win|Windows|Super|Meta|Fn"
# An address may hold placeholders: https://a.b/{id}?q=${query}
_IN_ADDRESS = r"\{\{[^{}\n]{1,80}\}\}|\{%[^{}\n]{1,80}%\}|\{[^\s{}]{0,80}\}"
_ADDRESS_END = rf"(?:{_IN_ADDRESS}|[^\s<>\"{{}}])+"
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
# The names of what separates sentences, and of what stands in one as a tag does.
BORDER, TAG = "border", "template_tag"
# Alternatives of one pattern: at each place the first that matches counts, so that what encloses
# comes before what it may hold: a border of a template before other tags of it, LaTeX and Windows'
# paths before placeholders, an address before the domain and the path in it. None takes more than a
# few steps at a character: each begins where nothing of its kind stands before, or is bounded.
_PATTERNS = {
    BORDER: f"{TEMPLATE_BORDER}|{DIRECTIVE}",
    TAG: TEMPLATE_TAG,
    "backslashes": f"{MATHEMATICS}|{WINDOWS_PATH}|{LATEX}|{REGULAR_EXPRESSION}",
    "placeholder": IN_TEXT,
    # Not `this' or `that', which are in quotation marks of GNU.
    "code": r"`{1,3}(?:\s[^`\n]*|[^`\n]*[^`\s])`{1,3}",
    "web": rf"\b(?:https?|ftps?|file|ssh|git)://{_ADDRESS_END}|\bmailto:{_ADDRESS_END}"
    rf"|\bwww\.{_ADDRESS_END}",
    "mail": r"<?(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}>?",
    # What follows is "<" and a name or a slash; "a < b and c > d" are comparisons.
    "bracketed": r"(?:(?<![\w.])[A-Za-z_]\w{0,40})?<{1,3}[/!?]?[A-Za-z_][^<>\n]{0,200}>+",
    "domain": rf"(?<![\w.-])[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{0,4}}\.(?:{_TLD})"
    r"(?:/[^\s<>\"]*)?(?![\w@-])",
    "path": r"(?<![\w/.<])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)*/?(?!\w)"
    r"|(?<![\w/.-])[\w-]+(?:/[\w.-]+){2,}"
    rf"|(?<![\w/.-])[\w-]+\.(?:{_FILE})\b"
    r"|(?<![\w./])\.[A-Za-z][\w-]{0,12}(?:/\.[\w-]{1,12})*(?![\w/])",
    "acronyms": r"(?<![\w/-])(?!AND/OR\b)[A-Z]{1,6}(?:/[A-Z]{1,6})+(?![\w/-])"
    r"|(?<![\w/-])[a-z](?:/[a-z])+(?![\w/-])",
    "call": r"(?<![\w.])[A-Za-z_][\w.]{0,80}\(\)|\b[A-Za-z]\w*_\w+\b|(?<!\S)--[a-z][\w-]+",
    "tag": r"(?<![\w&@#])[@#][A-Za-z_]\w*(?:[-./]\w+)*",
    "entity": rf"(?<![^\W_])\w{{0,40}}(?:{_ENTITY}\w{{0,40}})+",
    "keys": rf"\b(?:{_KEY})(?: ?[+-] ?(?:{_KEY}|F\d\d?|[A-Z][a-z]{{1,8}}\b|[A-Z\d]\b))+",
    "expression": rf"(?<![^\s(\"'“]){_OPERAND}(?: {_OPERATOR} {_OPERAND})+(?![\w(])",
    "empty": r"\[(?:[ xX]|[^\w\[\]\n]{1,9})\]",
    "trademark": r"(?<!\w)[A-Za-z][\w-]{0,40}[®™℠]",
    "hex": r"\b0x[\da-fA-F]+\b|#[\da-fA-F]{6}\b",
}
NON_TRANSLATABLE = re.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS.items())
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
# Faces of ASCII: lying, as :-( and >:'(, or upright, as ^_^ and o.O.
_EMOTICON = (
    r"(?<!\S)(?:[>}]?[:;=][-'^o]{0,2}[()\[\]{}DPpOo|*/\\@$]{1,3}|[:;]-?3|[8BDXx]-[()D]|[xX]+D+|</3"
    r"|\\o/|[oO]/|([oOTQUuVvXxn])[_.]{1,3}\1|([\^><=;~*@-])[_.]{1,3}\2|([\^><=])[oOvVwW]\3|\^\^"
    r"|>[_.]<|o[_.]O|O[_.]o)(?=[.,;!?…]*(?:\s|\Z))"
)
EMOJI = re.compile(
    rf"{_EMOTICON}|{_JOINED}(?:\u200D{_JOINED})*(?:\s?{_JOINED}(?:\u200D{_JOINED})*)*"
)
# A text without a match has none of the others: most sentences need no more than this one search.
MAY_BE_NON_TRANSLATABLE = re.compile(
    r"[\d`{}\[\]$%/@\\_#:;<>=&+*^~|]|\.\S|--|\(\)|[xXoO8BDTQ][-D.]|[^\x00-\x7f\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u2018\u2019]"
)
# A run of marks: !!!, ?!, ..., ?.. and !!1. What is joined to a word or a path is none.
RUN = re.compile(
    r"(?:[!?！？]+[.…]*[!?！？.…]|(?<![./\\])(?<!\.\w)(?:\.{2,}|。{2,}|…|\.(?=[!?！？])))[.!?！？…]*"
    r"(?:(?<=[!?][!?])1{1,5}(?!\w)|(?<=\.\.\.)(?![/\\.])|(?<=…)|(?![\w/\\]))"
)
# Round brackets around nothing but signs: (!), (*), (...).
SIGNS_IN_BRACKETS = re.compile(r"\([^\w\s()\[\]{}]{1,9}\)")
# Arrows, bullets, mathematics, currencies; neither Latin's own punctuation nor what `typography`
# reads as usual characters.
_SIGN = r"[¢-©¬®-±¶·×÷‖‗†-‣‥‧‱-‸※-⁞₠-⃀℀-↋←-⯿⸎-⸿〃〄〇-〟｢｣�\U0001d000-\U0001f0ff]"
_ASCII_SIGN = r"[<>=+*#^~|\\_{}$@]"
_NO_WORD = r"(?![^\s.,;:!?)])"
# Alone between spaces, or at the border of a word, where models drop what they read.
SIGNS = re.compile(
    rf"(?<!\S){_ASCII_SIGN}[<>=+*#^~|\\_{{}}$@!:&/-]*{_NO_WORD}|(?<!\S)[-!:&|/]{_ASCII_SIGN}+{_NO_WORD}"
    rf"|(?<!\S)(?:--+|&&|\|\||//){_NO_WORD}|(?<![\w&])&(?=[A-Za-z])|{_SIGN}[{_SIGN[1:-1]}\ufe0e\ufe0f]*"
)
# Words with signs in them, as R&D, C++, key=value or std::map, and what brackets belong to.
_WITH_SIGN = re.compile(
    r"(?<![^\s(\"'“«„‘])(?=[^\s\"“”„«»]{0,100}(?:[<>=+*#^~|\\_{}$@]|&(?!#?\w{2,};)))"
    r"[\w.$@#~^*\\/(\[{<-][^\s\"“”„«»,;]{0,300}[^\s\"“”„«».,;:!?…)'’]|(?<!\w)\w{1,40}::\w[\w:]*"
)
_SUBSCRIPTED = re.compile(
    r"(?<![\w.])[A-Za-z_][\w.]{0,80}(?:\[[^\s\[\]]{0,40}\]|\([^\s()]{0,40}\))+"
)
# What separates the items of a menu, a path or a title: Home > Dogs, Save | Cancel.
_SEPARATOR = re.compile(r"(?:(?<=[\w.?!%)\]}…])|\A)\s+[|·•→›»>/]\s+(?=[^\W\d_a-zß-ÿ]|\Z)")
# A remark before a sentence: [laughs] Come in.
_REMARK = re.compile(r"\A\s*\[[^\[\]\n]{2,80}\](\s+)(?=[A-Z♪])")
# Around several words, or around one.
PHRASE_BRACKETS = re.compile(r"(?<!\S)(?:\[[^\[\]\n]{1,300}\]|\{[^{}\n]{0,300}\s[^{}\n]{0,300}\})")
BRACKETS = re.compile(
    r"\[[^\[\]\n]{1,300}\]|\{[^{}\n]{1,300}\}|［[^［］\n]{1,300}］|｛[^｛｝\n]{1,300}｝"
)
# Of Spanish: other languages have no such marks before a sentence.
INVERTED_MARKS = re.compile("[¡¿]+")
_LETTER = (
    r"[\u0370-\u167f\u1681-\u180d\u180f-\u1dff\u2c00-\u2dff\u2e80-\u2fff\u3040-\uabff\uac00-\ud7ff\uf900-\ufaff"
    r"\ufb07-\ufdff\ufe70-\ufefc\U00010000-\U0001cfff\U00020000-\U0003ffff]"
)
_FOREIGN = re.compile(rf"{_LETTER}+(?:[\s\u200c\u200d'’.,、-]{{0,2}}{_LETTER}+)*")


def end_of_match(match: re.Match[str]) -> int:
    """Return where a match ends: an address without the punctuation after it."""
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


def separators(text: str) -> Iterator[Span]:
    """Yield what separates the items of a text, which are no sentence together."""
    if remark := _REMARK.match(text):
        yield Span(*remark.span(1))
    depth = place = 0
    for match in _SEPARATOR.finditer(text):
        depth += text.count("(", place, match.start()) - text.count(")", place, match.start())
        place = match.start()
        if depth == 0:
            yield Span(*match.span())


def words_with_signs(text: str) -> Iterator[Span]:
    """Yield the words that hold operators or brackets, without what encloses them."""
    for pattern in (_WITH_SIGN, _SUBSCRIPTED):
        for match in pattern.finditer(text):
            yield Span(*match.span())


def foreign_words(text: str, language: str) -> Iterator[Span]:
    """Yield the words in other scripts than a language's, if that is Latin: its models cannot write
    them. Words with only spaces between them are one.
    """
    if is_in_latin_script(language):
        yield from (Span(*match.span()) for match in _FOREIGN.finditer(text))


@lru_cache(maxsize=256)
def is_in_latin_script(language: str) -> bool:
    """Return whether a language is written in Latin letters, by the Unicode CLDR; False if not
    known.
    """
    return "_Latn_" in get_global("likely_subtags").get(language, "")
