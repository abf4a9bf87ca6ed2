"""SDLXLIFF: each segment of Trados gets its own translation, and says where that is from."""

from pathlib import Path

from lxml import etree

from tests.serving.documents.shouting import shouted_file

FILE = (
    '\ufeff<?xml version="1.0" encoding="utf-8"?><xliff version="1.2" xmlns="urn:oasis:names:tc:'
    'xliff:document:1.2" xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0" sdl:version="1.0">'
    '<sdl:doc-info/><file original="a.docx" source-language="en-US" target-language="fr-FR">'
    '<header><tag-defs xmlns="http://sdl.com/FileTypes/SdlXliff/1.0"><tag id="5"><bpt name="cf">'
    "&lt;cf bold=True&gt;</bpt></tag></tag-defs></header><body>"
    '<trans-unit id="s" translate="no"><source><x id="0"/></source></trans-unit>'
    '<group><trans-unit id="a"><source>one dog. two dogs. three. four.</source><seg-source>'
    '<g id="5"><mrk mtype="seg" mid="1">one <g id="6">dog</g>.</mrk> <mrk mtype="seg" mid="2">two'
    ' dogs.</mrk></g> <mrk mtype="seg" mid="3">three.</mrk> <mrk mtype="seg" mid="4">four.</mrk>'
    "</seg-source>%s<sdl:seg-defs>%s</sdl:seg-defs></trans-unit></group></body></file></xliff>"
)
TARGET = (
    '<target><g id="5"><mrk mtype="seg" mid="1">%s</mrk> <mrk mtype="seg" mid="2">deux chiens.'
    '</mrk></g> <mrk mtype="seg" mid="3">%s</mrk> <mrk mtype="seg" mid="4">%s</mrk></target>'
)
SEGMENTS = (
    '<sdl:seg id="1"%s><sdl:value key="k">v</sdl:value></sdl:seg><sdl:seg id="2" conf="Translated"'
    ' origin="tm" percent="100"/><sdl:seg id="3" locked="true"/><sdl:seg id="4"%s />'
)


def shout(tmp_path: Path, text: str) -> tuple[list[str], str]:
    path, target = tmp_path / "a.sdlxliff", tmp_path / "b.sdlxliff"
    path.write_bytes(text.encode())
    fragments = shouted_file(path, target)
    etree.parse(str(target))
    return fragments, target.read_bytes().decode()


def test_segments_without_a_translation(tmp_path: Path) -> None:
    origin = ' conf="Draft" origin="tm" origin-system="memory" percent="70" text-match="Source"'
    text = FILE % (TARGET % ("", "", ""), SEGMENTS % ("", origin))

    fragments, written = shout(tmp_path, text)

    assert fragments == ['one <g id="2">dog</g>.', "four."]
    made = TARGET % ('ONE <g id="6">DOG</g>.', "", "FOUR.")
    says = ' conf="Draft" origin="mt"'
    assert written == FILE % (made, SEGMENTS % (says, says))


def test_a_file_without_targets(tmp_path: Path) -> None:
    _, written = shout(tmp_path, FILE % ("", SEGMENTS % ("", "")))

    says = ' conf="Draft" origin="mt"'
    segments = (SEGMENTS % (says, says)).replace(
        ' conf="Translated" origin="tm" percent="100"', says
    )
    target = TARGET.replace("deux chiens", "TWO DOGS") % ('ONE <g id="6">DOG</g>.', "", "FOUR.")
    assert written == FILE % (target, segments)


def test_a_file_that_is_translated(tmp_path: Path) -> None:
    text = FILE % (TARGET % ("un.", "trois.", "quatre."), SEGMENTS % ("", ""))

    assert shout(tmp_path, text) == ([], text)
