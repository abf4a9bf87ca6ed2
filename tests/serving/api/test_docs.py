"""The page at `/docs`: all of it comes from this server."""

import re

import pytest

from tests.serving.api.world import World


async def test_all_that_the_page_loads_is_served_here(world: World) -> None:
    page = (await world.client.get("/docs")).text

    links = re.findall(r"(?:src|href)=\"([^\"]*)\"", page) + re.findall(r"url: '([^']*)'", page)
    assert {link.rpartition(".")[2] for link in links} == {"css", "js", "json", "png"}
    for link in links:
        assert link.startswith("/")
        assert (await world.client.get(link)).status_code == 200
    assert "https:" not in page


@pytest.mark.parametrize("path", ["/redoc", "/static-offline-docs/none.js"])
async def test_what_is_not_there_is_told_in_the_usual_shape(world: World, path: str) -> None:
    response = await world.client.get(path)

    assert (response.status_code, response.json()) == (404, {"error": "Not Found"})
