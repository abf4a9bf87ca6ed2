"""Translation memories: units get the language that they lack; all else stays to the character."""

from pathlib import Path

import pytest

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.shouting import shout_fragment

HEAD = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="%s"/>\n<body>\n'
TAIL = "\n</body></tmx>\n"


def translate(
    tmp_path: Path, text: str, source: str | None = None, target: str | None = "fr"
) -> tuple[list[str], str]:
    path, written = tmp_path / "a.tmx", tmp_path / "b.tmx"
    path.write_bytes(text.encode())
    document = read_document(path, path.name, source, target)
    fragments = [*document.fragments]
    document.write([shout_fragment(fragment) for fragment in fragments], written, target or "fr")
    return fragments, written.read_bytes().decode()


@pytest.mark.parametrize(
    ("source", "fragment", "target"),
    [
        ("a &lt; dog", "a &lt; dog", "A &lt; DOG"),
        (
            '<bpt i="1">{\\b </bpt>a dog<ept i="1">}</ept> runs',
            '<g id="2">a dog</g> runs',
            '<bpt i="1">{\\b </bpt>A DOG<ept i="1">}</ept> RUNS',
        ),
        (
            'a <hi type="t">dog</hi> <ph x="2">&lt;i <sub>a</sub>></ph>runs',
            'a <g id="2">dog</g> <x id="6"/>runs',
            'A <hi type="t">DOG</hi> <ph x="2">&lt;i <sub>a</sub>></ph>RUNS',
        ),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_texts(tmp_path: Path, source: str, fragment: str, target: str, line_end: str) -> None:
    variant = '\n  <tuv lang="%s">\n    <seg>%s</seg>\n  </tuv>'
    unit = HEAD % "EN" + "<tu>" + variant % ("EN", source) + variant % ("de", "x") + "%s\n</tu>"
    text, expected = unit % "" + TAIL, unit % (variant % ("fr", target)) + TAIL

    fragments, written = translate(tmp_path, text.replace("\n", line_end))

    assert fragments == [fragment]
    assert written == expected.replace("\n", line_end)


def unit(*variants: str, attributes: str = "") -> str:
    pairs = (variant.split(":") for variant in variants)
    inner = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in pairs)
    return f"<tu{attributes}>{inner}</tu>"


UNITS = "".join(
    [
        *(unit("en-US:a cat", "fr:un chat"), unit("en:a dog"), unit("fr:un chien")),
        *(unit("en:no", "de:nein", attributes=' srclang="de"'), unit("pt-PT:um")),
    ]
)


@pytest.mark.parametrize(
    ("said", "source", "target", "fragments"),
    [
        ("en-US", None, "fr", ["a dog", "nein"]),
        ("en", "fr", "de", ["un chat", "un chien"]),
        ("en", "ja", "pt-BR", ["a cat", "a dog", "nein"]),
        ("*all*", None, "pt-BR", ["a cat", "a dog", "un chien", "nein", "um"]),
        ("en", "en", None, ["a dog"]),
    ],
)
def test_which_units_lack_a_language(
    tmp_path: Path, said: str, source: str | None, target: str | None, fragments: list[str]
) -> None:
    assert translate(tmp_path, HEAD % said + UNITS + TAIL, source, target)[0] == fragments


@pytest.mark.parametrize("text", ["", "<tmx/>", "<tmx><body>", "<a><body/></a>"])
def test_broken_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.tmx").write_text(text)

    with pytest.raises(RequestError, match="not"):
        read_document(tmp_path / "a.tmx", "a.tmx")
