"""The syntaxes of placeholders: what programs replace in a text before anyone reads it.

`SYNTAXES` are those of texts of which nothing more is known; their patterns take no prose for a
placeholder. `FORMATS` are those that gettext names by a flag (`c-format`): there every sign of the
syntax counts.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import cache

# Braces within braces, as ICU's messages have them, up to three deep.
_INNER = r"[^{}]*"
for _ in range(2):
    _INNER = rf"[^{{}}]*(?:\{{{_INNER}\}}[^{{}}]*)*"
_IN_BRACES = r"(?:[^{}\n]|\{[^{}\n]{0,80}\}){0,160}"
_FUNCTION = r"[A-Z][A-Z_]+\([^(){}\n]{0,80}\)"
# Flags, width and precision of a conversion. A width may be an argument: *, *2$.
_WIDTH = r"(?:\d{1,9}|\*(?:\d{1,2}\$)?)?(?:\.(?:\d{1,9}|\*(?:\d{1,2}\$)?)?)?"
_LENGTH = r"(?:hh|ll|I64|I32|[hlLqjztw])?"
_CONVERSION = rf"[-+#0'^]*{_WIDTH}(?:{_LENGTH}[A-Za-z@]|<PRI[A-Za-z]\w+>)"
# After a number a percent sign says that it is a percentage.
_NO_PERCENTAGE = r"(?<!\d)(?<!\d[ \u00a0\u202f])"
# What a word in brackets or quotes, or after a currency, begins after.
_BEFORE_WORD = r"(?<![^\s(\[{<>\"'“«„‘/+–$€£¥-])"
# A percent sign right after a placeholder belongs with it, as do a unit after it and a letter
# before it: %d%%, {used}%, %dpx, v%s.
_PERCENT = (
    r"(?:[ \u00a0\u202f]?%%|%(?![\w%({<.|@\[*])|%(?=(?:\.+|…)(?:\s|\Z))"
    r"|[ \u00a0\u202f]%(?! [dfsu](?!\w))(?=[.,;:!?)\]]*(?:\s|\Z)))"
)
_LETTER_BEFORE = r"(?:(?<![\w%$@#{}\\.:/-])[A-Za-z](?=[{%]))?"
_UNIT_AFTER = r"(?:(?<=[}>\d@)])[A-Za-z]{1,3}(?!\w))?"
# Tags of templates stand around text, or part it, and for none: {% if %}, {{#if}}, <% if %>.
_ELSE = r"(?:else|elsif|elif|elseif|when|case)\b"
TEMPLATE_BORDER = (
    rf"\{{%-?\s*{_ELSE}(?:(?!%\}})[^\n]){{0,160}}%\}}|\{{\{{~?\s*else\b[^{{}}\n]{{0,80}}\}}\}}"
    rf"|\{{\{{\^[^{{}}\n]{{0,80}}\}}\}}|<%-?\s*\}}?\s*{_ELSE}(?:(?!%>)[^\n]){{0,160}}%>"
)
TEMPLATE_TAG = (
    r"\{%(?:(?!%\})[^\n]){1,160}%\}|\{\#[^{}\n]{1,160}\#\}|\{\{\{?~?[#/!][^{}\n]{1,160}\}?\}\}"
    r"|<%(?![=#])(?:(?!%>)[^\n]){1,160}%>|<\?(?:php|=)(?:(?!\?>)[^\n]){1,160}\?>"
)
# Directives and labels of reStructuredText begin a line.
DIRECTIVE = (
    r"(?<!\S)\.\. (?:[A-Za-z][\w+.-]*(?::[\w+.-]+)?::(?!\S)|_[^:\n]{1,80}:(?!\S)"
    r"|\|[^|\n]{1,40}\| [\w-]+::(?!\S))"
)
_MARKUP_TAG = r"</?[A-Za-z][\w.-]*(?:\s[^<>]*)?/?>"
_BRACED = rf"\{{{_INNER}\}}"
_PERCENTS, _BRACES = {"%": "%%"}, {"{": "{{", "}": "}}"}
_C_TYPES = r"(?:hh|ll|wf?\d{1,2}|[hlLqjztZ])?[diouxXeEfFgGaAcCsSpnmbB]|<PRI[A-Za-z]\w+>"
_QUOTED_BY_GCC = r"<(?:[^%\n]{1,80}%>)?|>"  # %<if%>: code
_TILDE_BREAK = "~[%&]"
_TILDE = r"~(?:[-+]?\d{1,4}|'.|[vV#,])*[:@]*[^\s\d]"


@dataclass(frozen=True, slots=True)
class Syntax:
    """A syntax of placeholders in a text of any kind. examples: how they are written."""

    name: str
    pattern: str
    examples: tuple[str, ...]


SYNTAXES = (
    Syntax(
        "reStructuredText",
        r"(?<![\w:]):[a-z][\w.+-]*(?::[a-z][\w.+-]*)?:`[^`\n]+`"
        r"|`[^`\n]+`__?(?!\w)|(?<![\w|])\|[A-Za-z][\w .+-]{0,40}\|(?:__?)?(?![\w|])"
        r"|\[(?:\d{1,3}|\#[\w-]*|\*|[A-Za-z][\w.-]*)\]_(?!\w)",
        (":ref:`the dogs`", "`the dogs`_", "|name|", "[1]_", "[#note]_"),
    ),
    Syntax(
        "Handlebars, Mustache, Angular, i18next, Jinja, Twig, Liquid",
        rf"\{{\{{\{{[^{{}}\n]{{1,160}}\}}\}}\}}|\{{\{{{_IN_BRACES}\}}\}}|\$t\([^()\n]{{1,80}}\)",
        ("{{name}}", "{{{name}}}", "{{ user.name | upcase }}", "$t(dogs.many)"),
    ),
    Syntax(
        "ICU, java.text.MessageFormat",
        rf"\{{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal|number|date|time|duration|ordinal"
        rf"|spellout|choice|list)\s*(?:,{_INNER})?\}}",
        ("{0,number,integer}", "{when, date, short}", "{n, number, ::currency/USD}"),
    ),
    Syntax(
        "Ruby, Rails, JavaScript, JSP, shells, Symfony",
        rf"[$#%@]\{{{_IN_BRACES}\}}",
        ("%{count}", "${name}", "${VAR:-nobody}", "#{dog.name}", "@{name}"),
    ),
    Syntax(
        "Fluent, Svelte, ICU with spaces",
        rf"\{{\s+(?:[$-]?[A-Za-z_][\w.-]*(?:\([^(){{}}\n]{{0,80}}\))?|{_FUNCTION}|\"[^\"{{}}\n]*\")"
        r"\s+\}",
        ("{ $name }", "{ -brand-name }", '{ DATETIME($date, month: "long") }'),
    ),
    Syntax(
        "C#",
        r"\{\d{1,3}(?:,\s?-?\d{1,3})?:[^{}\n]{1,40}\}|\{\d{1,3},\s?-?\d{1,3}\}",
        ("{0:N2}", "{0,-10:N0}", "{0:yyyy-MM-dd HH:mm}"),
    ),
    Syntax(
        "Python, Java, C++, Rust, Vue, Angular, Perl",
        r"\{[^\s{}]{0,80}\}|\{\w*:[^\s{}\w]?[<>=^][^{}\n]{0,10}\}",
        ("{0}", "{}", "{name}", "{name!r:>10}", "{0.attr}", "{x[0]}", "{$INTERPOLATION}"),
    ),
    Syntax(
        "ERB, EJS, JSP",
        r"<%[=#](?:(?!%>)[^\n]){1,160}%>",
        ("<%= link_to dog %>",),
    ),
    Syntax("Object Pascal", r"%\d{1,2}:[dsnpmfgexu](?!\w)", ("%0:s", "%1:d")),
    Syntax(
        "MSBuild, shells",
        r"\$\([A-Za-z_][^()\n]{0,80}\)",
        ("$(OutDir)", "$(hostname -s)"),
    ),
    Syntax(
        "Windows",
        r"%[A-Za-z_][\w.]*%(?:\\[\w.-]+)*(?![\w%])|%%[A-Za-z_]\w*%%(?!\w)|%\d{1,2}![^!\s]{1,10}!",
        ("%TEMP%", "%UserName%", "%1!s!"),
    ),
    Syntax(
        "Boost",
        r"(?<!\d)%\d{1,2}%(?!\w)|%\|[^|\s%]{1,20}\|",
        ("%1%", "%|1$d|"),
    ),
    Syntax(
        "Ruby, C with inttypes.h",
        r"%[-+#0]*\d{0,9}<[A-Za-z_]\w*>(?:[-+#0]*\d*(?:\.\d+)?[A-Za-z](?!\w))?",
        ("%<count>d", "%<price>.2f", "%<PRIu64>"),
    ),
    Syntax(
        "printf of C, Objective-C, Python, PHP, Java, Go, Lua, Perl and others; dates of strftime",
        rf"{_NO_PERCENTAGE}%(?:\d{{1,2}}\$|\[\d{{1,2}}\])?(?:\([^()\s]{{1,60}}\))?"
        rf"(?:'[^\w\s%'])?{_CONVERSION}\w*"
        rf"|{_NO_PERCENTAGE}%[-+#0']* [-+#0']*\d{{0,2}}[dfsu](?![\w'’])",
        ("%s", "%d", "%1$s", "%-5.2f", "%(name)s", "%@", "%2$@", "%lld", "%I64d", "%[1]q", "%Y"),
    ),
    Syntax(
        "Qt, KDE",
        r"(?<!\d)(?<!\d[ \u00a0\u202f])(?:%L?\d{1,2})+(?!\d|[$.:]?\d*[a-zA-Z])",
        ("%1", "%L1", "%n"),
    ),
    Syntax(
        "printf's percent sign",
        r"(?:(?<![\w.,])\d[\d.,]*)?%%(?:[cdfisuxX](?!\w)|(?!\w))",
        ("%%", "100%%", "%%d"),
    ),
    Syntax(
        "PHP, Perl, shells, Chrome",
        r"(?<![\w$])\$[A-Za-z_]\w*(?:->\w+(?:\(\))?|\[[^\]\s]{1,40}\]|::\w+)*\$?",
        ("$name", "$user->name", "$dogs[0]", "$COUNT$"),
    ),
    Syntax(
        "Laravel; names of emoji",
        rf"{_BEFORE_WORD}:(?:[a-z_]\w+|[A-Z][a-z]\w+|[A-Z][A-Z_]{{2,}}|[aijkmnqrtuwyz])"
        r"(?:(?=[^\w:])|\Z|:(?![\w:]))",
        (":count", ":Name", ":COUNT", ":smile:"),
    ),
    Syntax("Drupal", rf"{_BEFORE_WORD}@[a-z_]\w*(?![\w.@-]*@)", ("@count", "%name")),
    Syntax(
        "Vue",
        r"@(?:\.\w{1,20})?:(?:\([\w.]+\)|\w(?:[\w.]*\w)?)",
        ("@:dogs.many", "@:(dogs.many)", "@.lower:name"),
    ),
    Syntax(
        "Maketext of Perl",
        r"\[(?:_(?:\d{1,2}|\*)|(?:[*#]|[a-z]\w*),_\d{1,2}(?:,[^\[\]\n]{0,80})?)\]",
        ("[_1]", "[quant,_1,dog,dogs]"),
    ),
)


IN_TEXT = (
    rf"{_LETTER_BEFORE}(?:{'|'.join(syntax.pattern for syntax in SYNTAXES)})"
    rf"{_UNIT_AFTER}{_PERCENT}?"
)


PLACEHOLDER = re.compile(f"{TEMPLATE_TAG}|{IN_TEXT}|{_MARKUP_TAG}")


class ArgumentOrder(Enum):
    """What becomes of arguments that a translation puts in another order.

    NUMBERED: they get numbers, %2$s. OF_THE_SOURCE: they stay in the order of the source, as the
    format has no numbers. FREE: each says which argument it is.
    """

    NUMBERED = auto()
    OF_THE_SOURCE = auto()
    FREE = auto()


@dataclass(frozen=True, slots=True)
class GettextFormat:
    """A format of gettext, as `msgfmt --check` reads it.

    literals: how characters of the text are written, such as `%%`.
    line_break: a pattern of what ends a line, such as Java's `%n`.
    syntax: the row of `SYNTAXES` that is not read where the flag says `no-`.
    """

    pattern: str
    examples: tuple[str, ...]
    literals: Mapping[str, str] = field(default_factory=dict)
    order: ArgumentOrder = ArgumentOrder.FREE
    syntax: str = ""
    line_break: str = ""


_PRINTF = next(syntax.name for syntax in SYNTAXES if syntax.name.startswith("printf of"))


_PYTHON = next(syntax.name for syntax in SYNTAXES if syntax.name.startswith("Python"))


_QT = next(syntax.name for syntax in SYNTAXES if syntax.name.startswith("Qt"))


_NUMBERED, _IN_ORDER = ArgumentOrder.NUMBERED, ArgumentOrder.OF_THE_SOURCE


def _printf_format(
    types: str,
    *examples: str,
    flags: str = "-+ #0",
    argument: str = r"(?:\d{1,2}\$)?",
    order: ArgumentOrder = _NUMBERED,
    line_break: str = "",
) -> GettextFormat:
    pattern = rf"%{argument}[{flags}]*{_WIDTH}(?:{types})"
    return GettextFormat(pattern, examples, _PERCENTS, order, _PRINTF, line_break)


def _brace_format(*examples: str, pattern: str = _BRACED) -> GettextFormat:
    return GettextFormat(pattern, examples, _BRACES, ArgumentOrder.FREE, _PYTHON)


FORMATS: Mapping[str, GettextFormat] = {
    "c": _printf_format(_C_TYPES, "%s", "%2$d", "%<PRIu64>", "%I64d", flags="-+ #0'I"),
    "objc": _printf_format(f"{_C_TYPES}|@", "%@", "%1$@", "%lld", flags="-+ #0'I"),
    "c++": _brace_format("{}", "{0:d}", "{:>10}"),
    "python": _printf_format(
        "[hlL]?[diouxXeEfFgGcrsa]",
        *("%(name)s", "%d", "%-5.1f"),
        argument=r"(?:\([^()]*\))?",
        order=_IN_ORDER,
    ),
    "python-brace": _brace_format("{name}", "{0.attr}", "{x[0]!r:>10}"),
    "java": GettextFormat(
        rf"\{{\d{{1,3}}\s*(?:,{_INNER})?\}}", ("{0}", "{0,number,integer}"), {"'": "''"}
    ),
    "java-printf": _printf_format(
        "[bBhHsScCdoxXeEfgGaAn]|[tT][A-Za-z]",
        *("%1$tY", "%s", "%,d", "%<s"),
        flags="-+ #0,(",
        argument=r"(?:\d{1,2}\$|<)?",
        line_break="%n",
    ),
    "csharp": _brace_format("{0}", "{0,10:N2}", pattern=rf"\{{\d{{1,3}}{_INNER}\}}"),
    "javascript": _printf_format("[cdiouxXeEfFgGaAsjJoO]", "%s", "%2$d", "%j", flags="-+ #0'"),
    "scheme": GettextFormat(
        _TILDE, ("~a", "~d", "~10,2f"), {"~": "~~"}, _IN_ORDER, "", _TILDE_BREAK
    ),
    "lisp": GettextFormat(_TILDE, ("~a", "~:d", "~,2f"), {"~": "~~"}, _IN_ORDER, "", _TILDE_BREAK),
    "elisp": _printf_format("[sSdioxXeEfgGc]", "%s", "%2$d"),
    "librep": _printf_format("[sSdioxXeEfgGc]", "%s", "%2$d"),
    "rust": _brace_format("{}", "{name}", "{0:>5}"),
    "go": _printf_format(
        r"(?:\[\d{1,2}\])?[vTtbcdoOqxXUeEfFgGspw]",
        *("%v", "%+v", "%[1]d"),
        argument="",
        flags=r"-+ #0",
        order=_IN_ORDER,
    ),
    "ruby": GettextFormat(
        rf"%[-+ #0]*(?:\d{{1,2}}\$)?{_WIDTH}(?:<\w+>[-+ #0]*{_WIDTH})?[a-zA-Z]|%\{{\w+\}}",
        ("%s", "%2$d", "%<count>d", "%{name}"),
        _PERCENTS,
        _NUMBERED,
        _PRINTF,
    ),
    "sh": GettextFormat(r"\$[A-Za-z_]\w*|\$\{[^{}]*\}", ("$name", "${VAR}")),
    "sh-printf": _printf_format("[diouxXeEfFgGaAcsbq]", "%s", "%2$d", "%b"),
    "awk": _printf_format("[diouxXeEfFgGaAcs]", "%s", "%2$d"),
    "lua": _printf_format("[cdiouxXaAeEfFgGqs]", "%s", "%q", argument="", order=_IN_ORDER),
    "object-pascal": _printf_format(
        "[duxefgnmpsDUXEFGNMPS]",
        *("%s", "%0:s", "%-10.2f"),
        argument=r"(?:\d{0,2}:)?",
        flags="-",
        order=_IN_ORDER,
    ),
    "modula2": _printf_format("[diouxXeEfFgGcsb]", "%s", "%d", order=_IN_ORDER),
    "d": _printf_format(r"[a-zA-Z]|\((?:(?!%\)).)*%\)", "%s", "%2$d", "%(%s, %)", flags="-+ #0=,"),
    "ocaml": _printf_format(
        "[lnL]?[diuxXo]|[sScCfFeEgGhHbBat!]",
        *("%s", "%Ld", "%a"),
        argument="",
        flags="-+ #0_",
        order=_IN_ORDER,
    ),
    "smalltalk": GettextFormat(r"%(?:<[^<>|]*\|[^<>|]*>)?\d{1,2}", ("%1", "%<yes|no>1"), _PERCENTS),
    "qt": GettextFormat(r"%L?\d{1,2}", ("%1", "%L2", "%99"), {}, ArgumentOrder.FREE, _QT),
    "qt-plural": GettextFormat(r"%L?n", ("%n", "%Ln")),
    "kde": GettextFormat(r"%\d{1,3}", ("%1", "%12"), {}, ArgumentOrder.FREE, _QT),
    "kde-kuit": GettextFormat(r"%\d{1,3}", ("%1",), {}, ArgumentOrder.FREE, _QT),
    "boost": GettextFormat(
        rf"%(?:\d{{1,2}}%|\|[^|\s]{{1,20}}\||(?:\d{{1,2}}\$)?[-+ #0_=']*{_WIDTH}"
        r"(?:hh|ll|[hlLjzt])?[diouxXeEfFgGaAcCsSpnbB])",
        ("%1%", "%|2$d|", "%s"),
        _PERCENTS,
        _IN_ORDER,
        "Boost",
    ),
    "tcl": _printf_format("[hlL]?[diouxXeEfgGcs]", "%s", "%2$d"),
    "perl": _printf_format(
        "(?:hh|ll|[hlqLVzt])?[csdiouxXeEfFgGaAbBpnDUO]", "%s", "%2$d", "%vd", flags="-+ #0v"
    ),
    "perl-brace": GettextFormat(r"\{[A-Za-z_]\w*\}", ("{name}",)),
    "php": GettextFormat(
        rf"%(?:\d{{1,2}}\$)?(?:[-+ 0]|'[^%])*{_WIDTH}[bcdeEfFgGosuxX]",
        ("%s", "%1$s", "%'*10s"),
        _PERCENTS,
        _NUMBERED,
        _PRINTF,
    ),
    "gcc-internal": replace(
        _printf_format(
            rf"(?:ll?|w|z|t)?[a-zA-Z]|{_QUOTED_BY_GCC}",
            *("%s", "%qD", "%m", "%<if%>"),
            flags="-+ #0q",
        ),
        literals={**_PERCENTS, "'": "%'"},
    ),
    "gfc-internal": _printf_format(
        f"ll?[diu]|[diusceLCgp]|{_QUOTED_BY_GCC}|'", "%s", "%L", "%qs", "%<if%>", flags="q"
    ),
    "ycp": GettextFormat(r"%\d", ("%1", "%9"), _PERCENTS),
}


def gettext_formats(flags: Iterable[str]) -> list[GettextFormat]:
    """Return the formats that the flags of a message name, as `c-format`."""
    names = (flag.removesuffix("-format") for flag in flags if flag.endswith("-format"))
    return [FORMATS[name] for name in names if name in FORMATS]


@cache
def message_pattern(flags: frozenset[str] = frozenset()) -> str:
    """Return a pattern of the placeholders of a message that has these flags of gettext."""
    denied = (flag.removeprefix("no-") for flag in flags if flag.startswith("no-"))
    others = {format.syntax for format in gettext_formats(denied)}
    patterns = [syntax.pattern for syntax in SYNTAXES if syntax.name not in others]
    patterns.append(r"\{[^{}\n]{0,80}\}")  # in a message any braces are a placeholder's
    in_text = rf"{_LETTER_BEFORE}(?:{'|'.join(patterns)}){_UNIT_AFTER}{_PERCENT}?"
    formats = gettext_formats(flags)
    if not formats:
        return in_text
    signs = "".join({re.escape(sign) for format in formats for sign in format.literals})
    of_formats = "|".join(format.pattern for format in formats)
    percent = r"(?:%%|[ \u00a0\u202f]%%(?!\w))?" if "%" in signs else f"{_PERCENT}?"
    others_in_text = rf"(?![{signs}]){in_text}" if signs else in_text
    return rf"(?:{of_formats})(?:[A-Za-z]{{1,3}}(?!\w))?{percent}|{others_in_text}"
