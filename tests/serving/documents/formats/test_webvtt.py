"""WebVTT: the words of cues are translated; all else stays."""

from pathlib import Path

import pytest

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.shouting import shout_file

# What is in capitals after a translation that shouts is between percent signs.
MARKED = """WEBVTT - a title

NOTE a note
of two lines

STYLE
::cue(b) { color: red }

intro
00:01.000 --> 00:02.500 line:0 align:start
<v Ann Lee>%the dog% &amp; %the cat
run in the snow.%</v>

00:00:03.000 --> 00:00:04.000
<v Ann>%hello!%
<v.loud Bob>%where% <c.red>%is%</c> <00:00:03.500>%it?%
00:05.000 --> 00:06.000
- %a% &lt; %b%

after the cue
"""
FILE = MARKED.replace("%", "")


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_cues(tmp_path: Path, line_end: str) -> None:
    path, target = tmp_path / "a.vtt", tmp_path / "b.vtt"
    path.write_bytes(FILE.replace("\n", line_end).encode())

    fragments = shout_file(path, target)

    parts = enumerate(MARKED.split("%"))
    expected = "".join(part.upper() if n % 2 else part for n, part in parts)
    assert target.read_bytes().decode() == expected.replace("\n", line_end)
    assert fragments[0] == "the dog &amp; the cat run in the snow."
    assert fragments[2] == 'where <g id="4">is</g> <x id="8"/>it?'


def test_signs_of_a_translation_are_escaped(tmp_path: Path) -> None:
    path, target = tmp_path / "a.vtt", tmp_path / "b.vtt"
    path.write_text("WEBVTT\n\n00:01.000 --> 00:02.000\na dog")

    read_document(path, path.name).write(["a &lt;b&gt; --&gt; &amp;c"], target, "fr")

    assert target.read_text().endswith("\na &lt;b&gt; --&gt; &amp;c")


@pytest.mark.parametrize("text", ["", "WEBVTTX\n", "00:01.000 --> 00:02.000\na dog\n"])
def test_no_webvtt(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.vtt").write_text(text)

    with pytest.raises(RequestError, match="WEBVTT"):
        read_document(tmp_path / "a.vtt", "a.vtt")
