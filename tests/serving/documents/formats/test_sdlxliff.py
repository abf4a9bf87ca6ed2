"""SDLXLIFF: each segment of Trados gets its own translation, and says where that is from."""

from pathlib import Path

import pytest

from tests.serving.documents.shouting import shout_file

FILE = (
    '\ufeff<xliff version="1.2" xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"><file '
    'target-language="fr"><trans-unit id="s" translate="no"><source>no</source></trans-unit>'
    '<trans-unit id="a"><source>a dog. two. three.</source><seg-source><g id="5"><mrk mtype="seg"'
    ' mid="1">a <g id="6">dog</g>.</mrk> <mrk mtype="seg" mid="2">two.</mrk></g> <mrk mtype="seg"'
    ' mid="3">three.</mrk></seg-source>%s<sdl:seg-defs><sdl:seg id="1"%s><sdl:value key="k"/>'
    '</sdl:seg><sdl:seg id="2"%s/><sdl:seg id="3" locked="true"/></sdl:seg-defs></trans-unit>'
    "</file></xliff>"
)
TARGET = (
    '<target><g id="5"><mrk mtype="seg" mid="1">%s</mrk> <mrk mtype="seg" mid="2">%s</mrk></g>'
    ' <mrk mtype="seg" mid="3"></mrk></target>'
)
DOG, MADE, DONE = 'A <g id="6">DOG</g>.', ' conf="Draft" origin="mt"', ' conf="Translated"'
OTHER = ' conf="Draft" origin="tm" origin-system="memory" percent="70" text-match="Source"'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (
            FILE % (TARGET % ("", "deux."), OTHER, DONE),
            FILE % (TARGET % (DOG, "deux."), MADE, DONE),
        ),
        (FILE % ("", "", ""), FILE % (TARGET % (DOG, "TWO."), MADE, MADE)),
        (FILE % (TARGET % ("un.", "deux."), DONE, ""),) * 2,
    ],
)
def test_segments(tmp_path: Path, text: str, written: str) -> None:
    path, target = tmp_path / "a.sdlxliff", tmp_path / "b.sdlxliff"
    path.write_bytes(text.encode())

    shout_file(path, target)

    assert target.read_bytes().decode() == written
