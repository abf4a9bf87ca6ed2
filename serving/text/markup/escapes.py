r"""Reads the escapes of C, JSON, .properties and .strings in a text: \n, \t, \", \u00e9.

An escaped line end or tab is a border between words, an escaped letter or quote is read as that
character. What only looks like an escape stays: paths of Windows (C:\new), commands of LaTeX (\nu,
\text{a}).
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

from serving.text.markup.tokens import Role, Token, text_tokens

_NAME = r"[\w.$~()@{}%-]{1,100}"
_WORDS = r"(?: (?:[A-Z(\d][\w.()-]{0,40}|and|y|et|und)){0,3}"  # of a name, as Program Files (x86)
WINDOWS_PATH = (
    # C:\, %TEMP%\, ..\, ~\, $env:TEMP\, HKEY_USERS\, \\server\, \\?\
    r"(?:(?<!\w)(?:[A-Za-z]:|%[A-Za-z_]\w*%|\.{1,2}|~|\$(?:env:)?\w+|HKEY_\w+|HK(?:LM|CU|CR|U|CC))"
    r"|(?<![^\s\"'(\[{<=])\\\\[\w.?-]+(?=\\))"
    rf"(?:\\{{1,2}}(?:{_NAME}(?:{_WORDS}(?=\\))?)?)+"
    # dogs\new.txt
    r"|(?<![\w\\.-])[\w-]{1,60}(?:\\{1,2}[\w-]{1,60}){0,9}\\{1,2}[\w-]{1,60}\.[A-Za-z]\w{1,4}(?![\w.\\])"
    # a name after a backslash that no escape begins with: App\Models\name
    r"|(?<![\w\\.-])[A-Za-z_][\w-]{0,60}(?:\\{1,2}[A-Za-z_][\w-]{0,60}){0,9}"
    r"\\{1,2}(?![ntrabfvuxUN])[A-Za-z][\w-]{0,60}(?:\\{1,2}[A-Za-z_][\w-]{0,60}){0,9}"
)
_HEX = r"[\da-fA-F]"
_ARGUMENTS = r"(?:\[[^\[\]\n]{0,40}\]|\{[^{}\n]{0,80}\})"
# Those that begin as an escape does.
_COMMANDS = (
    "nabla|natural|nearrow|neq?|neg|newcommand|newline|newpage|nexists|ni|nmid|nocite|noindent"
    "|nolimits|nonumber|normalsize|not|notin|nolinebreak|nparallel|nsim|nsubseteq|nu|numberwithin"
    "|nwarrow|tableofcontents|tan|tanh|tau|text[a-z]{0,6}|tfrac|thanks|thebibliography|therefore"
    "|theta|tilde|times|tiny|to|today|top|triangleq?|raggedright|raisebox|rangle|rceil|ref"
    "|renewcommand|rfloor|rho|right(?:[a-z]{5,14})?|rm"
)
LATEX = (
    rf"(?<![\\\w])\\[A-Za-z]{{2,30}}\*?{_ARGUMENTS}{{1,4}}"
    rf"|(?<![\\\w])\\(?:(?![ntru]|x{_HEX}{{2}})[A-Za-z]{{2,30}}|{_COMMANDS})(?![A-Za-z])"
)
MATHEMATICS = (
    r"\$(?=[^$\n]{0,200}[\\^_{=])[^\s$](?:[^$\n]{0,200}[^\s$])?\$(?!\w)"
    r"|\\\([^\n]{1,200}?\\\)|\\\[[^\n]{1,200}?\\\]"
)

REGULAR_EXPRESSION = r"(?<!\S)[^\s\\]{0,40}\\[dswDSW](?![A-Za-z])\S{0,80}(?<![.,;:])"
_BREAK = r"\\{1,2}(?:[nrt]|[afv](?![a-z])|0(?!\d)|u000[\daAdD])"
_ESCAPE = re.compile(
    rf"(?P<stays>{WINDOWS_PATH}|{MATHEMATICS}|{LATEX}|{REGULAR_EXPRESSION})"
    rf"|(?P<break>[ ]?(?!{LATEX}){_BREAK}(?:[ ]?(?!{LATEX}){_BREAK})*[ ]?)"
    rf"|(?P<character>(?:\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|\\u{_HEX}{{4}}"
    rf"|\\U{_HEX}{{8}}|\\U{_HEX}{{4}}|\\u\{{{_HEX}{{1,6}}\}}|\\N\{{[A-Z][A-Z\d -]{{1,80}}\}}"
    rf"|(?:\\x{_HEX}{{2}})+|(?:\\[0-3][0-7]{{2}})+)|\\{{1,3}}[\"'/])"
)
_QUOTES, _CLOSING = frozenset("\"'`“”‘’()"), frozenset(",.;:!?)")
_BYTE = re.compile(rf"\\x({_HEX}{{2}})|\\([0-3][0-7]{{2}})")


def read_escapes(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens of a text, each escape as a token of what it stands for."""
    backslash = ""  # before a quote that is written as a reference
    for token in tokens:
        if backslash and token.role is Role.TEXT and token.text in _QUOTES:
            token, backslash = Token(Role.TEXT, backslash + token.raw, token.text), ""
        if backslash:
            yield Token(Role.TEXT, backslash, backslash)
            backslash = ""
        if token.is_divisible and "\\" in token.text:
            text = token.text.removesuffix("\\")
            backslash = token.text[len(text) :]
            yield from _read_escapes_in_text(text)
        else:
            yield token
    if backslash:
        yield Token(Role.TEXT, backslash, backslash)


def _read_escapes_in_text(text: str) -> Iterator[Token]:
    start = 0
    for match in _ESCAPE.finditer(text):
        raw = match.group()
        character = "" if match["break"] else unescape(raw)
        if match["stays"] or character == raw:
            continue
        if start < match.start():
            yield Token(Role.TEXT, text[start : match.start()], text[start : match.start()])
        if character:
            yield Token(Role.TEXT, raw, character)
        elif _is_mentioned(text, match):
            yield from text_tokens(raw[: len(raw) - len(raw.lstrip())], False, False)
            yield Token(Role.NON_TRANSLATABLE, raw.strip(), raw.strip())
            yield from text_tokens(raw[len(raw.rstrip()) :], False, False)
        else:
            yield Token(Role.BREAK, raw) if "t" in raw else Token(Role.LINE_BREAK, raw, " ")
        start = match.end()
    if start < len(text):
        yield Token(Role.TEXT, text[start:], text[start:])


def _is_mentioned(text: str, escape: re.Match[str]) -> bool:
    r"""Return whether an escape is a word of its sentence: use \n for a new line, press "\t"."""
    raw, before, after = escape.group(), text[: escape.start()], text[escape.end() :]
    is_quoted = before[-1:] in _QUOTES and after[:1] in _QUOTES and bool(before and after)
    has_spaces = raw != raw.lstrip() and (raw != raw.rstrip() or after[:1] in _CLOSING)
    is_within = before[-1:].isalnum() and not (after[:1].isupper() or not after)
    return raw.count("\\") == 1 and (is_quoted or (has_spaces and is_within))


def unescape(raw: str) -> str:
    """Return the characters that a reference of HTML or an escape stands for; else what it is."""
    if not raw.startswith("\\") or raw[1:2] == "&":
        return html.unescape(raw.removeprefix("\\"))
    if raw[-1] in "\"'/":
        return raw[-1]
    try:
        if raw.startswith("\\N{"):
            return unicodedata.lookup(raw[3:-1])
        if raw.startswith("\\u{"):
            return chr(int(raw[3:-1], 16))
        if raw[1] in "uU":
            units = [int(unit, 16) for unit in re.split(r"\\[uU]", raw)[1:]]
            pair = b"".join(unit.to_bytes(2) for unit in units) if len(units) == 2 else b""
            return (pair or units[0].to_bytes(4)).decode("utf-16-be" if pair else "utf-32-be")
        values = [int(octet[1] or octet[2], 16 if octet[1] else 8) for octet in _BYTE.finditer(raw)]
        return _decode_octets(bytes(values))
    except (ValueError, KeyError, OverflowError):
        return raw


def _decode_octets(octets: bytes) -> str:
    """Return the text of bytes in UTF-8, or in Latin-1 where they are none."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets.decode("latin-1")
