"""XLIFF 1.2 and 2.x: targets are added, all else stays to the character."""

from collections.abc import Callable
from pathlib import Path

import pytest
from lxml import etree

from serving.documents.document import Review, ReviewedDocument
from serving.documents.formats.registry import read_document
from serving.errors import RequestError
from tests.serving.documents.shouting import shout_fragment

STATE = ' state="needs-review-translation" state-qualifier="mt-suggestion"'
HEAD_1 = (
    "<?xml version='1.0' encoding=\"UTF-8\"?>\n<!-- from a tool -->\n"
    '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:my=\'urn:my\'>\n'
    '<file source-language="en" target-language="fr" original="a"   my:x="&#10;&lt;\'">'
    "<header><note>a note</note></header><body>\n"
)
TAIL_1 = "\n<my:any><my:source>a thing</my:source></my:any></body></file></xliff>\n<?my end?>\n"
HEAD_2 = (
    '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" '
    'trgLang="fr"><file id="f"><unit id="u">\n'
)
TAIL_2 = "\n</unit></file></xliff>"


def translate(
    tmp_path: Path, text: str, change: Callable[[str], str] = shout_fragment, language: str = "fr"
) -> str:
    path, target = tmp_path / "a.xlf", tmp_path / "b.xlf"
    path.write_bytes(text.encode())
    document = read_document(path, path.name)
    document.write([change(fragment) for fragment in document.fragments], target, language)
    etree.parse(str(target))  # it is well-formed
    return target.read_bytes().decode()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a dog", "A DOG"),
        ("a &amp; b &lt; c&#xA0;d", "A &amp; B &lt; C\xa0D"),
        ('a <g id="1">dog <x id="2"/></g> runs', 'A <g id="1">DOG <x id="2"/></g> RUNS'),
        ("a <ph id='1'>{0}</ph> dog", "A <ph id='1'>{0}</ph> DOG"),
        (
            'a <bpt id="1">&lt;b></bpt>dog<ept id="1">&lt;/b></ept> runs',
            'A <bpt id="1">&lt;b></bpt>DOG<ept id="1">&lt;/b></ept> RUNS',
        ),
        (
            'a <bpt id="1" rid="9">b</bpt>dog<ept id="2" rid="9">c</ept> runs',
            'A <bpt id="1" rid="9">b</bpt>DOG<ept id="2" rid="9">c</ept> RUNS',
        ),
        ('a <it id="1" pos="open">x</it> dog', 'A <it id="1" pos="open">x</it> DOG'),
        ('a <bx id="1"/>dog<ex id="1"/> runs', 'A <bx id="1"/>DOG<ex id="1"/> RUNS'),
        (
            'in <mrk mtype="protected">New York</mrk> now',
            'IN <mrk mtype="protected">New York</mrk> NOW',
        ),
        ('a <mrk mtype="term">dog</mrk> runs', 'A <mrk mtype="term">DOG</mrk> RUNS'),
        ('in <mrk its:translate="no">York</mrk> now', 'IN <mrk its:translate="no">York</mrk> NOW'),
        (
            'see <x id="START_LINK"/>this<x id="CLOSE_LINK"/> now',
            'SEE <x id="START_LINK"/>THIS<x id="CLOSE_LINK"/> NOW',
        ),
        ("<![CDATA[a <b>dog</b> & cat]]>", "<![CDATA[A <b>DOG</b> & CAT]]>"),
        ("a &lt;b>dog&lt;/b> runs", "A &lt;b&gt;DOG&lt;/b&gt; RUNS"),
        ("a <!-- said --> dog", "A  DOG"),
        (
            "you have {n, plural, one {# dog} other {# <x id='1'/> dogs}} here",
            "YOU HAVE {n, plural, one {# DOG} other {# <x id='1'/> DOGS}} HERE",
        ),
        ("{g, select, male {he & I} other {they}}", None),
        ("\n    a dog\n    runs\n  ", "A DOG RUNS"),
    ],
)
def test_codes_and_text_of_1(tmp_path: Path, source: str, target: str | None) -> None:
    source = source.replace(" & I", " and I")
    target = "{g, select, male {HE AND I} other {THEY}}" if target is None else target
    declared = HEAD_1.replace("xmlns:my", 'xmlns:its="http://www.w3.org/2005/11/its" xmlns:my')
    text = f'{declared}<trans-unit id="1"><source>{source}</source></trans-unit>{TAIL_1}'

    written = translate(tmp_path, text)

    added = f"</source><target{STATE}>{target}</target>"
    assert written == text.replace("</source></trans-unit>", f"{added}</trans-unit>")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ('a <pc id="1">dog</pc> runs', 'A <pc id="1">DOG</pc> RUNS'),
        (
            'a <sc id="1" dataRef="d"/>dog<ec startRef="1"/> runs',
            'A <sc id="1" dataRef="d"/>DOG<ec startRef="1"/> RUNS',
        ),
        ('a <ph id="1"/> dog <cp hex="0001"/>', 'A <ph id="1"/> DOG <cp hex="0001"/>'),
        (
            'in <mrk id="m" translate="no">New <pc id="1">York</pc></mrk> now',
            'IN <mrk id="m" translate="no">New <pc id="1">York</pc></mrk> NOW',
        ),
        (
            'in <sm id="m" translate="no"/>New <pc id="1">York</pc><em startRef="m"/> now',
            'IN <sm id="m" translate="no"/>New <pc id="1">York</pc><em startRef="m"/> NOW',
        ),
        (
            'in <sm id="m" type="term"/>york<em startRef="m"/> now',
            'IN <sm id="m" type="term"/>YORK<em startRef="m"/> NOW',
        ),
        # ranges that overlap are no pairs, but all their ends come back
        (
            'a <sc id="1"/>b <pc id="2">c<ec startRef="1"/> d</pc> e',
            'A <sc id="1"/>B <pc id="2">C<ec startRef="1"/> D</pc> E',
        ),
    ],
)
def test_codes_of_2(tmp_path: Path, source: str, target: str) -> None:
    text = f'{HEAD_2}<segment id="s" subState="x:y"><source>{source}</source></segment>{TAIL_2}'

    written = translate(tmp_path, text)

    expected = text.replace(' subState="x:y"', ' state="translated"')
    assert written == expected.replace("</source>", f"</source><target>{target}</target>")


def test_segments_of_2_1(tmp_path: Path) -> None:
    unit = (
        '<notes><note>a note</note></notes><originalData><data id="d">&lt;b></data></originalData>'
        '<segment id="1"%s><source>a <sc id="1" dataRef="d" isolated="yes"/>dog <ph id="2" equiv='
        '"%%s"/></source>%s</segment><ignorable><source> so </source></ignorable>'
        '<segment id="2" state="final"><source>a cat</source><target>un chat</target></segment>'
        '</unit><unit id="v" translate="no"><segment><source>kept</source></segment>'
    )
    text = HEAD_2.replace('version="2.0"', 'version="2.1"') + unit + TAIL_2

    written = translate(tmp_path, text % (' state="initial"', "<target/>"))

    target = '<target>A <sc id="1" dataRef="d" isolated="yes"/>DOG <ph id="2" equiv="%s"/></target>'
    assert written == text % (' state="translated"', target)


@pytest.mark.parametrize(
    "unit",
    [
        '<trans-unit id="1" translate="no"><source>a dog</source></trans-unit>',
        '<group translate="no"><trans-unit id="1"><source>a dog</source></trans-unit></group>',
        '<trans-unit id="1" approved="yes"><source>a dog</source><target/></trans-unit>',
        '<trans-unit id="1"><source>a dog</source><target>un chien</target></trans-unit>',
        '<trans-unit id="1"><source>a dog</source><target state="final">un</target></trans-unit>',
        '<trans-unit id="1"><source>a dog</source><target state="needs-review-translation">un'
        "</target></trans-unit>",
        '<trans-unit id="1"><source><x id="1"/> 12</source></trans-unit>',
    ],
)
def test_what_is_left_alone(tmp_path: Path, unit: str) -> None:
    text = HEAD_1 + unit + TAIL_1

    assert translate(tmp_path, text) == text


@pytest.mark.parametrize(
    "target", ["<target/>", '<target state="new">a dog</target>', "<target />"]
)
def test_targets_that_nobody_has_translated(tmp_path: Path, target: str) -> None:
    unit = f'<trans-unit id="1"><source>a dog</source>{target}<note>n</note></trans-unit>'

    written = translate(tmp_path, HEAD_1 + unit + TAIL_1)

    assert written == (HEAD_1 + unit + TAIL_1).replace(target, f"<target{STATE}>A DOG</target>")


def test_what_of_a_group_is_translated(tmp_path: Path) -> None:
    unit = '<trans-unit id="1" translate="yes"><source>a dog</source></trans-unit>'
    text = f'{HEAD_1}<group translate="no">{unit}</group>{TAIL_1}'

    assert f"<target{STATE}>A DOG</target>" in translate(tmp_path, text)


PARTED = (
    '<seg-source><g id="9"><mrk mtype="seg" mid="1">a dog.</mrk> '
    '<mrk mtype="seg" mid="2">a <x id="1"/> cat.</mrk></g> <mrk mtype="seg" mid="3">12</mrk>'
    "</seg-source>"
)
PARTED_TARGET = (
    PARTED.replace("seg-source>", "target>").replace("a dog", "A DOG").replace("cat", "CAT")
).replace("a <x", "A <x")


def test_a_source_in_parts(tmp_path: Path) -> None:
    unit = f'<trans-unit id="1"><source>a dog. a cat.</source>{PARTED}</trans-unit>'

    written = translate(tmp_path, HEAD_1 + unit + TAIL_1)

    target = PARTED_TARGET.replace("<target>", f"<target{STATE}>")
    assert written == (HEAD_1 + unit + TAIL_1).replace(PARTED, PARTED + target)


def test_a_source_in_parts_of_which_one_is_translated(tmp_path: Path) -> None:
    target = (
        '<target state="translated"><g id="9"><mrk mtype="seg" mid="1">Un chien.</mrk> '
        '<mrk mtype="seg" mid="2"></mrk></g> <mrk mtype="seg" mid="3"/></target>'
    )
    unit = f'<trans-unit id="1"><source>a dog. a cat.</source>{PARTED}{target}</trans-unit>'

    written = translate(tmp_path, HEAD_1 + unit + TAIL_1)

    new = PARTED_TARGET.replace("<target>", f"<target{STATE}>").replace("A DOG.", "Un chien.")
    assert written == (HEAD_1 + unit + TAIL_1).replace(target, new)


def test_lines_count_where_space_is_preserved(tmp_path: Path) -> None:
    unit = (
        '<trans-unit id="1" xml:space="preserve"><source> a dog.\n  a cat. </source></trans-unit>'
    )

    written = translate(tmp_path, HEAD_1 + unit + TAIL_1)

    assert f"<target{STATE}> A DOG.\n  A CAT. </target>" in written


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_target_is_indented_as_its_source(tmp_path: Path, line_end: str) -> None:
    unit = '<trans-unit id="1">\n    <source>a dog</source>\n    <note>n</note>\n  </trans-unit>'
    text = (HEAD_1 + unit + TAIL_1).replace("\n", line_end)

    written = translate(tmp_path, text)

    place = f"<source>a dog</source>{line_end}"
    assert written == text.replace(place, f"{place}    <target{STATE}>A DOG</target>{line_end}")


def test_prefixes_and_languages(tmp_path: Path) -> None:
    text = (
        '<x:xliff version="1.2" xmlns:x="urn:oasis:names:tc:xliff:document:1.2"><x:file><x:body>'
        '<x:trans-unit id="1"><x:source xml:lang="en">a dog</x:source></x:trans-unit></x:body>'
        "</x:file></x:xliff>"
    )

    written = translate(tmp_path, text, language="pt-BR")

    target = f'<x:target{STATE} xml:lang="pt-BR">A DOG</x:target>'
    expected = text.replace("<x:file>", '<x:file target-language="pt-BR">')
    assert written == expected.replace("</x:source>", f"</x:source>{target}")


def test_codes_that_a_translation_has_elsewhere(tmp_path: Path) -> None:
    """Whatever comes back, it is well-formed, and every code stands by itself once."""
    source = (
        '<source>a <g id="1">b <x id="2"/></g> <bpt id="3"/>c<ept id="3"/> &lt;i>d&lt;/i></source>'
    )
    text = f'{HEAD_1}<trans-unit id="1">{source}</trans-unit>{TAIL_1}'

    written = translate(tmp_path, text, change=lambda fragment: "un chien")

    target = written.partition("<target")[2].partition("</target>")[0]
    assert target.count('<x id="2"/>') == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<xliff",
        "<xliff/>",
        "<xliff version='3.0'/>",
        "<html version='1.2'/>",
        "<a></b>",
        "<xliff version='1.2'>&nbsp;</xliff>",
        "<xliff version='1.2'>\x01</xliff>",
        "<!DOCTYPE xliff [<!ENTITY a 'b'>]><xliff version='1.2'/>",
        "<?xml version='1.0' encoding='no-such'?><xliff version='3.2'/>",
        "<?xml version='1.0' encoding='ascii'?><xliff version='1.2'>é</xliff>",
    ],
)
def test_broken_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.xlf"
    path.write_text(text)

    with pytest.raises(RequestError, match="file"):
        read_document(path, path.name)


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ('<x id="1" equiv-text="{{ n }}"/> dogs', '<k id="2">{{ n }}</k> dogs'),
        ('<ph id="1">%s</ph> runs', '<k id="2">%s</k> runs'),
        ('<x id="1" equiv-text="&lt;br>"/>dogs', "dogs"),
        ('the <mrk mtype="protected">Big Dog</mrk> sleeps', 'the <k id="2">Big Dog</k> sleeps'),
    ],
)
def test_codes_that_are_words(tmp_path: Path, source: str, fragment: str) -> None:
    path = tmp_path / "a.xliff"
    path.write_text(f'{HEAD_1}<trans-unit id="1"><source>{source}</source></trans-unit>{TAIL_1}')

    assert [*read_document(path, path.name).fragments] == [fragment]


ITS = "{http://www.w3.org/2005/11/its}"


def reviewed(tmp_path: Path, text: str, *scores: float | None) -> etree._Element:
    path, target = tmp_path / "a.xlf", tmp_path / "b.xlf"
    path.write_bytes(text.encode())
    document = read_document(path, path.name)
    assert isinstance(document, ReviewedDocument)
    document.review = Review(scores, 0.5, "my model")
    document.write([shout_fragment(fragment) for fragment in document.fragments], target, "fr")
    return etree.parse(str(target)).getroot()


def test_targets_of_1_2_say_their_quality(tmp_path: Path) -> None:
    unit = '<trans-unit id="1"><source>a dog</source></trans-unit>'
    parted = f'<trans-unit id="4"><source>a dog. a cat.</source>{PARTED}</trans-unit>'

    root = reviewed(tmp_path, HEAD_1 + unit * 3 + parted + TAIL_1, 0.49, 0.5, None, 0.9, 0.2)

    bad, good, unknown, parts = root.iter("{*}target")
    assert root.get(f"{ITS}version") == "2.0"
    assert dict(bad.items()) == {
        "state": "needs-review-translation",
        "state-qualifier": "mt-suggestion",
        f"{ITS}mtConfidence": "0.4900",
        f"{ITS}annotatorsRef": "mt-confidence|attendant:my%20model",
    }
    assert (good.get("state"), good.get(f"{ITS}mtConfidence")) == ("translated", "0.5000")
    assert (unknown.get("state"), unknown.get(f"{ITS}mtConfidence")) == ("translated", None)
    assert parts.get(f"{ITS}mtConfidence") == "0.2000", "it is as good as its worst part"


def test_targets_of_2_0_say_their_quality(tmp_path: Path) -> None:
    segment = '<segment><source>a <pc id="1">dog</pc></source></segment>'

    root = reviewed(tmp_path, HEAD_2 + segment * 2 + TAIL_2, 0.1, 0.8)

    states = [dict(element.items()) for element in root.iter("{*}segment")]
    translated = {"state": "translated"}
    assert states == [translated | {"subState": "attendant:needs-review"}, translated]
    marks = [*root.iter("{*}mrk")]
    assert [mark.get(f"{ITS}mtConfidence") for mark in marks] == ["0.1000", "0.8000"]
    assert len({mark.get("id") for mark in marks}) == 2
    assert ["".join(map(str, mark.itertext())) for mark in marks] == ["A DOG", "A DOG"]
    assert read_document(tmp_path / "b.xlf", "b.xlf").fragments == []
