"""WebVTT: the words of cues are translated; all else stays."""

from pathlib import Path

import pytest

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.shouting import shouted_file

FILE = """WEBVTT - a title
Kind: captions

NOTE a note
of two lines

STYLE
::cue(b) { color: red }

REGION
id:left width:40%

intro
00:01.000 --> 00:02.500 line:0 align:start
<v Ann Lee>the dog &amp; the cat
run in the snow.</v>
NOTE as spoken

00:00:03.000 --> 00:00:04.000
<v Ann>hello!
<v.loud Bob>where <c.red>is</c> <00:00:03.500>it?
00:05.000 --> 00:06.000
- a &lt; b
- no

after the cue
"""
WRITTEN = (
    FILE.replace(
        "the dog &amp; the cat\nrun in the snow.", "THE DOG &amp; THE CAT\nRUN IN THE SNOW."
    )
    .replace("NOTE as spoken", "NOTE AS SPOKEN")
    .replace("hello!", "HELLO!")
    .replace("where <c.red>is</c> <00:00:03.500>it?", "WHERE <c.red>IS</c> <00:00:03.500>IT?")
    .replace("- a &lt; b\n- no", "- A &lt; B\n- NO")
)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_cues(tmp_path: Path, line_end: str) -> None:
    path, target = tmp_path / "a.vtt", tmp_path / "b.vtt"
    path.write_bytes(FILE.replace("\n", line_end).encode())

    fragments = shouted_file(path, target)

    assert target.read_bytes().decode() == WRITTEN.replace("\n", line_end)
    assert fragments[0] == "the dog &amp; the cat run in the snow."
    assert fragments[3] == 'where <g id="4">is</g> <x id="8"/>it?'


def test_signs_of_a_translation_are_escaped(tmp_path: Path) -> None:
    path, target = tmp_path / "a.vtt", tmp_path / "b.vtt"
    path.write_text("WEBVTT\n\n00:01.000 --> 00:02.000\na dog")
    read_document(path, path.name).write(["a &lt;b&gt; --&gt; &amp;c"], target, "fr")

    assert target.read_text().endswith("\na &lt;b&gt; --&gt; &amp;c")


@pytest.mark.parametrize("text", ["", "WEBVTTX\n", "00:01.000 --> 00:02.000\na dog\n"])
def test_no_webvtt(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.vtt"
    path.write_text(text)

    with pytest.raises(RequestError, match="WEBVTT"):
        read_document(path, path.name)
