"""Chats on the page at `/`: what Enter does, and code that is written piece by piece."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.page.browser import Page, listening, needs_browser
from tests.serving.api.world import World

pytestmark = needs_browser
BEFORE, CODE = "Of course:\n\n", "```python\nprint(1)\n\nprint(2)\n"
AFTER = "```\n\nThat is all."
COMPOSE = """
arguments[0].dispatchEvent(new KeyboardEvent("keydown", {
    key: "Enter", bubbles: true, cancelable: true, ...arguments[1],
}));
"""


class Gate(asyncio.Event):
    """Lets so many waits pass."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self.passes = passes

    async def wait(self) -> Literal[True]:
        self.passes -= 1
        return True if self.passes >= 0 else await super().wait()


@pytest.fixture
async def chat(driver: Chrome, tokenizer: Tokenizer) -> AsyncIterator[tuple[Page, World]]:
    """The page over a model that answers every message with a piece of code."""
    async with made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE}) as world:
        world.generator_engine.script = lambda request: tokenizer.encode(BEFORE + CODE + AFTER)
        with listening(world.app, free_port()) as url:
            page = Page(driver)
            driver.get("about:blank")
            page.open(url)
            page.tab("write")
            page.until(lambda: page.all("[name=mode][value=chat]")[0].is_selected())
            yield page, world
            driver.get("about:blank")


def codes(page: Page) -> list[str]:
    return [code.text for code in page.all("#written .code code")]


async def test_code_has_a_copy_button_while_it_is_written(
    chat: tuple[Page, World], tokenizer: Tokenizer
) -> None:
    page, world = chat
    world.generator_engine.gate = Gate(len(tokenizer.encode(BEFORE + CODE)))
    page.at("prompt").send_keys("Print numbers.", Keys.ENTER)
    page.until(lambda: codes(page) == ["print(1)\n\nprint(2)"])
    assert page.at("written").get_attribute("aria-busy") == "true"
    assert [place.text for place in page.all("#written .code span")] == ["python"]
    button = page.all("#written .code button")[0]
    assert button.text == "Copy"
    button.click()
    page.until(lambda: button.text in ("Copied", "Selected"))
    page.at("stop").click()
    page.until(lambda: page.at("written").get_attribute("aria-busy") == "false")


async def test_text_after_code_is_no_code(chat: tuple[Page, World]) -> None:
    page, _ = chat
    page.at("prompt").send_keys("Print numbers.", Keys.ENTER)
    page.until(lambda: page.at("written").get_attribute("aria-busy") == "false")
    assert codes(page) == ["print(1)\n\nprint(2)"]
    assert [text.text for text in page.all(".answer > p")] == ["Of course:", "That is all."]


@pytest.mark.parametrize("composing", [{"isComposing": True}, {"keyCode": 229}])
async def test_enter_that_ends_a_composition_sends_nothing(
    chat: tuple[Page, World], composing: dict[str, object]
) -> None:
    page, world = chat
    page.at("prompt").send_keys("にほん")
    page.run(COMPOSE, page.at("prompt"), composing)
    assert page.all("#written .who") == [] and world.generator_engine.requests == []

    page.run(COMPOSE, page.at("prompt"), {})
    page.until(lambda: page.all("#written .who"))


async def test_the_page_says_what_enter_does(chat: tuple[Page, World]) -> None:
    page, _ = chat
    assert "Enter sends" in page.at("write-hint").text
    assert page.at("prompt").get_attribute("enterkeyhint") == "send"
    page.all("[name=mode][value=completion]")[0].click()
    assert "Control+Enter" in page.at("write-hint").text
    assert page.at("prompt").get_attribute("enterkeyhint") == "enter"
