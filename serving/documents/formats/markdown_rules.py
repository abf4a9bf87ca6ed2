"""Extend a Markdown parser by common syntax outside of CommonMark: directives, alerts, task lists,
footnotes, definitions, formulas, and marks of template engines.

New block tokens are `directive` and `formula`, which stay as they are; within text
`non_translatable` does. The title of a directive is text.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from serving.text.markup.placeholders import IN_TEXT

_INTERRUPTS: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}

# Lines of MkDocs, Docusaurus, Pandoc, MyST, Liquid, Hugo and MDX. Groups match their titles.
_DIRECTIVE = re.compile(
    r"""
    (?: :{3,}\s*\{?[\w-]*\}?\s*(?:\{[^{}]*\}\s*)?(?:\[(?P<label>[^\]]+)\]|(?P<title>[^\s{].*?))?
        (?:\s*\{[^{}]*\})?\s*
    | (?:!!!|\?\?\?\+?)\s*[\w-]+(?:\s+[\w-]+)*(?:\s+"(?P<quoted>[^"]+)")?\s*
    | ===[!+]?\s*"(?P<tab>[^"]+)"\s*
    | \{%.*%\}\s* | \{\{[<%].*[%>]\}\}\s* | <%.*%>\s* | \{:.*\}\s* | \[\[?_?TOC_?\]\]?\s*
    | \*\[[^\]]+\]:.*
    | (?:import|export)\s.*\sfrom\s+['"][^'"]+['"];?\s* | import\s+['"][^'"]+['"];?\s*
    | export\s+(?:const|default|function|let|var)\s.*
    )\Z
    """,
    re.VERBOSE,
)
_OPTION = re.compile(r":[\w-]+:(?:\s.*)?\Z")  # of a directive, in the line below it
_INDENTED = re.compile(r"(?:!!!|\?\?\?|===)")
_FENCE = re.compile(
    r"(?P<fence>`{3,}|~{3,})\s*\{(?:admonition|attention|caution|danger|details|dropdown|error|hint"
    r"|important|note|seealso|tip|warning)\}\s*(?P<title>.*?)\s*\Z"
)
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:[ \t]*")
_DEFINITION = re.compile(r":[ \t]+(?=\S)")
_FORMULA_ENDS = {"$$": "$$", "\\[": "\\]", "{/": "*/}"}  # the last is an MDX comment
_MOST_LINES_OF_FORMULA = 200

_NON_TRANSLATABLE = re.compile(
    r"""
    (?P<word> \{\{.*?\}\} | \$\$.+?\$\$ | (?<![\w$%])\$(?=[^\s$])[^$\n]*?(?<=[^\s\\])\$(?!\w)
    | \\\(.+?\\\)
    | \[\[[^\[\]\n]+\]\] )
    | \{%.*?%\} | <%.*?%> | \{/\*.*?\*/\} | \{[\#.:][^{}\n]*\} | \{[\w-]+\}(?=`) | \[\^[^\]\s]+\]
    | ==(?=[^\s=]) | (?<=[^\s=])==
    | (?<![\w:]):[A-Za-z][\w+-]*:(?!\w)
    """,
    re.VERBOSE | re.DOTALL,
)
# Dollars begin formulas, and braces of one sign attributes and comments; `x` has a role before it.
_PLACEHOLDER = re.compile(rf"(?=%|[$#]\{{|\$\(|\{{(?![#.:/%]))(?P<word>{IN_TEXT})(?!`)")
_LONGEST_NON_TRANSLATABLE = 2_000  # characters
_ALERT = re.compile(r"\[![\w-]+\][+-]?[ \t]*\n?")
_TASK = re.compile(r"\[[ xX]\][ \t]+")
_SHIFTED = re.compile(r"\^(?P<raised>[^\s^\\]{1,30})\^|(?<!~)~(?P<lowered>[^\s~\\]{1,30})~(?!~)")


def add_rules(parser: MarkdownIt) -> MarkdownIt:
    block, inline = parser.block.ruler, parser.inline.ruler
    block.before("fence", "directive", _directive, _INTERRUPTS)
    block.before("fence", "fenced_directive", _fenced_directive, _INTERRUPTS)
    block.before("fence", "formula", _formula, _INTERRUPTS)
    block.before("reference", "footnote", _footnote, _INTERRUPTS)
    block.before("reference", "definition", _definition, _INTERRUPTS)
    inline.before("escape", "non_translatable", _non_translatable)
    return parser


def _line(state: StateBlock, line: int) -> str | None:
    """Return a line without its indentation; None if it is indented as code."""
    if state.is_code_block(line):
        return None
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _push_non_translatable(state: StateBlock, kind: str, start: int, end: int) -> None:
    state.push(kind, "", 0).map = [start, end]
    state.line = end


def _push_title(state: StateBlock, text: str, line: int) -> None:
    token = state.push("inline", "", 0)
    token.content, token.map, token.children = text, [line, line + 1], []
    token.meta = {"is_title": True}


def _directive(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    text = _line(state, start)
    match = _DIRECTIVE.match(text) if text else None
    if text is None or match is None:
        return False
    if silent:
        return True
    _push_non_translatable(state, "directive", start, _after_options(state, start + 1, end))
    if title := next(filter(None, match.groupdict().values()), ""):
        _push_title(state, title, start)
    if _INDENTED.match(text):
        _tokenize_indented(state, state.line, end)
    return True


def _after_options(state: StateBlock, line: int, end: int) -> int:
    while line < end and (text := _line(state, line)) and _OPTION.match(text):
        line += 1
    return line


def _tokenize_indented(state: StateBlock, start: int, end: int) -> None:
    """Parse lines that are indented by four more columns."""
    state.blkIndent += 4
    state.line = start
    _tokenize(state, start, end)
    state.blkIndent -= 4


def _tokenize(state: StateBlock, start: int, end: int) -> None:
    """Parse lines one level deeper, because the parser has a limit of levels."""
    state.level += 1
    state.md.block.tokenize(state, start, end)
    state.level -= 1


def _fenced_directive(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse the text in a fence that is a note or the like in MyST."""
    text = _line(state, start)
    match = _FENCE.match(text) if text else None
    if match is None:
        return False
    if silent:
        return True
    closing = re.compile(rf"{re.escape(match['fence'])}+\s*\Z")
    last = start + 1
    while last < end and not closing.match(_line(state, last) or ""):
        last += 1
    _push_non_translatable(state, "directive", start, _after_options(state, start + 1, last))
    if match["title"]:
        _push_title(state, match["title"], start)
    line_max, state.lineMax = state.lineMax, last
    _tokenize(state, state.line, last)
    state.lineMax = line_max
    _push_non_translatable(state, "directive", last, min(last + 1, end))
    return True


def _formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    text = (_line(state, start) or "").rstrip()
    closing = _FORMULA_ENDS.get(text[:2])
    if closing is None:
        return False
    last: int | None = start
    if len(text) < 4 or not text.endswith(closing):
        lines = range(start + 1, min(end, start + _MOST_LINES_OF_FORMULA))
        ends = (
            n
            for n in lines
            if state.src[state.bMarks[n] : state.eMarks[n]].rstrip().endswith(closing)
        )
        last = None if closing in text[2:] else next(ends, None)
    if last is None:
        return False
    if not silent:
        _push_non_translatable(state, "formula", start, last + 1)
    return True


def _footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    text = _line(state, start)
    match = _FOOTNOTE.match(text) if text else None
    if match is None:
        return False
    if not silent:
        state.push("directive", "", 0).map = [start, start + 1]
        _tokenize_first_line_from(state, start, end, match.end())
    return True


def _definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse the definition of the term in the line before."""
    text = _line(state, start)
    match = _DEFINITION.match(text) if text else None
    if match is None or start == 0 or state.isEmpty(start - 1):
        return False
    if not silent:
        state.push("directive", "", 0).map = [start, start + 1]
        _tokenize_first_line_from(state, start, end, match.end())
    return True


def _tokenize_first_line_from(state: StateBlock, start: int, end: int, offset: int) -> None:
    """Parse the rest of a line after a mark, and the indented lines below it."""
    old = state.bMarks[start], state.tShift[start], state.sCount[start]
    state.bMarks[start] += state.tShift[start] + offset
    state.tShift[start] = 0
    state.sCount[start] = state.blkIndent + 4
    _tokenize_indented(state, start, end)
    state.bMarks[start], state.tShift[start], state.sCount[start] = old


def _non_translatable(state: StateInline, silent: bool) -> bool:
    src, place = state.src, state.pos
    match = None
    if place == 0:
        match = _ALERT.match(src) or _TASK.match(src)
    if match is None and (shifted := _SHIFTED.match(src, place, state.posMax)):
        kind, match = "shifted", shifted
    else:
        end = min(state.posMax, place + _LONGEST_NON_TRANSLATABLE)
        match = (
            match or _PLACEHOLDER.match(src, place, end) or _NON_TRANSLATABLE.match(src, place, end)
        )
        kind = "non_translatable"
    if match is None:
        return False
    if not silent:
        token = state.push(kind, "", 0)
        token.content = match.group()
        token.meta = {"is_word": bool(match.groupdict().get("word"))}
    state.pos = match.end()
    return True
