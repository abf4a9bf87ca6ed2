"""Formats of plain text: every character that is not translated stays."""

import re
from pathlib import Path

import polib
import pytest
from lxml import etree

from serving.documents.formats.po import plural_forms
from serving.documents.formats.subtitles import CueLines
from tests.serving.documents.shouting import shout_file


def shout(tmp_path: Path, name: str, text: str | bytes) -> tuple[list[str], bytes]:
    path, target = tmp_path / name, tmp_path / f"out-{name}"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return shout_file(path, target), target.read_bytes()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_txt_in_its_own_encoding(tmp_path: Path, encoding: str) -> None:
    text = "Der Hund läuft über die Straße.\r\n\r\n  Schöne Grüße aus Köln, Jürgen.\n42\n"

    fragments, written = shout(tmp_path, "a.txt", text.encode(encoding))

    assert fragments == ["Der Hund läuft über die Straße.", "Schöne Grüße aus Köln, Jürgen."]
    expected = "DER HUND LÄUFT ÜBER DIE STRASSE.\r\n\r\n  SCHÖNE GRÜSSE AUS KÖLN, JÜRGEN.\n42\n"
    assert written.decode(encoding) == expected


def test_txt_whose_sentences_go_on_in_the_next_line(tmp_path: Path) -> None:
    text = "A dog runs in\nthe snow. It\n  barks.\n- one\n- two\n\nend\r\n"

    fragments, written = shout(tmp_path, "a.txt", text.replace("\r", ""))

    assert fragments == ["A dog runs in\nthe snow. It\n  barks.", "one", "two", "end"]
    assert written.decode() == text.replace("\r", "").upper()
    fragments, written = shout(tmp_path, "a.txt", text)
    assert len(fragments) == 6  # lines that end in several ways are not joined
    assert written.decode() == text.upper()


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("a) Use a bowl.", "Use a bowl."),
        (" (iv) Mix it", "Mix it"),
        ("12. Wait", "Wait"),
        ("[ ] Buy bread", "Buy bread"),
        ("One\ttwo\tb) three", 'One<br id="2"/>two<br id="4"/><x id="-1"/>three'),
        ("A) or b) is right", "or b) is right"),
        ("a dog", "a dog"),
    ],
)
def test_marks_of_lists(tmp_path: Path, line: str, fragment: str) -> None:
    """A model makes words of them."""
    fragments, written = shout(tmp_path, "a.txt", line)

    assert fragments == [fragment]
    begin = line[: len(line) - len(fragment)] if "<" not in fragment else ""
    expected = begin + fragment.upper() if begin else line.upper().replace("B) T", "b) T")
    assert written.decode() == expected


def test_columns_of_txt(tmp_path: Path) -> None:
    text = "Name\tAge \t City\n\tA dog   is old\nA cat  is here.\n"

    fragments, written = shout(tmp_path, "a.txt", text)

    assert fragments == [
        'Name<br id="2"/>Age<br id="4"/>City',
        'A dog<br id="2"/>is old',
        "A cat  is here.",
    ]
    assert written.decode() == text.upper()


def test_txt_with_what_xml_cannot_hold(tmp_path: Path) -> None:
    fragments, written = shout(tmp_path, "a.txt", "a < b & c\x0b d")

    assert fragments == ["a &lt; b &amp; c  d"]
    assert written == b"A < B & C  D"


def test_html(tmp_path: Path) -> None:
    page = """<!doctype html><html><head><title>A title</title>
<script>var a = "hello";</script></head>
<body><p>Hello <b class=x>bold
   words</b> &amp; more<br>next <code>x</code> line <img src=a> end.
<p>Unclosed <i>para <a href="x">link</i></a><span translate=no>Keep <b>this</b></span> too
<pre>code here</pre><ul><li>One<li>Two</ul><!-- comment --></body></html>
"""
    fragments, written = shout(tmp_path, "a.html", page)

    assert fragments == [
        "A title",
        'Hello <g id="2">bold words</g> &amp; more <x id="6"/> next <k id="8">x</k> line'
        ' <x id="10"/> end.',
        'Unclosed <g id="2">para <x id="4"/>link</g><x id="7"/><k id="8">Keep this</k> too',
        "One",
        "Two",
    ]
    assert (
        written.decode()
        == """<!doctype html><html lang="fr"><head><title>A TITLE</title>
<script>var a = "hello";</script></head>
<body><p>HELLO <b class=x>BOLD WORDS</b> &amp; MORE<br>NEXT <code>x</code> LINE <img src=a> END.
<p>UNCLOSED <i>PARA <a href="x">LINK</i></a><span translate=no>Keep <b>this</b></span> TOO
<pre>code here</pre><ul><li>ONE<li>TWO</ul><!-- comment --></body></html>
"""
    )


def test_html_in_an_old_encoding(tmp_path: Path) -> None:
    page = '<meta charset="iso-8859-1"><p>caf\xe9 &euro; 5</p>'.encode("latin-1")

    _, written = shout(tmp_path, "a.htm", page)

    assert written.decode("latin-1") == '<meta charset="iso-8859-1"><p>CAFÉ &euro; 5</p>'


MARKDOWN = """---
title: Front
---
# A *heading* here

> Quoted **bold and [a link](http://x.y/z "t")** text
> over two lines.\x20\x20
> After a break.

- item `code` one \\* two &amp; three
- [ref][r] and ![img](a.png) <b>raw</b> <http://auto.link>

```
code block
```

| A head | b |
|---|---|
| cell one | x \\| y z |

Footnote[^1].

[r]: http://ref
"""
SHOUTED_MARKDOWN = """---
title: FRONT
---
# A *HEADING* HERE

> QUOTED **BOLD AND [A LINK](http://x.y/z "T")** TEXT OVER TWO LINES.\x20\x20
> AFTER A BREAK.

- ITEM `code` ONE \\* TWO &amp; THREE
- [REF][r] AND ![IMG](a.png) <b>RAW</b> <http://auto.link>

```
code block
```

| A HEAD | B |
|---|---|
| CELL ONE | X \\| Y Z |

FOOTNOTE[^1].

[r]: http://ref
"""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_markdown(tmp_path: Path, line_end: str) -> None:
    _, written = shout(tmp_path, "a.md", MARKDOWN.replace("\n", line_end))

    assert written.decode() == SHOUTED_MARKDOWN.replace("\n", line_end)


SUBTITLES = """1
00:00:01,000 --> 00:00:02,000
<i>This is a sentence
that is broken.</i>

2
00:00:03,000 --> 00:00:04,000 X1:1
- Who are you?
- {\\an8}I am me.

3
00:00:05,000 --> 00:00:06,000
1984
"""


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_srt(tmp_path: Path, line_end: str) -> None:
    fragments, written = shout(tmp_path, "a.srt", SUBTITLES.replace("\n", line_end))

    assert fragments == [
        "This is a sentence that is broken.",
        "Who are you?",
        "I am me.",
    ]
    expected = SUBTITLES
    for line in ("This is a sentence", "that is broken.", "Who are you?", "I am me."):
        expected = expected.replace(line, line.upper())
    assert written.decode() == expected.replace("\n", line_end)


CUES = [
    ("1\n#\nA dog is\nin the snow.\n\n2\n@\nBye!\n", ["A dog is in the snow.", "Bye!"]),
    ("1\n#\nA dog.\n2\n@\nA cat.\n", ["A dog.", "A cat."]),
    ("#\nA dog.\n\n@\nA cat.", ["A dog.", "A cat."]),
    ("1\n#\nA dog\n\nruns.\n\n2\n@\n\nA cat.\n\n\n", ["A dog", "runs.", "A cat."]),
    ("1\n#\n1984\n\n2\n@\nin\n1984\n3\n#\n", ["in 1984"]),
    ("\n\n1\n#\n{\\an8}<i>A dog</i>\n", ["A dog"]),
    ("1\n#\nStop!\nWho is it?\n", ["Stop!", "Who is it?"]),
    ("1\n#\n- A dog\nruns.\n- No.\n", ["A dog runs.", "No."]),
    ("1\n#\n♪ A dog\n♪ A cat\n", ["♪ A dog", "♪ A cat"]),
    ("\ufeff1\n#\nA dog", ["A dog"]),
    ("1\n#\n[Door opens]\nCome in\nplease.\n", ["[Door opens]", "Come in please."]),
    ("1\n#\nHe is\n[Dog barks]\n", ["He is", "[Dog barks]"]),
    ("1\n#\n(Bell)\n(Laughing) Come in!\n", ["(Bell)", "(Laughing) Come in!"]),
    ("1\n#\nThe town\n(in the south) is big.\n", ["The town (in the south) is big."]),
]
TIMINGS = [
    ("00:00:01,000 --> 00:00:02,500", "00:00:03,000 --> 00:00:04,000"),
    ("00:01.000 --> 00:02.500 align:start", "1:00:03.000-->1:00:04.000 X1:40 X2:600"),
    ("0:0:1,0  -->  0:0:2,5", " 00 : 00 : 03,000 -> 00:00:04"),
]


@pytest.mark.parametrize("timings", TIMINGS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r\r\n", "\r"])
@pytest.mark.parametrize(("text", "expected"), CUES)
def test_cues_as_players_read_them(
    tmp_path: Path, text: str, expected: list[str], line_end: str, timings: tuple[str, str]
) -> None:
    def timed(text: str) -> str:
        return text.replace("\n", line_end).replace("#", timings[0]).replace("@", timings[1])

    fragments, written = shout(tmp_path, "a.srt", timed(text))

    assert fragments == expected
    loud = re.sub(r"\{.*?\}|<.*?>|\w+", lambda m: m[0] if m[0][0] in "{<" else m[0].upper(), text)
    assert written.decode() == timed(loud)


def test_a_cue_is_broken_at_a_like_place() -> None:
    cue = CueLines(0, "One two three four five\r\nsix.")

    assert (
        cue.apply_translation("Un deux trois quatre cinq six ?")
        == "Un deux trois quatre cinq\r\nsix ?"
    )
    assert cue.apply_translation("Un") == "Un"
    tagged = CueLines(0, "<i>One two</i>\n<i>three four five?</i>")
    translation = '<g id="2">Un deux trois quatre</g> <g id="8">cinq ?</g>'
    assert tagged.apply_translation(translation) == "<i>Un deux trois quatre</i>\n<i>cinq ?</i>"


def test_po(tmp_path: Path) -> None:
    source = polib.POFile()
    source.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Project-Id-Version": "x"}
    source.append(polib.POEntry(msgid="Hello %s, <b>you</b>\n", flags=["c-format"], msgctxt="c"))
    plural = {"msgid": "%d file", "msgid_plural": "%d files", "msgstr_plural": {0: "", 1: ""}}
    source.append(polib.POEntry(**plural))
    source.append(polib.POEntry(msgid="Done", msgstr="Fini", comment="stays"))
    source.append(polib.POEntry(msgid="Open", msgstr="Ouvre", flags=["fuzzy"], previous_msgid="O"))
    source.append(polib.POEntry(msgid="old", msgstr="", obsolete=True))

    fragments, written = shout(tmp_path, "a.po", str(source))

    assert fragments == [
        'Hello <k id="2">%s</k>, <g id="4">you</g>',
        '<k id="2">%d</k> file',
        '<k id="2">%d</k> files',
        "Open",
    ]
    hello, files, done, opened, old = polib.pofile(written.decode())
    assert (hello.msgstr, hello.msgctxt) == ("HELLO %s, <b>YOU</b>\n", "c")
    forms = plural_forms("fr")  # two or three: newer Babel has one for millions
    assert files.msgstr_plural == {
        0: "%d FILE",
        **dict.fromkeys(range(1, forms.num_forms), "%d FILES"),
    }
    assert (done.msgstr, done.comment) == ("Fini", "stays")
    assert (opened.msgstr, opened.flags, opened.previous_msgid) == ("OPEN", ["fuzzy"], "O")
    assert (old.obsolete, old.msgstr) == (1, "")
    assert polib.pofile(written.decode()).metadata == {
        **source.metadata,
        "Language": "fr",
        "Plural-Forms": forms.rule,
    }


XLIFF_1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en" original="a" datatype="plaintext"><body>
<trans-unit id="1"><source>Hello <g id="a">bold <x id="b"/></g> &amp; more</source></trans-unit>
<trans-unit id="2"><source>Done</source><target>Fini</target></trans-unit>
<trans-unit id="3" translate="no"><source>Not</source></trans-unit>
<trans-unit id="4"><source>Code <ph id="1">{0}</ph> it</source><target state="new"/></trans-unit>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en">
<file id="f"><unit id="1"><segment><source>Hello <pc id="1">bold</pc> w<ph id="2"/></source>
</segment><segment state="final"><source>Done</source><target>Fini</target></segment></unit>
<unit id="2" translate="no"><segment><source>Not</source></segment></unit></file></xliff>"""


def targets(written: bytes) -> list[str]:
    targets = etree.fromstring(written).iter("{*}target")
    return [etree.tostring(target, encoding="unicode", with_tail=False) for target in targets]


def test_xliff_1(tmp_path: Path) -> None:
    _, written = shout(tmp_path, "a.xlf", XLIFF_1)

    space = ' xmlns="urn:oasis:names:tc:xliff:document:1.2"'
    state = ' state="needs-review-translation" state-qualifier="mt-suggestion"'
    assert [target.replace(space, "") for target in targets(written)] == [
        f'<target{state}>HELLO <g id="a">BOLD <x id="b"/></g> &amp; MORE</target>',
        "<target>Fini</target>",
        f'<target{state}>CODE <ph id="1">{{0}}</ph> IT</target>',
    ]
    assert b'target-language="fr"' in written
    assert b'<source>Hello <g id="a">bold <x id="b"/></g> &amp; more</source>' in written


def test_xliff_2(tmp_path: Path) -> None:
    _, written = shout(tmp_path, "a.xliff", XLIFF_2)

    space = ' xmlns="urn:oasis:names:tc:xliff:document:2.0"'
    assert [target.replace(space, "") for target in targets(written)] == [
        '<target>HELLO <pc id="1">BOLD</pc> W<ph id="2"/></target>',
        "<target>Fini</target>",
    ]
    assert b'trgLang="fr"' in written and written.count(b'state="translated"') == 1


def test_an_empty_page(tmp_path: Path) -> None:
    assert shout(tmp_path, "a.html", "") == ([], b"")


@pytest.mark.parametrize("section", ["<![if IE]>", "<![CD-->", "<![CDATA[x]]>", "<![>", "<!["])
def test_marked_sections_of_a_page(tmp_path: Path, section: str) -> None:
    fragments, written = shout(tmp_path, "a.html", f"<p>Before</p>{section}<p>after</p>")

    assert fragments[0] == "Before"
    assert written.startswith(f"<p>BEFORE</p>{section}".encode())


def test_markdown_with_carriage_returns_alone(tmp_path: Path) -> None:
    fragments, written = shout(tmp_path, "a.md", "# Head\r\rone\rtwo\r\r- three\r")

    assert fragments == ["Head", "one two", "three"]
    assert written == b"# HEAD\r\rONE TWO\r\r- THREE\r"


def test_a_page_of_spaces_takes_no_time(tmp_path: Path) -> None:
    fragments, _ = shout(tmp_path, "a.html", "<p>one" + " " * 200_000 + "two</p>")

    assert len(fragments) == 1
