"""What the translator's tab offers at each moment: empty, translated, refused, and from a link."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from selenium.webdriver import Chrome

from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import made_world
from tests.serving.api.page.browser import Page, listening, needs_browser
from tests.serving.pipelines.fakes import shouting_translator

pytestmark = needs_browser
CONTROLS = ("words-help", "show-quality", "copy", "clear-text", "attention")
HASH = "return decodeURIComponent(location.hash)"
Serve = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
async def serve(driver: Chrome, tokenizer: Tokenizer) -> AsyncIterator[Serve]:
    """Serves one translator with fields of its manifest; yields the URL."""

    @asynccontextmanager
    async def serve(**options: Any) -> AsyncIterator[str]:
        async with made_world(tokenizer, **options) as world:
            with listening(world.app, free_port()) as url:
                yield url
            driver.get("about:blank")
            driver.get_log("browser")  # refusals

    yield serve


def offered(page: Page) -> list[str]:
    return [name for name in CONTROLS if page.at(name).is_displayed()]


async def test_controls_are_there_while_there_is_something_to_do(
    driver: Chrome, serve: Serve
) -> None:
    page = Page(driver)
    async with serve() as url:
        page.open(url)
        assert offered(page) == []
        page.translate("a dog runs")
        page.until(lambda: offered(page) == list(CONTROLS))
        page.at("clear-text").click()
        page.until(lambda: offered(page) == [])


async def test_a_refused_text_shows_nothing_of_the_one_before(driver: Chrome, serve: Serve) -> None:
    page = Page(driver)
    async with serve() as url:
        page.open(url)
        assert page.translate("A dog runs in the garden.") == "A DOG RUNS IN THE GARDEN."
        assert page.at("detected").text.startswith("English, ")

        page.at("text").clear()
        page.at("text").send_keys("Guten Tag, wie geht es Ihnen heute Abend?")
        page.until(lambda: page.at("translate-error").text)
        assert "seems to be German, which no model here translates into French" in (
            page.at("translate-error").text
        )
        assert (page.at("translation").text, page.at("detected").text) == ("", "")
        page.until(lambda: offered(page) == ["clear-text"])


async def test_an_unreadable_glossary_shows_no_translation(driver: Chrome, serve: Serve) -> None:
    page = Page(driver)
    async with serve() as url:
        page.open(url)
        page.translate("a dog runs")
        page.run("document.querySelector('details:has(#glossary)').open = true")
        page.at("glossary").send_keys("dog")
        page.until(lambda: "term = translation" in page.at("translate-error").text)
        assert page.at("translation").text == ""


@asynccontextmanager
async def new_tab(driver: Chrome) -> AsyncIterator[None]:
    """Use a tab without a history: Chromium keeps the last 50 entries of each."""
    before = driver.current_window_handle
    driver.switch_to.new_window("tab")
    try:
        yield
    finally:
        driver.close()
        driver.switch_to.window(before)


async def test_the_address_follows_the_text_without_filling_the_history(
    driver: Chrome, serve: Serve
) -> None:
    page = Page(driver)
    async with serve() as url, new_tab(driver):
        page.open(url)
        entries = page.run("return history.length")
        page.choose("source", "en")
        page.translate("50% of 1/2\nis # a quarter")
        assert page.run(HASH) == "#en/fr/50% of 1/2\nis # a quarter"
        link = page.run("return location.href")

        driver.get("about:blank")
        driver.get(link)
        page.until(lambda: page.at("translation").text == "50% OF 1/2\nIS # A QUARTER")
        assert page.at("source").get_attribute("value") == "en"

        page.run("arguments[0].value = 'word '.repeat(900)", page.at("text"))
        page.at("text").send_keys("x")
        page.until(lambda: page.run(HASH) == "#en/fr")
        page.tab("models")
        assert page.run(HASH) == "#models"
        page.tab("translate")
        assert page.run(HASH) == "#en/fr"
        assert page.run("return history.length") == entries + 2  # the blank page and the link


async def test_a_link_to_languages_that_are_not_served_is_told_by_their_names(
    driver: Chrome, serve: Serve
) -> None:
    page = Page(driver)
    async with serve() as url:
        driver.get(f"{url}/#ja/de/text")
        page.until(lambda: page.at("translate-error").text)
        assert page.at("translate-error").text == "No model here translates Japanese to German."
        assert page.at("translation").text == ""


async def test_a_model_for_general_text_is_offered_first_and_others_say_what_they_know(
    driver: Chrome, serve: Serve, tokenizer: Tokenizer
) -> None:
    page = Page(driver)
    general, _ = shouting_translator(tokenizer, "general", target_languages=("pt",))
    async with serve(domain="captions", others=[general]) as url:
        page.open(url)
        assert page.at("target").get_attribute("value") == "pt"
        assert page.at("model-note").text == ""
        examples = page.all("#examples button")
        assert len(examples) == 3 and "meeting" in examples[0].text

        page.choose("target", "fr")
        assert page.at("model-note").text == "English to French: trained on captions"
        assert [option.text for option in page.all("#translator option")][1:] == [
            "shout (trained on captions)"
        ]
        page.all("#examples button")[0].click()
        page.until(lambda: page.at("translation").text == "A DOG RUNS THROUGH THE SNOW.")
        assert not page.at("examples").is_displayed()


async def test_fingers_tap_and_mice_point(driver: Chrome, serve: Serve) -> None:
    page = Page(driver)
    touch = "Emulation.setTouchEmulationEnabled"
    async with serve() as url:
        for is_touch, verb in ((True, "Tap a word"), (False, "Point at a word")):
            driver.execute_cdp_cmd(touch, {"enabled": is_touch})
            page.open(url)
            page.translate("a dog")
            assert page.at("attention-status").text.startswith(verb)
            driver.get("about:blank")


async def test_the_sentence_whose_attention_is_shown_is_chosen(
    driver: Chrome, serve: Serve
) -> None:
    page = Page(driver)
    async with serve() as url:
        page.open(url)
        page.translate("A dog runs. Two men talk.")
        page.until(lambda: page.all("#grid tbody th"))
        page.choose("sentence", "1")
        page.until(lambda: [head.text for head in page.all("#grid tbody th")][:2] == ["TWO", "MEN"])
        assert page.all("#sentence option")[1].text == "2: TWO MEN TALK."
