"""The placeholders of each framework are found whole; prose has none."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import polib
import pytest

from serving.documents.formats.registry import read_document
from serving.text.markup.html_reader import read_html
from serving.text.markup.markdown_tokens import tokenize_plain_text
from serving.text.markup.placeholders import (
    FORMATS,
    IN_TEXT,
    PLACEHOLDER,
    SYNTAXES,
    message_pattern,
)
from serving.text.markup.protection import Protection
from serving.text.markup.tokens import Role, text_tokens
from serving.text.replacement import placeholder_pattern
from tests.serving.text.markup.fake_model import HTML

PAGE = Path(__file__).parents[4] / "docs" / "text.md"
EXAMPLES = [(syntax.name, example) for syntax in SYNTAXES for example in syntax.examples]
OF_FORMATS = [(name, example) for name, row in FORMATS.items() for example in row.examples]
PLACES = ["{} dogs are here.", "A dog {} is here.", "The dogs: {}", "A dog ({}) runs.", "Is it {}?"]


def find_texts(text: str, role: Role = Role.NON_TRANSLATABLE) -> list[str]:
    tokens = Protection(None, True, "en", "fr").protect(text_tokens(text, False, True))
    return [token.raw for token in tokens if token.role is role]


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_a_placeholder_is_found_whole(name: str, example: str) -> None:
    for place in PLACES:
        text = place.replace("{}", example)
        assert find_texts(text)[0].strip("()") == example.strip("()"), text
        assert [match.group() for match in PLACEHOLDER.finditer(text)] == [example], text


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("%s's dog and %(name)s’s", ["%s", "%(name)s"]),
        ("%d%% of {n}% or {n} % and %1%.", ["%d%%", "{n}%", "{n} %", "%1%"]),
        ("%d% done, {used}%, %1$d%%", ["%d%", "{used}%", "%1$d%%"]),
        ("%dpx, {n}th, v%s and v{0}", ["%dpx", "{n}th", "v%s", "v{0}"]),
        ("%1%2 and %s%s", ["%1%2", "%s", "%s"]),
        ("from :min-:max or :min/:max", [":min", ":max", ":min", ":max"]),
        ("%Y-%m-%d at %H:%M", ["%Y", "%m", "%d", "%H", "%M"]),
        ("%5.1f %% of %-5s|%+d", ["%5.1f %%", "%-5s", "%+d"]),
        ("{0:yyyy-MM-dd HH:mm} and {x[0]!r:>10}", ["{0:yyyy-MM-dd HH:mm}", "{x[0]!r:>10}"]),
        ("${VAR:-a b} in ${x:-{y}}", ["${VAR:-a b}", "${x:-{y}}"]),
        ("[_1], [quant,_1,a b,c] and [*,_2]", ["[_1]", "[quant,_1,a b,c]", "[*,_2]"]),
        ("%<n>.2f%% of %-10<n>s", ["%<n>.2f%%", "%-10<n>s"]),
        ("See :py:class:`x`, `a b`__ or [a.b]_.", [":py:class:`x`", "`a b`__", "[a.b]_"]),
        ("%TEMP%\\new and %a%b", ["%TEMP%\\new", "%a", "%b"]),
        ("Loading %d%%... %d%%, {n}%... and {n}%…", ["%d%%", "%d%%", "{n}%", "{n}%"]),
        ("Use %%d, %%s or 50%%", ["%%d", "%%s", "50%%"]),
    ],
)
def test_what_belongs_to_a_placeholder(text: str, units: list[str]) -> None:
    assert re.findall(IN_TEXT, text) == units


@pytest.mark.parametrize(
    "text",
    [
        *("50 % discount", "50% discount", "a 5% increase", "100% sure", "5% of dogs", "20%-30%"),
        *("what % of dogs", "10 % d'eau", "10 %d'eau", "3 %s", "The % is high.", "I am 100 % in"),
        *("at 10:count", "12:30", "Note: count", "Note : count", "3:one", "a:b", "std::map"),
        *(":D", ":P and :o", ":)", ":-)", "he: no", "[sic]", "[1]", "[a dog]", "(a)", "{a dog}"),
        *("$5", "$5 and $6", "US$ 5", "5$ each", "$3.2 million", "a | b | c", "|x|y|", "a ~ b"),
        *("me@home.org", "it's a `dog`", "{ this or that }", "Re: dogs", "dogs: two", "%"),
        *("Tom & Jerry", "C:\\dogs", "a_b", "dog's", "J. R. Smith", "... and so on", "etc.. then"),
    ],
)
def test_prose_has_no_placeholder(text: str) -> None:
    assert re.findall(IN_TEXT, text) == []


@pytest.mark.parametrize("text", ["%<count>d dogs", "%<PRIu64> dogs", "%-5<n>s and %<PRId32> dogs"])
def test_angle_brackets_of_placeholders_are_no_tags(text: str) -> None:
    tokens = [*read_html(f"<p>{text}, 50%<b>d</b></p>", HTML)]
    assert text in "".join(token.text for token in tokens)
    assert [token.raw for token in tokens if token.role is Role.OPEN] == ["<b>"]


def test_exact_texts_are_no_marks_of_markdown() -> None:
    text = "__count__ dogs in [count] __houses__"
    tokens = [*tokenize_plain_text(text, True, True, placeholder_pattern(["__count__", "[count]"]))]
    assert [token.raw for token in tokens if token.role is Role.OPEN] == ["__"]
    assert "".join(token.text for token in tokens) == "__count__ dogs in [count] houses"


def test_tags_of_templates_are_marks_and_alternatives_part_a_text() -> None:
    text = "{% if a %}A dog{% else %}A cat{% endif %} {{#if b}}runs{{else}}sits{{/if}} <% x %>"
    marks = ["{% if a %}", "{% endif %}", "{{#if b}}", "{{/if}}", "<% x %>"]
    assert (find_texts(text, Role.POINT), find_texts(text, Role.BREAK)) == (
        marks,
        ["{% else %}", "{{else}}"],
    )
    assert find_texts(".. note:: A dog", Role.BREAK) == [".. note::"]


@pytest.mark.parametrize(("name", "example"), OF_FORMATS)
def test_a_placeholder_of_a_format_is_found_whole(name: str, example: str) -> None:
    pattern = message_pattern(frozenset([f"{name}-format"]))
    for place in PLACES:
        text = place.replace("{}", example)
        assert [match.group() for match in re.finditer(pattern, text)] == [example], text


@pytest.mark.parametrize(
    ("flags", "text", "units"),
    [
        ("c-format", "50% d and 10 %s of {n}", ["% d", "%s", "{n}"]),
        ("c-format", "%s and %1 or %(a)s", ["%s"]),
        ("c-format", "%d %% of %s %%", ["%d %%", "%s %%"]),
        ("gcc-internal-format", "%<if%>, %<%s%> or %qs", ["%<if%>", "%<", "%s", "%>", "%qs"]),
        ("qt-format", "%1 is 50% of %n dogs, 20%s", ["%1", "%n"]),
        ("no-c-format", "%s of %1 and {a}", ["%1", "{a}"]),
        ("python-brace-format, no-c-format", "{a!r} %s", ["{a!r}"]),
        ("lisp-format", "~a has ~2,1f of {a}", ["~a", "~2,1f", "{a}"]),
        ("fuzzy, kde-format", "%1 of %12", ["%1", "%12"]),
    ],
)
def test_flags_say_which_syntax_is_meant(flags: str, text: str, units: list[str]) -> None:
    pattern = message_pattern(frozenset(flags.split(", ")))
    assert [match.group() for match in re.finditer(pattern, text)] == units


HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


def french(fragment: str) -> str:
    """Put the last placeholder first, with signs that formats write in other ways."""
    *_, last = re.findall("<k[^>]*>[^<]*</k>", fragment)
    return f"l'eau à 50 % ~ {last} {fragment.replace(last, '', 1)}"


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="gettext is not installed")
@pytest.mark.parametrize("name", FORMATS)
def test_msgfmt_accepts_the_translations(name: str, tmp_path: Path) -> None:
    examples = FORMATS[name].examples
    texts = [text for example in examples for text in (f"A dog {example} runs.", f"{example} dogs")]
    same_argument = [f"A dog {examples[0]} and {examples[0]}"]
    source, target = tmp_path / "a.po", tmp_path / "b.po"
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    file.extend(
        polib.POEntry(msgid=text, flags=[f"{name}-format"]) for text in [*texts, *same_argument]
    )
    source.write_text(str(file))
    document = read_document(source, "a.po", "en")
    document.write([french(fragment) for fragment in document.fragments], target, "fr")
    target.write_text(target.read_text().replace("#, fuzzy, ", "#, "))
    command = ["msgfmt", "--check-format", f"--output-file={os.devnull}", str(target)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert all("eau" in entry.msgstr for entry in polib.pofile(str(target)))


def test_the_page_has_all_syntaxes_and_formats() -> None:
    page = PAGE.read_text(encoding="utf-8").replace("\\|", "|")
    examples = [example for syntax in SYNTAXES for example in syntax.examples]
    assert [text for text in [*examples, *FORMATS, *dict(EXAMPLES)] if text not in page] == []
