"""Completions and chats on the page at `/`, in a real Chromium, over the real server."""

import httpx

from tests.serving.api.page.browser import Page, needs_browser

pytestmark = needs_browser
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
    assert "dog" not in [each.text for each in page.all("main b")]
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
    assert page.at("write-status").text.startswith("60 tokens in ")


def test_chats_go_on(page: Page) -> None:
    page.set_parameter("max_tokens", "8")
    for number in (1, 2):
        page.write("imported-llama", f"Hello {number}")
        said = [each.text.strip() for each in page.all("#written .who")]
        assert said == ["You:", "Model:"] * number
    assert page.at("write-error").text == ""


def test_a_chat_that_is_refused_can_be_sent_again(page: Page) -> None:
    page.set_parameter("max_tokens", "1000")
    page.write("imported-llama", "Hello")

    assert "max_tokens" in page.at("write-error").text
    assert page.at("prompt").get_attribute("value") == "Hello"
    assert page.all("#written p") == []


def test_all_parameters_can_be_set(page: Page, server_url: str) -> None:
    schemas = httpx.get(f"{server_url}/openapi.json").json()["components"]["schemas"]
    page.set_parameter("n", "2")
    offered = {each.get_attribute("for") for each in page.all("#write .fields label")}
    declared = {*schemas["CompletionBody"]["properties"], *schemas["ChatBody"]["properties"]}
    assert offered == declared - SET_BY_THE_PAGE

    page.set_parameter("logit_bias", '{"5": -100}')
    page.write("llama-en", "It was")
    assert page.at("write-error").text == ""
    assert [each.text for each in page.all("#written .who")] == ["It was"] * 2


def test_errors_are_shown_in_words(page: Page) -> None:
    page.set_parameter("temperature", "-1")
    page.write("llama-en", "It was")
    assert "temperature" in page.at("write-error").text

    page.set_parameter("bad_words", "not JSON")
    page.at("begin").click()
    assert page.at("write-error").text == "bad_words: not JSON is no JSON."
