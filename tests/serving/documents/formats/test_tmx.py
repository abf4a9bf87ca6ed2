"""Translation memories: units get the language that they lack; all else stays to the character."""

from pathlib import Path

import pytest
from lxml import etree

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.shouting import shouted

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">'
    '<header srclang="%s" segtype="sentence" adminlang="en"><note>a note</note></header>\n<body>\n'
)
TAIL = "\n</body></tmx>\n"
DONE = (
    '<tu><tuv xml:lang="en-US"><seg>a cat</seg></tuv><tuv xml:lang="fr"><seg>un chat</seg></tuv>'
    "</tu>"
)


def translate(
    tmp_path: Path, text: str, source: str | None = None, target: str | None = "fr"
) -> tuple[list[str], str]:
    path, written = tmp_path / "a.tmx", tmp_path / "b.tmx"
    path.write_bytes(text.encode())
    document = read_document(path, path.name, source, target)
    fragments = [*document.fragments]
    document.write([shouted(each) for each in fragments], written, target or "fr")
    etree.parse(str(written))
    return fragments, written.read_bytes().decode()


@pytest.mark.parametrize(
    ("source", "fragment", "target"),
    [
        ("a &lt; dog", "a &lt; dog", "A &lt; DOG"),
        (
            '<bpt i="1" x="1">{\\b </bpt>a dog<ept i="1">}</ept> runs',
            '<g id="2">a dog</g> runs',
            '<bpt i="1" x="1">{\\b </bpt>A DOG<ept i="1">}</ept> RUNS',
        ),
        (
            'a <hi type="term">dog</hi> <ph x="2">&lt;img alt="<sub>a</sub>"/></ph>runs',
            'a <g id="2">dog</g> <x id="6"/>runs',
            'A <hi type="term">DOG</hi> <ph x="2">&lt;img alt="<sub>a</sub>"/></ph>RUNS',
        ),
        (
            'the <it pos="begin" x="1">&lt;b></it>dog',
            'the <x id="2"/>dog',
            'THE <it pos="begin" x="1">&lt;b></it>DOG',
        ),
    ],
)
def test_texts(tmp_path: Path, source: str, fragment: str, target: str) -> None:
    unit = (
        f'<tu tuid="1"><prop type="p">a</prop><tuv xml:lang="en"><seg>{source}</seg></tuv>%s</tu>'
    )

    fragments, written = translate(tmp_path, HEAD % "en" + unit % "" + DONE + TAIL)

    assert fragments == [fragment]
    made = f'<tuv xml:lang="fr"><seg>{target}</seg></tuv>'
    assert written == HEAD % "en" + unit % made + DONE + TAIL


def test_a_variant_is_laid_out_as_its_source(tmp_path: Path) -> None:
    variant = '\n  <tuv lang="%s">\n    <seg>%s</seg>\n  </tuv>'
    unit = "<tu>" + variant % ("EN", "a dog") + variant % ("de", "ein Hund") + "%s\n</tu>"

    _, written = translate(tmp_path, (HEAD % "EN" + unit % "" + TAIL).replace("\n", "\r\n"))

    expected = HEAD % "EN" + unit % (variant % ("fr", "A DOG")) + TAIL
    assert written == expected.replace("\n", "\r\n")


UNITS = DONE + (
    '<tu><tuv xml:lang="en"><seg>a dog</seg></tuv></tu>'
    '<tu><tuv xml:lang="fr"><seg>un chien</seg></tuv></tu>'
    '<tu srclang="de"><tuv xml:lang="en"><seg>no</seg></tuv>'
    '<tuv xml:lang="de"><seg>nein</seg></tuv>'
    "</tu><tu><tuv xml:lang='pt-PT'><seg>um</seg></tuv></tu>"
)


@pytest.mark.parametrize(
    ("said", "source", "target", "fragments"),
    [
        ("en-US", None, "fr", ["a dog", "nein"]),
        ("en-US", "en", "fr-CA", ["a dog", "nein"]),
        ("en", "fr", "de", ["un chat", "un chien"]),
        ("en", "ja", "pt-BR", ["a cat", "a dog", "nein"]),
        ("*all*", None, "pt-BR", ["a cat", "a dog", "un chien", "nein", "um"]),
        ("*all*", None, "pt", ["a cat", "a dog", "un chien", "nein"]),
        ("en", "en", None, ["a dog"]),
    ],
)
def test_which_units_lack_a_language(
    tmp_path: Path, said: str, source: str | None, target: str | None, fragments: list[str]
) -> None:
    found, _ = translate(tmp_path, HEAD % said + UNITS + TAIL, source, target)

    assert found == fragments


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<tmx/>",
        "<tmx><body>",
        "<html><body/></html>",
        '<!DOCTYPE tmx [<!ENTITY a "b">]><tmx><body/></tmx>',
        "<tmx><body><tu>&a;</tu></body></tmx>",
    ],
)
def test_broken_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(text)

    with pytest.raises(RequestError, match=r"not|document type"):
        read_document(path, path.name)
