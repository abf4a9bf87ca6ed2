"""The page at `/` while its server is slow, stops, or asks for a key, in a real Chromium."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import made_world
from tests.serving.api.page.browser import Page, listening, needs_browser
from tests.serving.api.world import World

pytestmark = needs_browser


class Server:
    """A server that can be stopped and started again at the same address."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._running = AsyncExitStack()
        self._port = free_port()

    async def start(self, **options: Any) -> tuple[str, World]:
        """Start; options: of the translator's manifest."""
        making = made_world(self._tokenizer, **options)
        world = await self._running.enter_async_context(making)
        return self._running.enter_context(listening(world.app, self._port)), world

    async def stop(self) -> None:
        await self._running.aclose()


@pytest.fixture
async def server(driver: Chrome, tokenizer: Tokenizer) -> AsyncIterator[Server]:
    server = Server(tokenizer)
    yield server
    await server.stop()
    driver.get("about:blank")
    driver.get_log("browser")  # what could not be reached


async def test_a_server_that_stops_is_told_of_and_waited_for(
    driver: Chrome, server: Server
) -> None:
    page = Page(driver)
    url, _ = await server.start()
    page.open(url)
    page.choose("source", "en")
    assert page.translate("a dog") == "A DOG"

    await server.stop()
    page.at("text").send_keys(" runs")
    page.until(lambda: "cannot be reached" in page.at("connection").text)
    assert "cannot be reached" in page.at("translate-error").text

    await server.start()
    page.until(lambda: page.at("translation").text == "A DOG RUNS")
    assert page.at("translate-error").text == ""
    page.until(lambda: page.at("connection").text == "")


async def test_a_slow_answer_can_be_stopped(driver: Chrome, server: Server) -> None:
    page = Page(driver)
    url, world = await server.start()
    page.open(url)
    page.choose("source", "en")
    world.translator_engine.gate = asyncio.Event()  # never set

    page.at("text").send_keys("a dog")
    page.until(lambda: page.at("stop-translating").is_displayed())
    assert page.at("translation").get_attribute("aria-busy") == "true"
    page.at("stop-translating").click()
    assert page.at("translation").get_attribute("aria-busy") == "false"
    page.until(lambda: world.translator_engine.cancelled)
    assert page.at("translate-error").text == ""


async def test_an_answer_that_breaks_off_is_told_of(driver: Chrome, server: Server) -> None:
    page = Page(driver)
    url, world = await server.start()
    page.open(url)
    world.generator_engine.gate = asyncio.Event()  # never set
    page.tab("write")
    page.at("prompt").send_keys("once", Keys.CONTROL, Keys.ENTER)
    page.until(lambda: world.generator_engine.requests)

    await server.stop()
    page.until(lambda: page.at("written").get_attribute("aria-busy") == "false")
    assert page.at("write-error").text != ""


async def test_languages_are_swapped_where_there_is_a_way_back(
    driver: Chrome, server: Server
) -> None:
    page = Page(driver)
    both = ("en", "fr")
    url, _ = await server.start(source_languages=both, target_languages=("de", *both))
    page.open(url)
    page.choose("source", "en")
    page.choose("target", "fr")
    assert page.translate("a dog") == "A DOG"
    page.at("swap").click()

    chosen = [page.at(name).get_attribute("value") for name in ("source", "target", "text")]
    assert chosen == ["fr", "en", "A DOG"]
    page.choose("target", "de")
    assert not page.at("swap").is_enabled()
    assert page.at("swap").get_attribute("title") == "No model here translates German to French."


@pytest.fixture
async def guarded_url(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[str]:
    """A server that asks for a key: `secret`."""
    write_keys(tmp_path / "keys.json", (KeyEntry(name="alice", sha256=hash_key("secret")),))
    access = {"keys": KeyRing(tmp_path / "keys.json", {}), "metrics_need_key": True}
    async with made_world(tokenizer, access=access) as world:
        with listening(world.app, free_port()) as url:
            yield url


async def test_a_key_is_asked_for_and_kept_for_the_session(
    driver: Chrome, guarded_url: str
) -> None:
    page = Page(driver)
    page.open(guarded_url)
    page.until(lambda: page.at("key").is_displayed())
    page.tab("models")
    assert "Authorization: Bearer KEY" in page.at("models-error").text

    page.at("key").send_keys("secret", Keys.ENTER)
    page.until(lambda: page.all("#cards h2"))
    driver.refresh()
    page.until(lambda: page.all("#cards h2"))
    assert page.at("models-error").text == ""
    driver.execute_script("sessionStorage.clear()")
    driver.get_log("browser")  # the refusals
