"""`/docs` of a server that needs keys, in a real Chromium: Authorize, then try requests."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.remote.webelement import WebElement

from serving.access.key_ring import KEY_VARIABLE, KeyRing
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import made_world
from tests.serving.api.page.browser import Page, listening, needs_browser

pytestmark = needs_browser


@pytest.fixture
async def docs(driver: Chrome, tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator["DocsPage"]:
    access = {"keys": KeyRing(None, {KEY_VARIABLE: "secret"}), "state": open_state(tmp_path)}
    async with made_world(tokenizer, access=access) as world:
        with listening(world.app, free_port()) as url:
            yield DocsPage(Page(driver), url)
            driver.get("about:blank")
            driver.get_log("browser")  # refused requests


class DocsPage:
    """Does what a person does with the page, on which each operation and scheme is a block."""

    def __init__(self, page: Page, url: str) -> None:
        self._page, self._url = page, url

    def open(self) -> None:
        """Open the page; keys that were entered before are forgotten."""
        self._page.driver.get(f"{self._url}/docs")
        self._page.until(lambda: self._page.all(".opblock"))

    def authorize(self, scheme: str, value: str) -> None:
        self._click(".scheme-container .authorize")
        self._page.until(lambda: self._page.all(".auth-container"))
        [block] = [
            block
            for block in self._page.all(".auth-container")
            if re.match(rf"{scheme}\s", block.text)
        ]
        block.find_element("css selector", "input").send_keys(value)
        self._click_on(block.find_element("css selector", "button.authorize"))
        self._click(".auth-container .btn-done")

    def try_out(self, path: str) -> tuple[int, str]:
        """Execute a GET request; return the status and the body of the answer."""
        block = f".opblock-get:has([data-path='{path}'])"
        self._click(f"{block} .opblock-summary-control")
        self._click(f"{block} .try-out__btn")
        self._click(f"{block} .execute")
        answer = f"{block} .live-responses-table .response"
        self._page.until(lambda: self._page.all(answer))
        [row] = self._page.all(answer)
        return int(row.find_element("css selector", ".response-col_status").text[:3]), row.text

    def _click(self, selector: str) -> None:
        self._page.until(lambda: self._page.all(selector))
        self._click_on(self._page.all(selector)[0])

    def _click_on(self, element: WebElement) -> None:
        """Click, wherever the element is: the dialog is longer than the window."""
        self._page.run("arguments[0].click()", element)


@pytest.mark.parametrize(
    ("path", "scheme", "value", "status"),
    [
        ("/v1/models", "Bearer", "secret", 401),
        pytest.param(
            *("/v2/usage", "DeepL-Auth-Key", "DeepL-Auth-Key secret", 403), marks=pytest.mark.full
        ),
        pytest.param("/usage", "api_key", "secret", 403, marks=pytest.mark.full),
    ],
)
async def test_a_request_is_answered_after_authorize(
    docs: DocsPage, path: str, scheme: str, value: str, status: int
) -> None:
    docs.open()
    refused = docs.try_out(path)
    docs.open()
    docs.authorize(scheme, value)
    answered = docs.try_out(path)

    assert refused[0] == status and "needs a key" in refused[1]
    assert answered[0] == 200


async def test_a_wrong_key_is_refused_in_words(docs: DocsPage) -> None:
    docs.open()
    docs.authorize("DeepL-Auth-Key", "secret")
    status, text = docs.try_out("/v2/usage")

    assert status == 403 and "sent as Authorization: DeepL-Auth-Key KEY" in text
