"""Translating on the page at `/`, in a real Chromium, over the real server."""

import re
from pathlib import Path

import httpx
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.serving.api.page.browser import SECONDS, SENTENCES, Page, needs_browser

pytestmark = [needs_browser, pytest.mark.full]
DROP = """
    const [place, text] = arguments, dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], "day.md"));
    const options = { dataTransfer, bubbles: true, cancelable: true };
    place.dispatchEvent(new DragEvent("drop", options));
"""


def test_what_is_typed_is_translated(page: Page, server_url: str) -> None:
    body = {"q": SENTENCES, "source": "en", "target": "fr"}
    whole = httpx.post(f"{server_url}/translate", json=body, timeout=SECONDS).json()

    assert page.translate(SENTENCES) == whole["translatedText"]
    assert page.at("detected").text.startswith("English")
    assert page.at("translation").get_attribute("lang") == "fr"


def test_words_are_worked_on_by_the_keyboard_alone(page: Page) -> None:
    before = page.translate(SENTENCES)
    page.at("clear-text").send_keys("")
    while page.focused().text != before.split()[0]:
        page.focused().send_keys(Keys.TAB)

    page.focused().send_keys(Keys.ARROW_RIGHT)
    assert page.focused().text == "chien"
    page.until(lambda: page.at("attention-status").text.startswith("chien: dog "))
    [heaviest] = page.all("#marks .heaviest")
    assert heaviest.get_attribute("textContent") == "dog"
    assert page.at("marks").get_attribute("textContent") == SENTENCES + "\n"

    page.focused().send_keys(Keys.ENTER)
    page.until(lambda: page.all("#alternatives button"))
    page.focused().send_keys(Keys.ESCAPE)
    assert page.focused().text == "chien"


def test_words_are_coloured_by_their_probabilities(page: Page, server_url: str) -> None:
    request = {"q": SENTENCES, "source": "en", "target": "fr", "quality": True}
    quality = httpx.post(f"{server_url}/translate", json=request, timeout=SECONDS).json()["quality"]
    page.translate(SENTENCES)

    page.at("show-quality").click()
    page.until(lambda: page.at("words-help").text.startswith("Score "))
    [first, *_] = page.all("#translation .word")
    surprise = 1 - quality["sentences"][0]["word_probabilities"][0]
    assert page.at("words-help").text.startswith(f"Score {round(100 * quality['score'])}%;")
    assert float(page.style_of(first, "--surprise")) == pytest.approx(surprise, abs=0.001)

    page.at("show-quality").click()
    assert not page.style_of(first, "--surprise")


def test_the_attention_of_all_words_is_a_table(page: Page) -> None:
    page.translate(SENTENCES)
    page.until(lambda: page.all("#grid table"))

    assert [element.text for element in page.all("#grid thead th")][:2] == ["A", "dog"]
    words = [element.text for element in page.all("#grid tbody th")]
    assert words[:2] == ["Un", "chien"]
    for row in page.all("#grid tbody tr"):
        weights = [float(page.style_of(cell, "--weight")) for cell in cells_of(row)]
        assert 0.2 < sum(weights) < 1.02  # what is on the end of the sentence has no column
    assert page.at("grid-status").text.startswith("Point at a cell")
    page.at("grid").send_keys(Keys.TAB)
    page.focused().send_keys(Keys.ARROW_DOWN)
    page.focused().send_keys(Keys.ARROW_RIGHT)
    assert re.fullmatch(r"chien from dog: \d+%", page.at("grid-status").text)


def cells_of(row: WebElement) -> list[WebElement]:
    return row.find_elements("css selector", "td")


def test_a_screen_reader_reads_the_attention_as_a_table(page: Page) -> None:
    page.translate(SENTENCES)
    page.until(lambda: page.all("#grid table"))

    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    items = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]
    assert ("columnheader", "dog") in items
    assert ("rowheader", "chien") in items
    assert "table" in {role for role, _ in items}
    cells = [name for role, name in items if role in ("cell", "gridcell") and name]
    assert all(re.fullmatch(r"\d+%", name) for name in cells)
    assert len(cells) == len(page.all("#grid td[data-text]"))


@pytest.mark.parametrize("text", [SENTENCES, "The dog weighs 3.5 kg. Two men are talking."])
def test_another_way_to_go_on_replaces_its_sentence_alone(page: Page, text: str) -> None:
    before = page.translate(text)
    first, second = before.split(". ")
    [word] = [element for element in page.all(".word") if element.text == "hommes"]
    word.click()
    page.until(lambda: page.all("#alternatives button"))
    offered = page.all("#alternatives button")[0]
    end = offered.text
    offered.click()

    assert page.at("translation").text == f"{first}. {second.split()[0]} {end}"
    page.all(".word")[-1].click()
    page.until(lambda: page.at("attention-status").text)
    page.until(lambda: page.all("#alternatives button") or page.all("#alternatives .note"))


def test_words_light_up_where_they_stand(page: Page) -> None:
    """The marks lie behind the text, and scroll with it."""
    page.translate(SENTENCES + "\n\n" + "A dog runs. " * 60 + "A cat sleeps.")
    words = [element for element in page.all(".word") if element.text == "chat"]
    page.run("arguments[0].scrollIntoView()", words[-1])
    words[-1].send_keys("")
    page.until(lambda: page.at("attention-status").text.startswith("chat: cat "))

    text, marks = page.at("text"), page.at("marks")
    assert page.all("#marks .heaviest")[0].get_attribute("textContent") == "cat"
    sizes = "return ['clientWidth', 'scrollHeight', 'scrollTop'].map((name) => arguments[0][name])"
    assert page.run(sizes, text) == pytest.approx(page.run(sizes, marks), abs=1)
    assert page.run(sizes, text)[2] > 0
    text.send_keys("x")
    assert page.all("#marks mark") == []


def test_a_picture_of_the_attention_is_saved(page: Page, tmp_path: Path) -> None:
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    page.translate("A dog runs.")
    page.until(lambda: page.at("save-picture").is_enabled())
    page.at("save-picture").click()
    picture = tmp_path / "attention.png"
    page.until(lambda: picture.exists() and picture.stat().st_size > 1000)
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20]) > 200


def test_history_is_kept_in_the_browser_and_can_be_forgotten(page: Page, server_url: str) -> None:
    page.run("localStorage.clear()")
    page.open(server_url)
    page.choose("source", "en")
    for text in ("A dog", "A dog runs.", "Two men are talking."):  # the first is typed on
        page.translate(text)
    page.open(server_url)
    page.run("arguments[0].open = true", page.all("#translate details:has(#translate-history)")[0])
    unchanged = page.all("#translate-history button")
    assert [item.text for item in unchanged] == ["Two men are talking.", "A dog runs."]

    unchanged[1].click()
    assert page.at("text").get_attribute("value") == "A dog runs."
    assert page.at("source").get_attribute("value") == "en"
    page.until(lambda: page.at("translate-status").get_attribute("textContent"))
    page.at("translate-history-clear").click()
    assert not page.at("translate-history").is_displayed()
    assert page.run("return localStorage.getItem('attendant-translate-history')") == "[]"


def test_characters_are_counted(page: Page) -> None:
    page.translate("A dog 🐕")
    assert page.at("count").text == "7 characters"


def test_a_glossary_holds(page: Page) -> None:
    page.run("arguments[0].open = true", page.all("#translate details:has(#glossary)")[0])
    page.at("glossary").send_keys("hat = bonnet")
    assert "bonnet" in page.translate("A dog is wearing a red hat.")
    page.at("glossary").clear()
    page.at("glossary").send_keys("hat")
    page.until(lambda: "term = translation" in page.at("translate-error").text)


def test_a_document_that_is_dropped_is_translated(page: Page, tmp_path: Path) -> None:
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    page.choose("translator", "transformer-en-fr")
    page.run(DROP, page.at("text"), "# A day\n\nTwo **dogs** play.\n\nIt snows.\n")
    page.until(lambda: page.all("#documents a"))

    assert page.all("#documents small")[0].text == "3 of 3 parts"
    page.all("#documents summary")[0].click()
    rows = [[cell.text for cell in cells_of(row)] for row in page.all("#documents tbody tr")]
    assert len(rows) == 3 and rows[1][0] == "Two dogs play." and "chiens" in rows[1][1]
    page.all("#documents a")[0].click()
    page.until(
        lambda: (tmp_path / "fr-day.md").exists() and (tmp_path / "fr-day.md").stat().st_size
    )
    assert "**chiens**" in (tmp_path / "fr-day.md").read_text(encoding="utf-8")


def test_a_document_that_is_cancelled_is_forgotten(page: Page) -> None:
    page.run(DROP, page.at("drop"), "\n\n".join(f"{number} dogs play." for number in range(2000)))
    page.until(lambda: " of 2,000 parts" in page.at("documents").text)
    page.all("#documents button")[0].click()

    assert page.all("#documents li") == []
    sent = "return performance.getEntriesByType('resource').map((each) => each.name)"
    page.until(lambda: "?document_key=" in page.run(sent)[-1])


def test_a_document_that_cannot_be_is_told_of(page: Page, tmp_path: Path) -> None:
    (tmp_path / "day.xyz").write_text("A day.")
    page.at("file").send_keys(str(tmp_path / "day.xyz"))
    page.until(lambda: page.all("#documents .error"))
    assert "The file: is of no known format" in page.all("#documents .error")[0].text

    (tmp_path / "day.docx").write_bytes(b"garbage")
    page.at("file").send_keys(str(tmp_path / "day.docx"))
    page.until(lambda: len(page.all("#documents .error")) == 2)
    line = page.all("#documents li")[0].text
    assert line.startswith("day.docx")
    assert "The file: is damaged, or not what its name says" in line and "source" not in line
