"""Tests what holds for all of the page: keyboard, contrast, narrow screens, no other origin."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.serving.api.page.browser import SENTENCES, TABS, Page, needs_browser

pytestmark = [needs_browser, pytest.mark.full]
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
    # The server has kept what was before the tab was opened: lines have points at once.
    page.until(lambda: "L" in (page.all("#charts path")[0].get_attribute("d") or ""))
    page.until(lambda: page.all("#charts .numbers b")[1].text == "0")
    assert len(page.all("#charts svg")) == len(page.all("#charts .card"))

    page.focused().send_keys(Keys.ARROW_LEFT)
    names = [element.text for element in page.all("#cards h2")]
    assert {"transformer-en-fr", "llama-en", "far-german"} <= {*names}


def test_colours_are_chosen_and_kept(page: Page, server_url: str) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    with page.looking_like("light", width=1280):
        light = page.run(paper)
        page.choose("theme", "dark")
        assert page.run(paper) != light
        page.open(server_url)
        assert page.run(paper) != light
        page.choose("theme", "system")
        assert page.run(paper) == light


def test_texts_are_compared(page: Page) -> None:
    page.tab("compare")
    page.at("query").clear()
    page.at("query").send_keys("a dog")
    page.at("compared").clear()
    page.at("compared").send_keys("two cats\na dog\n\na bird")
    page.all("#compare button[type=submit]")[0].click()
    page.until(lambda: page.all("#similar li"))
    lines = [element.text.split("\n") for element in page.all("#similar li")]
    assert lines[0] == ["1.000", "a dog"] and {line[1] for line in lines} == {
        *("two cats", "a dog", "a bird")
    }
    assert [line[0] for line in lines] == sorted((line[0] for line in lines), reverse=True)


@pytest.mark.parametrize("language", ["curl", "Python"])
def test_what_a_program_asks_is_answered_as_on_the_page(page: Page, language: str) -> None:
    displayed = page.translate("It's a dog that runs. <the file in base64>")
    page.run("arguments[0].open = true", page.all("#translate .snippet")[0])
    Select(page.all("#translate .snippet select")[0]).select_by_visible_text(language)
    code = page.all("#translate .snippet pre")[0].text
    command = ["bash", "-c", code] if language == "curl" else [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(answer)["translatedText"] == displayed


@pytest.mark.parametrize("tab", TABS)
def test_each_tab_shows_how_a_program_asks(page: Page, tab: str) -> None:
    page.tab(tab)
    page.run("for (const each of document.querySelectorAll('.snippet')) each.open = true")
    codes = page.all(f"#{tab} .snippet pre")
    page.until(lambda: all(code.text.startswith("curl http") for code in codes))
    assert codes


def test_a_model_shows_its_card(page: Page) -> None:
    page.tab("models")
    [card] = [
        element for element in page.all("#cards .card") if "transformer-en-fr\n" in element.text
    ]
    card.find_elements("css selector", "summary")[-1].click()
    page.until(lambda: "Licence" in [element.text for element in page.all(".about h4")])
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
        page.until(lambda: page.all("#grid table"))
        page.all(".word")[1].click()
        page.until(lambda: page.all("#alternatives button"))
        assert page.run(FAINT) == []
        page.tab("write")
        page.at("logprobs").click()
        page.write("llama-en", "It was")
        for name in ("write", "picture", "models", "load"):
            page.tab(name)
            assert page.run(FAINT) == [], name


@pytest.mark.parametrize("tab", TABS)
def test_the_keyboard_shows_where_it_is(page: Page, tab: str) -> None:
    page.tab(tab)
    page.at(f"tab-{tab}").send_keys("")
    for _ in range(12):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
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
