"""The page at `/` shows attention by layer and head, from the real server."""

from pathlib import Path

import pytest
from selenium.webdriver.support.select import Select

from tests.serving.api.page.browser import SENTENCES, Page, needs_browser

pytestmark = [needs_browser, pytest.mark.full]
FAINT = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
WORDS = """
const row = document.querySelector(`${arguments[0]} .attention-view-words`);
return row ? [...row.querySelectorAll("button")].map(each => each.innerText) : [];
"""


def words(page: Page, place: str) -> list[str]:
    """Read them at once: asked for one by one, some may be gone, as the page draws others."""
    found: list[str] = page.run(WORDS, f"#{place}")
    return found


def test_a_sentence_by_layer_and_head(page: Page) -> None:
    page.translate(SENTENCES)
    page.all("[name=attention-view][value=heads]")[0].click()
    page.until(lambda: page.all("#heads .attention-view-heads button"))

    kinds = Select(page.all("#heads select")[0])
    names = [option.text for option in kinds.options]
    assert names == ["Translation at source", "Source at source", "Text at what comes before"]
    kinds.select_by_visible_text("Source at source")
    assert words(page, "heads")[:3] == ["A", " dog", " runs"]
    page.all("#heads .attention-view-words button")[1].send_keys("")
    assert page.all("#heads .attention-view-status")[0].text.startswith("dog attends to ")
    assert len(page.all("#heads .attention-view-heads button")) == 6 * 4

    with page.looking_like("dark", width=390):
        assert page.run("return document.documentElement.scrollWidth") <= 390
        assert page.run(FAINT) == []

    page.all(".word")[-1].send_keys("")  # of the other sentence
    page.until(lambda: words(page, "heads")[:1] not in ([], ["A"], ["start"]))


def test_the_attention_of_a_completion(page: Page) -> None:
    page.tab("write")
    page.at("show-attention").click()
    page.write("llama-en", "It was")

    page.until(lambda: page.at("written-attention").is_displayed())
    assert words(page, "written-attention")[:3] == ["start", "It", " was"]
    page.all("#written-attention .attention-view-words button")[2].send_keys("")
    assert page.all("#written-attention .attention-view-status")[0].text.startswith(
        "was attends to "
    )
    page.at("clear").click()
    assert not page.at("written-attention").is_displayed()
