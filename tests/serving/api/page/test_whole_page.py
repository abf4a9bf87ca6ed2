"""Tests what holds for all of the page: keyboard, contrast, narrow screens, no other origin."""

from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.serving.api.page.browser import SENTENCES, TABS, Page, needs_browser

pytestmark = needs_browser
LOADED = "return performance.getEntriesByType('resource').map((each) => each.name)"
FAINT = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
HAS_RING = """
    const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
    const around = document.activeElement.closest(":focus-within.drop");
    return around !== null || (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2);
"""


def test_tabs_by_the_keyboard_models_and_load(page: Page) -> None:
    page.at("tab-translate").send_keys(Keys.ARROW_LEFT)
    assert page.focused().text == "Load"
    page.until(lambda: page.all("#charts .numbers b")[1].text == "0")
    assert len(page.all("#charts svg")) == len(page.all("#charts .card"))

    page.focused().send_keys(Keys.ARROW_LEFT)
    names = [each.text for each in page.all("#cards h2")]
    assert {"transformer-en-fr", "llama-en", "far-german"} <= {*names}


def test_a_model_shows_its_card(page: Page) -> None:
    page.tab("models")
    [card] = [each for each in page.all("#cards .card") if "transformer-en-fr\n" in each.text]
    card.find_element("css selector", "summary").click()
    page.until(lambda: "Licence" in [each.text for each in page.all(".about h4")])
    assert page.all(".about table")
    assert page.all(".about img") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_need_no_scrolling_aside(page: Page, scheme: str) -> None:
    with page.looking_like(scheme, width=390):
        page.translate("A dog runs " + "verylongwordindeed" * 10)
        for name in TABS:
            page.tab(name)
            width = page.run("return document.documentElement.scrollWidth")
            assert width <= 390, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(page: Page, scheme: str) -> None:
    with page.looking_like(scheme, width=1280):
        page.translate(SENTENCES)
        page.all("#grid-details summary")[0].send_keys(Keys.ENTER)
        page.until(lambda: page.all("#grid table"))
        page.all(".word")[1].click()
        page.until(lambda: page.all("#alternatives button"))
        assert page.run(FAINT) == []
        page.tab("write")
        page.at("logprobs").click()
        page.write("llama-en", "It was")
        for name in ("write", "models", "load"):
            page.tab(name)
            assert page.run(FAINT) == [], name


@pytest.mark.parametrize("tab", TABS)
def test_the_keyboard_shows_where_it_is(page: Page, tab: str) -> None:
    page.tab(tab)
    page.at(f"tab-{tab}").send_keys("")
    for _ in range(12):
        page.focused().send_keys(Keys.TAB)
        if page.focused().tag_name == "body":
            break
        assert page.run(HAS_RING), page.focused().get_attribute("outerHTML")


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_nothing_comes_from_elsewhere(page: Page, server_url: str, path: str) -> None:
    page.driver.get(server_url + path)
    page.until(lambda: page.all("#tab-load, .opblock"))
    loaded = page.run(LOADED)
    assert loaded
    assert [name for name in loaded if not name.startswith(server_url)] == []
