"""One Chromium for all tests of the page, and the page over the real server."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.serving.api.page.browser import Page, chromium

# Cumulative Layout Shift, https://web.dev/articles/cls: good up to here. All shifts count that come
# later than 500 ms after an input, so that slow machines count more of them.
GOOD_LAYOUT_SHIFT = 0.1


@pytest.fixture(scope="session")
def driver() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(driver: Chrome, server_url: str) -> Iterator[Page]:
    """The page, opened; the browser must have had nothing to say: no error, no broken policy. It
    notes refused requests by itself.
    """
    page = Page(driver)
    driver.get("about:blank")
    page.open(server_url)
    yield page
    said = [entry["message"] for entry in driver.get_log("browser")]
    assert [message for message in said if "status of 400" not in message] == []
    assert page.run("return window.shifted") < GOOD_LAYOUT_SHIFT
