"""`attendant memory` against an application that asks for a key."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fastapi import FastAPI

from serving.access.key_ring import KEY_VARIABLE, KeyRing
from serving.commands.memory import memory
from serving.storage.opening import open_state
from serving.translation_memory.tmx import MemorySegment, TranslationUnit, write_tmx
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.listening import listening
from tests.serving.pipelines.fakes import byte_tokenizer

UNITS = [
    TranslationUnit(MemorySegment(f"A dog {word}."), {"fr": MemorySegment(f"Un chien {word}.")})
    for word in "abc"
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("memory")
    access = {"keys": KeyRing(None, {KEY_VARIABLE: "secret"}), "state": open_state(folder)}

    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with (
            made_world(byte_tokenizer(folder), access=access) as world,
            world.app.router.lifespan_context(world.app),
        ):
            yield world.app

    with listening(app) as found:
        yield found


def run(url: str, *words: str, key: str = "secret") -> Result:
    return CliRunner().invoke(memory, [*words, "--url", url], env={KEY_VARIABLE: key})


def test_a_memory_comes_and_goes(url: str, tmp_path: Path) -> None:
    file, output = tmp_path / "team.tmx", tmp_path / "out.tmx"
    file.write_text("".join(write_tmx("en", [*UNITS, UNITS[0]])))
    made = run(url, "import", str(file), "--name", "Team")
    assert (made.exit_code, made.stderr) == (0, "attendant: 1 units were skipped\n")
    identity = made.stdout.strip()
    assert run(url, "list").stdout == f"{identity}\ten > fr\t3\tTeam\n"
    assert run(url, "export", identity, "-o", str(output)).exit_code == 0
    assert output.read_text() == "".join(write_tmx("en", UNITS))
    assert run(url, "delete", identity).exit_code == 0
    assert run(url, "list").stdout == ""


def test_what_is_wrong_is_told(url: str, tmp_path: Path) -> None:
    file = tmp_path / "team.tmx"
    file.write_text("<tmx><header srclang='en'/>\n<body>\n<tu></body></tmx>")
    broken = run(url, "import", str(file))
    assert broken.exit_code == 2 and "line 3 is not well-formed XML" in broken.stderr
    assert "no such translation memory" in run(url, "delete", "none").stderr
    assert "needs a key" in run(url, "list", key="other").stderr
    assert "refused" in run("http://127.0.0.1:1", "list").stderr
