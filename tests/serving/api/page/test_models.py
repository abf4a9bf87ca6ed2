"""The Models tab: what is known of each model, a trial of it, and how a missing one is had."""

from collections.abc import AsyncIterator

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import made_world
from tests.serving.api.page.browser import Page, listening, needs_browser

pytestmark = needs_browser
served = pytest.mark.full


def card_of(page: Page, model: str) -> WebElement:
    page.tab("models")
    page.until(lambda: page.all("#cards .card"))
    [card] = [
        card
        for card in page.all("#cards .card")
        if card.find_element("css selector", "h2").text == model
    ]
    return card


@served
def test_a_card_says_quality_size_licence_and_origin(page: Page) -> None:
    text = card_of(page, "transformer-en-fr").text
    assert "\nchrF " in text and "(multi30k)" in text
    assert " MB in " in text
    assert "Apache-2.0" in text
    assert "attendant train models/recipes/" in text


@served
@pytest.mark.parametrize(
    ("model", "tab", "menu"),
    [
        ("transformer-en-fr", "translate", "translator"),
        ("imported-llama", "write", "writer"),
        ("embedder", "compare", "comparer"),
        ("captioner", "picture", "picture-reader"),
    ],
)
def test_a_model_is_tried_where_it_can_be(page: Page, model: str, tab: str, menu: str) -> None:
    card_of(page, model).find_element("css selector", ".card-head button").click()
    assert page.at(tab).is_displayed()
    assert Select(page.at(menu)).first_selected_option.get_attribute("value") == model


@served
def test_a_long_card_opens_to_a_limited_height(page: Page) -> None:
    card = card_of(page, "transformer-en-fr")
    card.find_elements("css selector", "summary")[-1].click()
    about = card.find_element("css selector", ".about")
    page.until(lambda: about.find_elements("css selector", "h3"))
    assert about.size["height"] < 500
    whole = card.find_elements("css selector", "details > button")[-1]
    page.until(whole.is_displayed)
    whole.click()
    assert about.size["height"] > 1000
    assert not whole.is_displayed()


@pytest.fixture
async def bare_page(driver: Chrome, tokenizer: Tokenizer) -> AsyncIterator[Page]:
    """The page of a server without models that compare texts or read pictures."""
    async with made_world(tokenizer) as world:
        with listening(world.app, free_port()) as url:
            page = Page(driver)
            driver.get("about:blank")
            page.open(url)
            yield page
            driver.get("about:blank")


@pytest.mark.parametrize(
    ("tab", "model"),
    [("compare", "all-minilm-l6-v2"), ("picture", "nlpconnect/vit-gpt2-image-captioning")],
)
async def test_a_tab_without_a_model_says_how_one_is_had(
    bare_page: Page, tab: str, model: str
) -> None:
    page = bare_page
    page.tab(tab)
    page.until(lambda: page.at(f"{tab}-missing").is_displayed())
    assert f"attendant pull {model} " in page.all(f"#{tab}-missing code")[0].text
    assert [body.is_displayed() for body in page.all(f"#{tab} .needs-model")] == [False]

    page.tab("write")
    assert not page.at("write-missing").is_displayed()
