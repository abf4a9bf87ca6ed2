"""The page at `/`: what is sent, and what a browser is told that it may do."""

import re
from pathlib import Path

import pytest

from serving.api import application
from tests.serving.api.world import World

FOLDER = Path(application.__file__).parent / "page"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
PATHS = [f"/page/{path.relative_to(FOLDER)}" for path in FILES]


@pytest.mark.parametrize("path", ["/", *PATHS])
async def test_a_browser_may_run_only_what_is_here(world: World, path: str) -> None:
    response = await world.client.get(path)

    assert response.status_code == 200
    policy = dict(
        part.split(" ", 1) for part in response.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert {policy[f"{item}-src"] for item in ("script", "style", "img", "connect")} == {"'self'"}
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/page/app.js"])
async def test_what_has_not_changed_is_not_sent_again(world: World, path: str) -> None:
    tag = (await world.client.get(path)).headers["etag"]

    again = await world.client.get(path, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert "content-security-policy" in again.headers


async def test_all_that_the_page_names_is_there(world: World) -> None:
    page = (await world.client.get("/")).text
    named = {*re.findall(r'(?:src|href)="([^"]*)"', page)}
    for path in named:
        assert (await world.client.get(f"/{path}")).status_code == 200
    modules = {
        (path.parent / name).resolve()
        for path in FOLDER.rglob("*.js")
        for name in re.findall(r'from "([^"]*)"', path.read_text(encoding="utf-8"))
    }
    scripts = {FOLDER / name.removeprefix("page/") for name in named if name.endswith(".js")}
    assert modules | scripts == {*FOLDER.rglob("*.js")}


def test_it_is_small_and_brings_no_markup_of_its_own_into_texts() -> None:
    sources = [path.read_text(encoding="utf-8") for path in FILES]
    loaded = [path for path in FILES if path.parent.name != "messages" or path.name == "en.json"]
    assert sum(path.stat().st_size for path in loaded) < 240_000
    for source in sources:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source
        )
        assert not re.search(r'https?://(?!www\.w3\.org/2000/svg")', source)
    assert not re.search(r"<style|\sstyle=|\son\w+=", (FOLDER / "index.html").read_text())


@pytest.mark.parametrize("path", ["/page/none.js", "/page/%2e%2e/front_page.py", "/page/"])
async def test_nothing_else_is_sent(world: World, path: str) -> None:
    response = await world.client.get(path)
    assert (response.status_code, response.json()) == (404, {"error": "Not Found"})


async def test_other_methods_are_refused_in_the_usual_shape(world: World) -> None:
    response = await world.client.post("/")
    assert (response.status_code, response.json()) == (405, {"error": "Method Not Allowed"})
    assert (await world.client.head("/")).status_code == 200
