"""InDesign: stories are translated, with runs and codes where they are in the text."""

import zipfile
from pathlib import Path

import pytest
from lxml import etree

from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.packages.test_office import parts
from tests.serving.documents.shouting import shouted_file

PACKAGE = 'xmlns:idPkg="http://ns.adobe.com/AdobeInDesign/idml/1.0/packaging"'
MAP = (
    f'<?xml version="1.0" encoding="UTF-8"?><?aid style="50"?><Document {PACKAGE}>'
    '<idPkg:Spread src="Spreads/Spread_a.xml"/><idPkg:Story src="Stories/Story_b.xml"/></Document>'
)
PLAIN, BOLD = 'FontStyle="Regular"', 'FontStyle="Bold"'


def run(content: str, style: str = PLAIN) -> str:
    own = "<Properties><AppliedFont>Minion</AppliedFont></Properties>"
    return f"<CharacterStyleRange {style}>{own}{content}</CharacterStyleRange>"


def text(words: str) -> str:
    return f"<Content>{words}</Content>"


def paragraphs(*runs: str) -> str:
    return f'<ParagraphStyleRange Style="Body">{"".join(runs)}</ParagraphStyleRange>'


def document(path: Path, *ranges: str, kind: str = "idml") -> Path:
    story = f'<idPkg:Story {PACKAGE}><Story Self="u1">{"".join(ranges)}</Story></idPkg:Story>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", f"application/vnd.adobe.indesign-{kind}-package")
        archive.writestr("designmap.xml", MAP)
        archive.writestr("Stories/Story_b.xml", story)
        archive.writestr("Spreads/Spread_a.xml", "<idPkg/>")
    return path


def ranges_of(path: Path) -> list[str]:
    [story] = etree.fromstring(parts(path)["Stories/Story_b.xml"])
    return [etree.tostring(each, encoding="unicode").replace(f" {PACKAGE}", "") for each in story]


TABLE = f"<Table><Cell>{paragraphs(run(text('in a cell')))}</Cell></Table>"
LINK = '<HyperlinkTextSource Self="h"><Properties><Label/></Properties>{}</HyperlinkTextSource>'
DELETED = '<Change ChangeType="DeletedText"><Content>gone</Content></Change>'
CASES = [
    (
        [run(text("a dog")), run(text("runs") + "<Br/>", BOLD), run(text("it barks") + "<Br/>")],
        ['a dog<g id="1">runs</g>', "it barks"],
        [
            paragraphs(run(text("A DOG")), run(text("RUNS"), BOLD), run("<Br/>", BOLD)),
            paragraphs(run(text("IT BARKS")), run("<Br/>")),
        ],
    ),
    (  # a character, and the number of a page
        [run("<Content>a dog on page <?ACE 18?> runs\u2028quickly</Content>")],
        ['a dog on page <x id="1"/> runs<br id="2"/>quickly'],
        [
            paragraphs(
                run(text("A DOG ON PAGE ")),
                run("<Content><?ACE 18?></Content>"),
                run(text(" RUNS")),
                run(text("\u2028")),
                run(text("QUICKLY")),
            )
        ],
    ),
    (
        [run(text("see ") + LINK.format(text("this dog")) + text(" now"))],
        ['see <g id="1">this dog</g> now'],
        [paragraphs(run(text("SEE ")), LINK.format(run(text("THIS DOG"))), run(text(" NOW")))],
    ),
    (  # kerning and deleted text
        [run(text("a d")), run(text("og"), f'{PLAIN} KerningValue="-20"'), run(DELETED)],
        ["a dog"],
        [paragraphs(run(text("A DOG")), run(DELETED))],
    ),
    (
        [run(text("H")), run(text("2"), f'{PLAIN} Position="Subscript"'), run(text("O runs"))],
        ['<k id="1">H2O</k> runs'],
        [
            paragraphs(
                run(text("H")),
                run(text("2"), f'{PLAIN} Position="Subscript"'),
                run(text("O")),
                run(text(" RUNS")),
            )
        ],
    ),
    (
        [run(text("a table:") + "<Br/>" + TABLE + "<Br/>")],
        ["a table:", "in a cell"],
        [
            paragraphs(run(text("A TABLE:")), run("<Br/>")),
            paragraphs(run(TABLE.replace("in a cell", "IN A CELL") + "<Br/>")),
        ],
    ),
]


@pytest.mark.parametrize(("runs", "fragments", "ranges"), CASES)
def test_paragraphs(
    tmp_path: Path, runs: list[str], fragments: list[str], ranges: list[str]
) -> None:
    target = tmp_path / "b.idml"

    found = shouted_file(document(tmp_path / "a.idml", paragraphs(*runs)), target)

    assert found == fragments
    assert ranges_of(target) == ranges


def test_a_code_that_comes_first_in_the_translation(tmp_path: Path) -> None:
    link = run("<Content>a dog and </Content>" + LINK.format(text("a cat")))
    path, target = document(tmp_path / "a.idml", paragraphs(link)), tmp_path / "b.idml"

    read_document(path, path.name).write(['<g id="1">un chat</g> et un chien'], target, "fr")

    expected = paragraphs(LINK.format(run(text("un chat"))), run(text(" et un chien")))
    assert ranges_of(target) == [expected]


def test_what_is_no_idml(tmp_path: Path) -> None:
    path = document(tmp_path / "a.idml", kind="icml")

    with pytest.raises(RequestError, match="no IDML"):
        read_document(path, path.name)
