"""The page of a sentence's attention, in a real Chromium: one file, which asks nobody."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from serving.commands import attention_page as page_module
from serving.commands.attention_page import write_page
from serving.commands.attention_views import View
from serving.errors import RequestError
from tests.serving.api.page.browser import Page, chromium, needs_browser

FAINT = (Path(__file__).parents[2] / "api/page/contrast.js").read_text(encoding="utf-8")
TITLE = "it </title><script>alert(1)</script>"
WORDS = ("The", "animal", "</script>", "it", "<b>", "<end>")
ENCODER = View(
    "encoder",
    WORDS,
    WORDS,
    np.random.default_rng(0).dirichlet(np.full(6, 0.2), (2, 3, 6)).astype(np.float32),
    (0, 1),
    (0, 1, 2),
)
LONG = tuple(f"w{number}" for number in range(60))
DECODER = View(
    "decoder", LONG, LONG, (np.tri(60) / np.arange(1, 61)[:, None])[None, None], (0,), (0,)
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "attention.html"
    write_page(path, TITLE, [[ENCODER, DECODER]])
    return path


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def page(driver: Chrome, file: Path) -> Iterator[Page]:
    """The file, opened; the browser must have had nothing to say of errors or a broken policy."""
    page = Page(driver)
    driver.get(file.as_uri())
    yield page
    assert driver.get_log("browser") == []


def words(page: Page, column: int = 0) -> list[WebElement]:
    return page.all(".attention-view-words")[column].find_elements("tag name", "button")


def choose(page: Page, **values: str) -> None:
    labels = {each.text.split("\n")[0]: each for each in page.all(".attention-view-bar label")}
    for name, value in values.items():
        Select(labels[name].find_element("tag name", "select")).select_by_visible_text(value)


def said(page: Page) -> str:
    return page.all(".attention-view-status")[0].text


def shades(page: Page, column: int) -> list[float]:
    items = page.all(".attention-view-words")[column].find_elements("tag name", "li")
    return [float(page.style_of(item, "--shade")) for item in items]


def looked_at(weights: np.ndarray) -> str:
    """Say the largest as the page does: bytes are near enough."""
    best = int(weights.argmax())
    return f"{WORDS[best]} {round(100 * (round(255 * weights[best] ** 0.5) / 255) ** 2)}"


@needs_browser
@pytest.mark.full
def test_pointing_at_a_word_shows_what_it_looked_at(page: Page) -> None:
    assert [each.text for each in words(page)] == list(WORDS)
    num_lines = len(page.all(".attention-view-lines path"))

    choose(page, Layer="1", Head="2", Shade="by weight")
    ActionChains(page.driver).move_to_element(words(page)[3]).perform()

    weights = ENCODER.weights[1, 2, 3]
    assert said(page).startswith(f"it attends to {looked_at(weights)}")
    assert shades(page, 1) == pytest.approx(weights.tolist(), abs=0.005)
    assert 0 < len(page.all(".attention-view-lines path")) < num_lines


@needs_browser
@pytest.mark.full
def test_a_word_is_reached_by_keys_and_says_who_looks_at_it(page: Page) -> None:
    first = words(page, column=1)[0]
    first.send_keys(Keys.ARROW_DOWN)

    mean = ENCODER.weights.mean(axis=(0, 1))[:, 1]
    assert page.focused().text == "animal"
    assert said(page).startswith(f"animal is attended to by {WORDS[int(mean.argmax())]} ")
    page.focused().send_keys(Keys.ESCAPE)
    assert said(page).startswith("Point at a word")


@needs_browser
@pytest.mark.full
def test_a_head_is_chosen_among_all_of_them(page: Page) -> None:
    maps = page.all(".attention-view-heads button")
    assert [each.get_attribute("aria-label") for each in maps] == [
        f"Layer {layer}, head {head}" for layer in range(2) for head in range(3)
    ]
    assert {each.get_attribute("aria-pressed") for each in maps} == {"true"}

    words(page)[0].click()
    maps[4].click()

    assert [each.get_attribute("aria-pressed") for each in maps].index("true") == 4
    assert said(page).startswith(f"The attends to {looked_at(ENCODER.weights[1, 1, 0])}")


@needs_browser
@pytest.mark.full
def test_a_long_text_runs_on(page: Page) -> None:
    choose(page, **{"Who attends to what": "Text at what comes before"})
    assert not page.all(".attention-view-lines svg")[0].is_displayed()
    words(page)[30].click()
    assert shades(page, 1) == [1.0] * 31 + [0.0] * 29

    choose(page, **{"Words as": "columns"})
    assert len(page.all(".attention-view-lines path")) == 31


@needs_browser
@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_stands_out(page: Page, scheme: str, width: int) -> None:
    with page.looking_like(scheme, width):
        words(page)[3].click()
        for kind in ("Source at source", "Text at what comes before"):
            choose(page, **{"Who attends to what": kind})
            assert page.run("return document.documentElement.scrollWidth") <= width
            assert page.run(FAINT) == []


class _Strict(SimpleHTTPRequestHandler):
    policy = ""

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", self.policy)
        super().end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@needs_browser
@pytest.mark.full
def test_it_needs_nothing_but_itself_where_it_is_served(driver: Chrome, file: Path) -> None:
    [_Strict.policy] = re.findall(r'Policy" content="(.*?)"', file.read_text())
    assert "unsafe" not in _Strict.policy and _Strict.policy.startswith("default-src 'none'")
    handler = partial(_Strict, directory=str(file.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        page = Page(driver)
        driver.get(f"http://127.0.0.1:{server.server_port}/{file.name}")
        shown = [each.text for each in words(page)]
        loaded = page.run("return performance.getEntriesByType('resource').map(({ name }) => name)")
        server.shutdown()
    assert shown == list(WORDS) and loaded == []
    assert driver.title == TITLE
    assert driver.get_log("browser") == []


def test_no_text_acts_as_markup(file: Path) -> None:
    written = file.read_text()
    assert written.count("</script>") == 3  # of the messages, the data and the code
    assert "alert(1)</script>" not in written


def test_more_than_a_page_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "_MOST_WEIGHTS", 200)
    with pytest.raises(RequestError, match="has 216 weights, a page holds 200: choose by --kind"):
        write_page(tmp_path / "page.html", "a", [[ENCODER]])
    assert not (tmp_path / "page.html").exists()
