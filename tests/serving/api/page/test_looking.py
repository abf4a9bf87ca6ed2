"""The page at `/` shows what words look at, by layer and head: it asks the real server."""

from pathlib import Path

from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.serving.api.page.browser import SENTENCES, Page, needs_browser

pytestmark = needs_browser
FAINT = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
WORDS = """
const row = document.querySelector(`${arguments[0]} .look-words`);
return row ? [...row.querySelectorAll("button")].map(each => each.innerText) : [];
"""


def words(page: Page, place: str) -> list[str]:
    """Read them at once: asked for one by one, some may be gone, as the page draws others."""
    found: list[str] = page.run(WORDS, f"#{place}")
    return found


def test_a_sentence_by_layer_and_head(page: Page) -> None:
    page.translate(SENTENCES)
    page.all("#look-details summary")[0].send_keys(Keys.ENTER)
    page.until(lambda: page.all("#look .look-heads button"))

    kinds = Select(page.all("#look select")[0])
    names = [option.text for option in kinds.options]
    assert names == ["Translation at source", "Source at source", "Text at what comes before"]
    kinds.select_by_visible_text("Source at source")
    assert words(page, "look")[:3] == ["A", "▁dog", "▁runs"]
    page.all("#look .look-words button")[1].send_keys("")
    assert page.all("#look .look-said")[0].text.startswith("▁dog looks at ")
    assert len(page.all("#look .look-heads button")) == 6 * 4

    with page.looking_like("dark", width=390):
        assert page.run("return document.documentElement.scrollWidth") <= 390
        assert page.run(FAINT) == []

    page.all(".word")[-1].send_keys("")  # of the other sentence
    page.until(lambda: words(page, "look")[:1] not in ([], ["A"], ["<start>"]))


def test_what_a_model_writes_looks_at_what_came_before(page: Page) -> None:
    page.tab("write")
    page.at("looks").click()
    page.write("llama-en", "It was")

    page.until(lambda: page.at("written-look").is_displayed())
    assert words(page, "written-look")[:3] == ["<start>", "It", "▁was"]
    page.all("#written-look .look-words button")[2].send_keys("")
    assert page.all("#written-look .look-said")[0].text.startswith("▁was looks at ")
    page.at("clear").click()
    assert not page.at("written-look").is_displayed()
