"""TMX files: read unit by unit, written again, and refused with the line."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import RequestError
from serving.pipelines.translation.memory import InlineCode
from serving.text.markup.tokens import Role
from serving.translation_memory.tmx import (
    MemorySegment,
    TmxFile,
    TranslationUnit,
    normalize_segment,
    parse_inline_codes,
    write_tmx,
)

HEADER = '<tmx version="1.4"><header srclang="{}" datatype="plaintext"/>\n<body>\n'
END = "</body></tmx>"


def variant(language: str, content: str) -> str:
    return f'<tuv xml:lang="{language}"><seg>{content}</seg></tuv>'


def file_of(folder: Path, *units: str, source: str = "en", head: str = "") -> TmxFile:
    path = folder / "file"
    body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
    path.write_text(f"{head}{HEADER.format(source)}{body}\n{END}", encoding="utf-8")
    return TmxFile(path, "team.tmx")


def test_units_with_several_targets_and_codes(tmp_path: Path) -> None:
    code = '<bpt i="1">&lt;b&gt;</bpt>{}<ept i="1">&lt;/b&gt;</ept>'
    file = file_of(
        tmp_path,
        variant("fr-FR", "Un  chien") + variant("EN_us", " A\ndog ") + variant("de", "Hund"),
        variant("en-US", f"Press {code.format('OK')} &amp; go") + variant("fr", "Allez"),
        variant("en-US", "שלום") + variant("he", "שלום עולם"),
        source="en-US",
        head='<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n',
    )
    first, second, third = file.units()

    assert first == TranslationUnit(
        MemorySegment("A dog"), {"fr-fr": MemorySegment("Un chien"), "de": MemorySegment("Hund")}
    )
    assert second.source == MemorySegment("Press OK & go", f"Press {code.format('OK')} &amp; go")
    assert third.targets == {"he": MemorySegment("שלום עולם")}
    assert (file.source_language, file.num_skipped) == ("en-us", 0)


def test_units_without_source_or_target_are_skipped(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        variant("fr", "Un chien") + variant("de", "Hund"),
        variant("en", "A dog"),
        variant("en", " ") + variant("fr", "Vide"),
        variant("en-GB", "Colour") + variant("fr", "Couleur"),
    )
    assert [unit.source.text for unit in file.units()] == ["Colour"]
    assert file.num_skipped == 3


def test_the_first_language_is_the_source_where_any_may_be(tmp_path: Path) -> None:
    unit = variant("de", "Hund") + variant("en", "dog")
    file = file_of(tmp_path, unit, source="*all*")
    [read] = file.units()
    assert (file.source_language, read.source.text) == ("de", "Hund")


@pytest.mark.parametrize(
    ("units", "head", "message"),
    [
        (["<tuv>"], "", "line 3 is not well-formed XML: Opening and ending tag mismatch"),
        (["", variant("e?", "a")], "", "line 4 has the language 'e?', which is no code"),
        (["<tuv><seg>a</seg></tuv>"], "", "line 3 has a tuv without xml:lang"),
        (['<tuv xml:lang="en"/>'], "", "line 3 has a tuv without a seg"),
        (
            [variant("en", "&a;")],
            '<!DOCTYPE tmx [<!ENTITY a "b">]>',
            "line 1 must not declare entities",
        ),
        (
            [variant("en", "a")],
            '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
            "line 1 must not declare entities",
        ),
        ([variant("en", "a" * 20_001)], "", "line 3 has a segment of more than 20000 characters"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, units: list[str], head: str, message: str
) -> None:
    with pytest.raises(RequestError, match=r"team\.tmx") as failure:
        [*file_of(tmp_path, *units, head=head).units()]
    assert failure.value.message.startswith(message)


@pytest.mark.parametrize("text", ["", "no XML", "<html></html>", '{"a": 1}'])
def test_what_is_no_tmx_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(RequestError, match="line 1"):
        [*TmxFile(path, "team.tmx").units()]


def test_inline_codes_have_what_they_share_with_the_other_language() -> None:
    source = parse_inline_codes('a <bpt i="1" x="7"/>b<ept i="1"/> <ph x="2"/><hi>c</hi>')
    target = parse_inline_codes('<hi>c</hi> <ph x="2"/><bpt i="4" x="7"/>b<ept i="4"/>')
    codes = [part for part in source if isinstance(part, InlineCode)]
    assert [code.kind for code in codes] == [
        *(Role.OPEN, Role.CLOSE, Role.POINT, Role.OPEN, Role.CLOSE)
    ]
    assert {*codes} == {part for part in target if isinstance(part, InlineCode)}


TEXT = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), min_size=1
).filter(lambda text: normalize_segment(text) != "")


@settings(max_examples=50)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    units = [
        TranslationUnit(
            MemorySegment(normalize_segment(source)),
            {"fr": MemorySegment(normalize_segment(target))},
        )
        for source, target in pairs
    ]
    path = tmp_path_factory.mktemp("tmx") / "file"
    path.write_text("".join(write_tmx("en", units)), encoding="utf-8")
    assert [*TmxFile(path, "team.tmx").units()] == units
