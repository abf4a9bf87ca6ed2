"""Completions and chats on the page at `/`, in a real Chromium, over the real server."""

import re

import httpx
import pytest
from selenium.webdriver.common.keys import Keys

from tests.serving.api.page.browser import Page, needs_browser

pytestmark = [needs_browser, pytest.mark.full]
MARKUP = "<img src=x onerror=document.title='broken'> & <b>dog</b>"
SET_BY_THE_PAGE = {
    *("model", "messages", "prompt", "stream", "stream_options", "logprobs", "top_logprobs"),
    *("return_attention", "source_language", "target_language"),
}


def test_markup_stays_text(page: Page) -> None:
    assert "<img" in page.translate(MARKUP)
    page.write("llama-en", MARKUP)

    assert page.all("#written .who")[0].text == MARKUP
    assert page.all("main img") == []
    assert "dog" not in [element.text for element in page.all("main b")]
    assert page.driver.title == "Attendant"


def test_completions_are_coloured_by_probability(page: Page) -> None:
    page.tab("write")
    page.at("logprobs").click()
    assert page.at("legend").is_displayed()
    page.write("llama-en", "It was")

    tokens = page.all(".token")
    assert len(tokens) > 20
    assert all(0 <= float(page.style_of(token, "--surprise")) <= 1 for token in tokens)
    tokens[3].click()
    assert "%" in page.at("token-status").text
    assert page.at("write-error").text == ""
    assert re.fullmatch(r"200 tokens in [0-9.]+ s, [0-9]+ a second", page.at("write-status").text)


def test_chats_go_on(page: Page) -> None:
    page.set_parameter("max_tokens", "8")
    for number in (1, 2):
        page.write("imported-llama", f"Hello {number}")
        said = [element.text.strip() for element in page.all("#written .who")]
        assert said == ["You:", "Model:"] * number
    assert page.at("write-error").text == ""


def test_enter_sends_a_message_and_shift_enter_breaks_its_line(page: Page) -> None:
    page.set_parameter("max_tokens", "8")
    page.choose("writer", "imported-llama")
    page.at("prompt").send_keys("One", Keys.SHIFT, Keys.ENTER)
    page.at("prompt").send_keys(Keys.NULL, "Two")
    assert page.at("prompt").get_attribute("value") == "One\nTwo"
    page.at("prompt").send_keys(Keys.ENTER)
    page.until(lambda: page.at("again").is_displayed())

    assert page.at("prompt").get_attribute("value") == ""
    assert [element.text.strip() for element in page.all("#written .who")] == ["You:", "Model:"]


def test_a_question_can_be_asked_again_or_changed(page: Page) -> None:
    page.set_parameter("max_tokens", "8")
    page.write("imported-llama", "Hello")
    page.at("again").click()
    page.until(lambda: page.at("again").is_displayed())
    assert [element.text.strip() for element in page.all("#written .who")] == ["You:", "Model:"]
    assert page.at("copy-answer").is_displayed() and page.at("copy-answer").is_enabled()

    page.at("edit").click()
    assert page.at("prompt").get_attribute("value") == "Hello"
    assert page.all("#written .who") == [] and not page.at("edit").is_displayed()


def test_only_models_that_write_are_offered(page: Page, server_url: str) -> None:
    models = httpx.get(f"{server_url}/v1/models").json()["data"]
    page.tab("write")
    offered = [element.get_attribute("value") for element in page.all("#writer option")]
    writers = [model for model in models if model["task"] == "generate"]
    assert offered == [model["id"] for model in writers if not model["picture"]]
    assert len(offered) < len(models)


def test_what_is_greyed_is_explained(page: Page) -> None:
    page.tab("write")
    page.choose("writer", "llama-en")
    assert not page.all("[name=mode][value=chat]")[0].is_enabled()
    assert "was not made to chat" in page.at("write-hint").text
    page.choose("writer", "imported-llama")
    assert "chat" not in page.at("write-hint").text


def test_the_newest_answer_is_in_sight(page: Page) -> None:
    page.set_parameter("max_tokens", "8")
    page.choose("writer", "imported-llama")
    page.run("arguments[0].value = 'A\\n'.repeat(40)", page.at("prompt"))
    page.write("imported-llama", "Hello")
    written = page.at("written")
    bottom = page.run("return arguments[0].scrollHeight - arguments[0].clientHeight", written)
    assert bottom > 0 and abs(page.run("return arguments[0].scrollTop", written) - bottom) < 40


def test_a_chat_that_is_refused_can_be_sent_again(page: Page) -> None:
    page.set_parameter("max_tokens", "1000")
    page.write("imported-llama", "Hello")

    assert "max_tokens" in page.at("write-error").text
    assert page.at("prompt").get_attribute("value") == "Hello"
    assert page.all("#written p") == []


def test_all_parameters_can_be_set(page: Page, server_url: str) -> None:
    schemas = httpx.get(f"{server_url}/openapi.json").json()["components"]["schemas"]
    page.set_parameter("n", "2")
    offered = {element.get_attribute("for") for element in page.all("#write .fields label")}
    declared = schemas["CompletionBody"]["properties"] | schemas["ChatBody"]["properties"]
    with_effect = {n for n, told in declared.items() if "Without effect" not in told["description"]}
    assert offered == with_effect - SET_BY_THE_PAGE
    assert all(element.text for element in page.all("#parameters div:not([hidden]) small"))

    page.set_parameter("logit_bias", '{"5": -100}')
    page.write("llama-en", "It was")
    assert page.at("write-error").text == ""
    assert [element.text for element in page.all("#written .who")] == ["It was"] * 2


def test_errors_are_shown_in_words(page: Page) -> None:
    page.set_parameter("temperature", "-1")
    page.write("llama-en", "It was")
    assert page.at("write-error").text == "temperature: must be a number between 0 and 100."

    page.set_parameter("bad_words", "not JSON")
    page.at("begin").click()
    assert page.at("write-error").text == "bad_words: not JSON is no JSON."
