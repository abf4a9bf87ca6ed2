"""What Word allows within a paragraph (ECMA-376, part 1, 17.3 to 17.16): the words are translated,
and all elements that hold none are there, once, in their parents and in their order.
"""

import zipfile
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from lxml import etree

from serving.documents.formats.registry import read_document
from tests.serving.documents.shouting import shout_file

NAMESPACES = " ".join(
    f'xmlns:{prefix}="{name}"'
    for prefix, name in {
        "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "v": "urn:schemas-microsoft-com:vml",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    }.items()
)
RAISED, LOWERED = ('<w:vertAlign w:val="superscript"/>', '<w:vertAlign w:val="subscript"/>')


def run(text: str, properties: str = "") -> str:
    formatting = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{formatting}<w:t xml:space="preserve">{text}</w:t></w:r>'


def mark(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def begun(instruction: str) -> str:
    code = f'<w:r><w:instrText xml:space="preserve"> {instruction} </w:instrText></w:r>'
    return mark("begin") + code + mark("separate")


def field(instruction: str, text: str) -> str:
    return begun(instruction) + text + mark("end")


def document_of(path: Path, *paragraphs: str) -> Path:
    """Writes a document with these paragraphs, or with what else begins with `<`."""
    document = docx.Document()
    body = document.element.body
    for content in paragraphs:
        block = content if content.startswith(("<w:p>", "<w:sdt>")) else f"<w:p>{content}</w:p>"
        for element in parse_xml(f"<w:body {NAMESPACES}>{block}</w:body>"):
            body.insert(len(body) - 1, element)
    document.save(str(path))
    return path


def body_of(path: Path) -> etree._Element:
    with zipfile.ZipFile(path) as archive:
        root = etree.fromstring(archive.read("word/document.xml"))
    return root[0]


def skeleton(path: Path) -> list[str]:
    """All elements but runs and texts, each with the names of those that it is in."""
    left_out = {"r", "rPr", "t", "vertAlign", "proofErr"}
    descriptions = []
    for element in body_of(path).iter():
        names = [
            etree.QName(ancestor).localname for ancestor in (element, *element.iterancestors())
        ]
        if names[0] not in left_out:
            place = "/".join(name for name in reversed(names) if name != "r")
            descriptions.append(f"{place} {element.items()}")
    return descriptions


def cell_text(path: Path) -> str:
    return "".join(element.text or "" for element in body_of(path).iter("{*}t", "{*}delText"))


BOX = "<w:txbxContent><w:p><w:r><w:t>in a box</w:t></w:r></w:p></w:txbxContent>"
CASES = {
    "a field": (
        run("on page ") + field("PAGE", run("3")) + run(", please"),
        ["on page {3}, please"],
    ),
    "a field in a run": (
        '<w:r><w:t xml:space="preserve">page </w:t><w:fldChar w:fldCharType="begin"/>'
        '<w:instrText>PAGE</w:instrText><w:fldChar w:fldCharType="separate"/><w:t>3</w:t>'
        '<w:fldChar w:fldCharType="end"/><w:t xml:space="preserve"> here</w:t></w:r>',
        ["page {3} here"],
    ),
    "fields in a field": (
        run("in ") + field("IF " + "1", field("PAGE", run("3")) + run("three")) + run(" now"),
        ["in {3three} now"],
    ),
    "a field without an end": (run("one") + begun("PAGE") + run("two"), ["one<>two"]),
    "an end without a field": (run("one ") + mark("end") + run("two"), ["one <>two"]),
    "a link": (
        run("see ") + field('HYPERLINK "http://a.b"', run("the park")) + run(" there"),
        ["see (the park) there"],
    ),
    "a link with a page": (
        run("see ")
        + field("HYPERLINK x", run("part ") + field("PAGEREF y", run("4")))
        + run(" it"),
        ["see (part {4}) it"],
    ),
    "a simple field": (
        run("dear ") + f'<w:fldSimple w:instr=" MERGEFIELD n ">{run("Ann")}</w:fldSimple>'
        f'{run(" of ")}<w:fldSimple w:instr="HYPERLINK x">{run("the house")}</w:fldSimple>'
        f"{run(' here')}",
        ["dear {Ann} of (the house) here"],
    ),
    "a move": (
        run("the ") + f'<w:moveFromRangeStart w:id="1" w:name="m"/><w:moveFrom w:id="2">{run("x")}'
        f'</w:moveFrom><w:moveFromRangeEnd w:id="1"/><w:moveTo w:id="3">{run("big ")}</w:moveTo>'
        f"{run('dog')}",
        ["the <>(big )dog"],
    ),
    "changes": (
        run("one ") + f'<w:ins w:id="1">{run("two ")}</w:ins><w:del w:id="2"><w:r><w:delText>gone'
        f"</w:delText></w:r></w:del>{run('three')}",
        ["one (two )<>three"],
    ),
    "containers": (
        f'{run("a ")}<w:smartTag w:element="e"><w:smartTagPr><w:attr w:name="n" w:val="v"/>'
        f'</w:smartTagPr>{run("tag")}</w:smartTag>{run(" b ")}<w:customXml w:element="k">'
        f'<w:customXmlPr><w:attr w:name="n" w:val="v"/></w:customXmlPr>{run("xml")}</w:customXml>'
        f'{run(" c ")}<w:dir w:val="rtl">{run("dir")}</w:dir>{run(" d ")}<w:bdo w:val="ltr">'
        f"{run('bdo')}</w:bdo>{run(' e')}",
        ["a (tag) b (xml) c (dir) d (bdo) e"],
    ),
    "content controls": (
        f'{run("a ")}<w:sdt><w:sdtPr><w:alias w:val="x"/></w:sdtPr><w:sdtContent>{run("control")}'
        f"</w:sdtContent></w:sdt>{run(' b')}<w:sdt><w:sdtPr/></w:sdt>{run(' c')}",
        ["a (control) b<> c"],
    ),
    "a block in a content control": (
        f"<w:sdt><w:sdtPr/><w:sdtContent><w:p>{run('a block')}</w:p></w:sdtContent></w:sdt>",
        ["a block"],
    ),
    "comments and bookmarks": (
        f'{run("a ")}<w:commentRangeStart w:id="0"/>{run("noted")}<w:commentRangeEnd w:id="0"/>'
        f'<w:r><w:commentReference w:id="0"/></w:r>{run(" and ")}<w:bookmarkStart w:id="0" '
        f'w:name="b"/>{run("marked")}<w:bookmarkEnd w:id="0"/>{run(" word")}<w:permStart w:id="1"/>'
        f"<w:permEnd w:id='1'/>{run(' end')}",
        ["a (noted) and (marked) word<> end"],
    ),
    "ranges that cross": (
        f'{run("a ")}<w:bookmarkStart w:id="0" w:name="a"/>{run("b ")}<w:bookmarkStart w:id="1" '
        f'w:name="b"/>{run("c ")}<w:bookmarkEnd w:id="0"/>{run("d ")}<w:bookmarkEnd w:id="1"/>'
        f"{run('e')}",
        ["a (b <>c )d <>e"],
    ),
    "a range into a field": (
        f'{run("a ")}<w:bookmarkStart w:id="0" w:name="a"/>{run("b ")}{begun("PAGE")}{run("3")}'
        f'<w:bookmarkEnd w:id="0"/>{mark("end")}{run(" e")}',
        ["a <>b {3} e"],
    ),
    "an equation": (
        run("if ") + "<m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>" + run(" is"),
        ["if <> is"],
    ),
    "a pronunciation": (
        f'<w:r><w:ruby><w:rubyPr><w:rubyAlign w:val="center"/></w:rubyPr><w:rt>{run("IN")}</w:rt>'
        f"<w:rubyBase>{run('dog')}</w:rubyBase></w:ruby></w:r>{run(' runs')}",
        ["(dog) runs"],
    ),
    "breaks and tabs": (
        f"{run('the dog')}<w:r><w:br/></w:r>{run('runs.')}<w:r><w:cr/></w:r>{run('Now')}<w:r>"
        '<w:tab/><w:t>a column</w:t><w:ptab w:relativeTo="margin"/><w:t>more</w:t></w:r>'
        f"{run('a&#9;b')}",
        ["the dog <> runs.|Now|a column|morea|b"],
    ),
    "hyphens": (
        f"{run('a mother')}<w:r><w:softHyphen/></w:r>{run('board e')}<w:r><w:noBreakHyphen/></w:r>"
        f"{run('mail')}",
        ["a motherboard e-mail"],
    ),
    "a symbol": (
        run("go ") + '<w:r><w:sym w:font="Wingdings" w:char="F0E0"/></w:r>' + run(" there"),
        ["go <> there"],
    ),
    "a text box": (
        f'{run("beside")}<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing><wps:txbx>'
        f"{BOX}</wps:txbx></w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{BOX}</v:textbox>"
        f"</w:pict></mc:Fallback></mc:AlternateContent></w:r>{run(' it')}",
        ["beside<> it", "in a box", "in a box"],
    ),
    "notes": (
        f'{run("a word")}<w:r><w:footnoteReference w:id="2"/></w:r>{run(" and")}<w:proofErr '
        f'w:type="spellStart"/>{run(" more")}',
        ["a word<> and more"],
    ),
    "a formula": (
        run("drink H")
        + run("2", LOWERED)
        + run("O or C")
        + run("6", LOWERED)
        + run("H")
        + run("12", LOWERED)
        + run(" now"),
        ["drink {H2O} or {C6H12} now"],
    ),
    "units": (
        run("48 m") + run("2", RAISED) + run(" and 10") + run("6", RAISED),
        ["48 {m2} and {106}"],
    ),
    "a raised note": (run("the park") + run("13", RAISED) + run(", here"), ["the park<>, here"]),
    "an ordinal": (run("the 13") + run("th", RAISED) + run(" floor"), ["the 13th floor"]),
    "raised words": (
        run("a ") + run("raised text", RAISED) + run(" here now"),
        ["a (raised text) here now"],
    ),
    "hidden text": (
        run("a ") + run("hidden", "<w:vanish/>") + run(" word here"),
        ["a (hidden) word here"],
    ),
}


def drawn(fragment: str) -> str:
    """A fragment with its codes as signs: (pair), <single>, |parting|, {kept}."""
    root = etree.fromstring(f"<f>{fragment}</f>")

    def draw(element: etree._Element) -> str:
        text = (element.text or "") + "".join(draw(child) + (child.tail or "") for child in element)
        signs = {"g": "({})", "x": "<>", "br": "|", "k": "{{{}}}", "f": "{}"}
        return signs[str(element.tag)].format(text)

    return draw(root)


@pytest.mark.parametrize("name", CASES)
def test_what_a_paragraph_may_hold(tmp_path: Path, name: str) -> None:
    content, expected = CASES[name]
    path, target = document_of(tmp_path / "a.docx", content), tmp_path / "b.docx"

    fragments = shout_file(path, target)

    assert [drawn(fragment) for fragment in fragments] == expected
    elements = skeleton(path)
    if name == "hyphens":  # what may stand at a line's end depends on the word
        elements = [element for element in elements if "Hyphen" not in element]
    assert skeleton(target) == elements
    python_docx = docx.Document(str(target))
    assert python_docx.paragraphs is not None


@pytest.mark.parametrize("name", CASES)
def test_a_translation_of_the_same_words_changes_no_text(tmp_path: Path, name: str) -> None:
    content, _ = CASES[name]
    path, target = document_of(tmp_path / "a.docx", content), tmp_path / "b.docx"
    document = read_document(path, path.name)

    document.write(document.fragments, target, "fr")

    assert cell_text(target) == cell_text(path)
    if name != "hyphens":
        assert skeleton(target) == skeleton(path)


def test_fields_over_several_paragraphs(tmp_path: Path) -> None:
    """What stands after the field in its last paragraph is translated; links are all through."""
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    document_of(
        path,
        run("before ") + begun("INDEX") + run("an entry"),
        run("another entry") + mark("end") + run(" after"),
        run("see ") + begun("HYPERLINK x") + run("a link"),
        run("of two paragraphs") + mark("end") + run(" ends"),
    )

    fragments = [drawn(fragment) for fragment in shout_file(path, target)]

    assert fragments == [
        "before {an entry}",
        "{another entry} after",
        "see <>a link",
        "of two paragraphs<> ends",
    ]
    assert cell_text(target).startswith("BEFORE an entryanother entry AFTERSEE A LINKOF")


def test_a_no_break_hyphen_comes_back_in_a_word_that_stays(tmp_path: Path) -> None:
    hyphen = "<w:r><w:noBreakHyphen/></w:r>"
    content = run("Call 555") + hyphen + run("0182, e") + hyphen + run("mail")
    path = document_of(tmp_path / "a.docx", content)
    document = read_document(path, path.name)
    assert [*document.fragments] == ["Call 555-0182, e-mail"]

    document.write(["Appelez le 555-0182, un courriel"], target := tmp_path / "b.docx", "fr")

    assert [child.tag for child in body_of(target)[0][0]].count(
        "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}noBreakHyphen"
    ) == 1
    assert docx.Document(str(target)).paragraphs[0].text == "Appelez le 555-0182, un courriel"


@pytest.mark.parametrize(
    ("translation", "written"),
    [
        ('voyez la page<x id="1"/>.', "voyez la page IMAGE."),
        ('voyez <x id="1"/>la page.', "voyez IMAGE la page."),
        ('<x id="1"/>voyez la page.', "IMAGE voyez la page."),
        ("voyez la page", "voyez la page IMAGE"),
    ],
)
def test_spaces_around_what_stands_as_a_word(
    tmp_path: Path, translation: str, written: str
) -> None:
    content = run("see page ") + "<w:r><w:pict/></w:r>" + run(".")
    path = document_of(tmp_path / "a.docx", content)
    document = read_document(path, path.name)
    assert [*document.fragments] == ['see page <x id="1"/>.']

    document.write([translation], target := tmp_path / "b.docx", "fr")

    elements = body_of(target)[0].iter("{*}t", "{*}pict")
    assert "".join(element.text or "IMAGE" for element in elements) == written


def test_codes_that_a_translation_has_lost_come_back(tmp_path: Path) -> None:
    content, _ = CASES["comments and bookmarks"]
    path, target = document_of(tmp_path / "a.docx", content), tmp_path / "b.docx"
    document = read_document(path, path.name)

    document.write(["rien"], target, "fr")

    assert sorted(skeleton(target)) == sorted(skeleton(path))


@pytest.mark.parametrize("number", [30, 245])
def test_elements_within_elements(tmp_path: Path, number: int) -> None:
    content = '<w:ins w:id="1">' * number + run("deep") + "</w:ins>" * number + run(" text")
    path, target = document_of(tmp_path / "a.docx", content), tmp_path / "b.docx"

    shout_file(path, target)

    assert cell_text(target) == "DEEP TEXT"


def test_comments(tmp_path: Path) -> None:
    path, target = tmp_path / "a.docx", tmp_path / "b.docx"
    document = docx.Document()
    document.add_comment(document.add_paragraph().add_run("a text"), "a remark", author="Ann")
    document.save(str(path))

    assert sorted(shout_file(path, target)) == ["a remark", "a text"]
    [comment] = docx.Document(str(target)).comments
    assert (comment.author, comment.text) == ("Ann", "A REMARK")
