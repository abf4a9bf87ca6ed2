"""InDesign: stories are translated, with runs and codes where they are in the text."""

import zipfile
from pathlib import Path

import pytest
from lxml import etree

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.packages.test_office import parts
from tests.serving.documents.shouting import shout_file

PACKAGE = 'xmlns:p="http://ns.adobe.com/AdobeInDesign/idml/1.0/packaging"'
STORY = "Stories/Story_b.xml"


def run(*words: str, style: str = "") -> str:
    """Characters of one style. words: text, or elements."""
    content = (word if word.startswith("<") else f"<Content>{word}</Content>" for word in words)
    inner = f"<Properties><Font>Minion</Font></Properties>{''.join(content)}"
    return f"<CharacterStyleRange{style}>{inner}</CharacterStyleRange>"


def paragraph(*runs: str) -> str:
    return f'<ParagraphStyleRange Style="Body">{"".join(runs)}</ParagraphStyleRange>'


def document(path: Path, text: str, kind: str = "idml") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", f"application/vnd.adobe.indesign-{kind}-package")
        archive.writestr(
            "designmap.xml", f'<Document {PACKAGE}><p:Story src="{STORY}"/></Document>'
        )
        archive.writestr(STORY, f"<p:Story {PACKAGE}><Story>{text}</Story></p:Story>")
    return path


def ranges_of(path: Path) -> list[str]:
    [story] = etree.fromstring(parts(path)[STORY])
    return [etree.tostring(child, encoding="unicode").replace(f" {PACKAGE}", "") for child in story]


BOLD, END, PAGE = ' FontStyle="Bold"', "<Br/>", "<Content><?ACE 18?></Content>"
TABLE = f"<Table><Cell>{paragraph(run('in a cell'))}</Cell></Table>"
LINK = "<HyperlinkTextSource><Properties><Label/></Properties>{}</HyperlinkTextSource>"
DELETED = '<Change ChangeType="DeletedText"><Content>gone</Content></Change>'
LOW = ' Position="Subscript"'
CASES = [
    (
        [run("a dog"), run("runs", END, style=BOLD), run("it barks", END)],
        ['a dog<g id="1">runs</g>', "it barks"],
        [
            paragraph(run("A DOG"), run("RUNS", style=BOLD), run(END, style=BOLD)),
            paragraph(run("IT BARKS"), run(END)),
        ],
    ),
    (  # the number of a page, and a line break
        [run("<Content>a dog on page <?ACE 18?> runs\u2028on</Content>")],
        ['a dog on page <x id="1"/> runs <x id="2"/> on'],
        [paragraph(run("A DOG ON PAGE "), run(PAGE), run(" RUNS"), run("\u2028"), run("ON"))],
    ),
    (
        [run("see ", LINK.format("<Content>it</Content>"), " now")],
        ['see <g id="1">it</g> now'],
        [paragraph(run("SEE "), LINK.format(run("IT")), run(" NOW"))],
    ),
    (
        [run("a d"), run("og", style=' KerningValue="-20"'), run(DELETED)],
        ["a dog"],
        [paragraph(run("A DOG"), run(DELETED))],
    ),
    (
        [run("H"), run("2", style=LOW), run("O runs")],
        ['<k id="1">H2O</k> runs'],
        [paragraph(run("H"), run("2", style=LOW), run("O"), run(" RUNS"))],
    ),
    (
        [run("a table:", END, TABLE, END)],
        ["a table:", "in a cell"],
        [
            paragraph(run("A TABLE:"), run(END)),
            paragraph(run(TABLE.replace("in a cell", "IN A CELL"), END)),
        ],
    ),
]


@pytest.mark.parametrize(("runs", "fragments", "ranges"), CASES)
def test_paragraphs(
    tmp_path: Path, runs: list[str], fragments: list[str], ranges: list[str]
) -> None:
    target = tmp_path / "b.idml"

    assert shout_file(document(tmp_path / "a.idml", paragraph(*runs)), target) == fragments
    assert ranges_of(target) == ranges


def test_a_link_that_comes_first_in_the_translation(tmp_path: Path) -> None:
    text = paragraph(run("a dog and ", LINK.format("<Content>a cat</Content>")))
    path, target = document(tmp_path / "a.idml", text), tmp_path / "b.idml"

    read_document(path, path.name).write(['<g id="1">un chat</g> et un chien'], target, "fr")

    assert ranges_of(target) == [paragraph(LINK.format(run("un chat")), run(" et un chien"))]


def test_what_is_no_idml(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no IDML"):
        read_document(document(tmp_path / "a.idml", "", kind="icml"), "a.idml")
