"""The page at `/` in a real Chromium, over the real server."""

import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from serving.access.key_file import KeyEntry, hash_of, write_keys
from serving.access.key_ring import KeyRing
from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import made_world

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs Chromium and its driver: chromium, chromium-driver"
)
SECONDS = 60
SENTENCES = "A dog runs through the snow. Two men are talking."
MARKUP = "<img src=x onerror=document.title='broken'> & <b>dog</b>"
FOLLOW_SHIFTS = """
    window.shifted = 0;
    new PerformanceObserver((list) => {
        for (const { hadRecentInput, value } of list.getEntries()) {
            if (!hadRecentInput) window.shifted += value;
        }
    }).observe({ type: "layout-shift", buffered: true });
"""
DROP = """
    const [place, text] = arguments, dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], "day.md"));
    const options = { dataTransfer, bubbles: true, cancelable: true };
    place.dispatchEvent(new DragEvent("drop", options));
"""


class Page:
    """What a person does with the page."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get(f"{url}/")
        self.until(lambda: len(Select(self.at("target")).options) > 0)

    def at(self, name: str) -> WebElement:
        return self.driver.find_element(By.ID, name)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, holds: Callable[[], object]) -> None:
        WebDriverWait(self.driver, SECONDS).until(lambda _: holds())

    def translate(self, text: str) -> str:
        """Type a text; return what is shown once its words can be worked on."""
        said = self.at("translate-said").get_attribute("textContent")
        self.at("text").clear()
        self.at("text").send_keys(text)
        self.until(lambda: self.at("translate-said").get_attribute("textContent") != said)
        return self.at("translation").text

    def tab(self, name: str) -> None:
        self.at(f"tab-{name}").click()

    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def width(self) -> int:
        width: int = self.driver.execute_script("return document.documentElement.scrollWidth")
        return width


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": FOLLOW_SHIFTS})
    yield driver
    driver.quit()


@pytest.fixture
def page(driver: Chrome, server_url: str) -> Iterator[Page]:
    """The page, opened; the browser must have had nothing to say: no error, no broken policy. It
    notes refused requests by itself.
    """
    page = Page(driver)
    driver.get("about:blank")
    page.open(server_url)
    yield page
    said = [entry["message"] for entry in driver.get_log("browser")]
    assert [message for message in said if "status of 400" not in message] == []
    assert driver.execute_script("return window.shifted") < 0.02


def test_what_is_typed_is_translated(page: Page, server_url: str) -> None:
    body = {"q": SENTENCES, "source": "en", "target": "fr"}
    whole = httpx.post(f"{server_url}/translate", json=body, timeout=SECONDS).json()

    assert page.translate(SENTENCES) == whole["translatedText"]
    assert page.at("detected").text.startswith("English")
    assert page.at("translation").get_attribute("lang") == "fr"


def test_words_are_worked_on_by_the_keyboard_alone(page: Page) -> None:
    before = page.translate(SENTENCES)
    page.at("text").send_keys(Keys.TAB)
    assert page.focused().text == before.split()[0]

    page.focused().send_keys(Keys.ARROW_RIGHT)
    assert page.focused().text == "chien"
    page.until(lambda: page.at("attention-said").text.startswith("chien: dog "))
    heaviest = max(page.all("#attention span"), key=lambda word: float(style_of(word, "--weight")))
    assert heaviest.text == "dog"

    page.focused().send_keys(Keys.ENTER)
    page.until(lambda: page.all("#alternatives button"))
    page.focused().send_keys(Keys.ESCAPE)
    assert page.focused().text == "chien"


def style_of(word: WebElement, name: str) -> str:
    found: str = word.parent.execute_script(
        "return arguments[0].style.getPropertyValue(arguments[1])", word, name
    )
    return found


@pytest.mark.parametrize("text", [SENTENCES, "The dog weighs 3.5 kg. Two men are talking."])
def test_another_way_to_go_on_replaces_its_sentence_alone(page: Page, text: str) -> None:
    before = page.translate(text)
    first, second = before.split(". ")
    [word] = [each for each in page.all(".word") if each.text == "hommes"]
    word.click()
    page.until(lambda: page.all("#alternatives button"))
    offered = page.all("#alternatives button")[0]
    end = offered.text.removeprefix("… ")
    offered.click()

    assert page.at("translation").text == f"{first}. {second.split()[0]} {end}"
    page.all(".word")[-1].click()
    page.until(lambda: page.at("attention-said").text)
    page.until(lambda: page.all("#alternatives button") or page.all("#alternatives .note"))


def test_a_glossary_holds(page: Page) -> None:
    page.driver.execute_script("arguments[0].open = true", page.all("#translate details")[0])
    page.at("glossary").send_keys("hat = bonnet")
    assert "bonnet" in page.translate("A dog is wearing a red hat.")
    page.at("glossary").clear()
    page.at("glossary").send_keys("hat")
    page.until(lambda: "term = translation" in page.at("translate-error").text)


def test_a_document_that_is_dropped_is_translated(page: Page) -> None:
    page.driver.execute_script(DROP, page.at("drop"), "# A day\n\nTwo **dogs** play.\n")
    page.until(lambda: page.all("#documents a"))

    result = httpx.get(str(page.all("#documents a")[0].get_attribute("href")))
    assert result.status_code == 200
    assert "**chiens**" in result.text


def test_a_document_that_cannot_be_is_told_of(page: Page, tmp_path: Path) -> None:
    (tmp_path / "day.xyz").write_text("A day.")
    page.at("file").send_keys(str(tmp_path / "day.xyz"))
    page.until(lambda: page.all("#documents .error"))
    assert "xyz" in page.all("#documents .error")[0].text


def test_markup_stays_text(page: Page) -> None:
    assert "<img" in page.translate(MARKUP)
    write(page, "llama-en", MARKUP)

    assert page.all("#written .who")[0].text == MARKUP
    assert page.all("main img") == page.all("main b") == []
    assert page.driver.title == "Attendant"


def write(page: Page, model: str, prompt: str) -> None:
    page.tab("write")
    Select(page.at("writer")).select_by_value(model)
    page.at("prompt").send_keys(prompt, Keys.CONTROL, Keys.ENTER)
    page.until(lambda: page.at("written").get_attribute("aria-busy") == "false")


def test_completions_are_coloured_by_probability(page: Page) -> None:
    page.tab("write")
    page.at("logprobs").click()
    write(page, "llama-en", "It was")

    tokens = page.all(".token")
    assert len(tokens) > 20
    assert all(0 <= float(style_of(token, "--p")) <= 1 for token in tokens)
    tokens[3].click()
    assert "%" in page.at("token-said").text
    assert page.at("write-error").text == ""


def test_chats_go_on(page: Page) -> None:
    set_parameter(page, "max_tokens", "8")
    for number in (1, 2):
        write(page, "imported-llama", f"Hello {number}")
        said = [each.text.strip() for each in page.all("#written .who")]
        assert said == ["You:", "Model:"] * number
    assert page.at("write-error").text == ""


def set_parameter(page: Page, name: str, value: str) -> None:
    page.tab("write")
    page.driver.execute_script("arguments[0].open = true", page.all("#write details")[0])
    page.at(name).clear()
    page.at(name).send_keys(value)


def test_a_chat_that_is_refused_can_be_sent_again(page: Page) -> None:
    set_parameter(page, "max_tokens", "1000")
    write(page, "imported-llama", "Hello")

    assert "max_tokens" in page.at("write-error").text
    assert page.at("prompt").get_attribute("value") == "Hello"
    assert page.all("#written p") == []


def test_errors_are_shown_in_words(page: Page) -> None:
    set_parameter(page, "more", '{"no_such_field": 1}')
    write(page, "llama-en", "It was")

    assert "no_such_field" in page.at("write-error").text


def test_tabs_by_the_keyboard_models_and_load(page: Page) -> None:
    page.at("tab-translate").send_keys(Keys.ARROW_LEFT)
    assert page.focused().text == "Load"
    page.until(lambda: page.all("#charts .number")[1].text == "0")
    assert len(page.all("#charts svg")) == len(page.all("#charts .card"))

    page.focused().send_keys(Keys.ARROW_LEFT)
    names = [each.text for each in page.all("#cards h2")]
    assert {"transformer-en-fr", "llama-en", "far-german"} <= {*names}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_need_no_scrolling_aside(page: Page, scheme: str) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        page.translate("A dog runs " + "verylongwordindeed" * 10)
        for name in ("translate", "write", "models", "load"):
            page.tab(name)
            assert page.width() <= 390, name
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
async def guarded_url(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[str]:
    """A server that asks for a key: `secret`."""
    write_keys(tmp_path / "keys.json", (KeyEntry(name="alice", sha256=hash_of("secret")),))
    access = {"keys": KeyRing(tmp_path / "keys.json", {}), "metrics_need_key": True}
    async with made_world(tokenizer, access=access) as world:
        config = uvicorn.Config(world.app, port=free_port(), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{config.port}"
        server.should_exit = True
        thread.join()


async def test_a_key_is_asked_for_and_kept_for_the_session(
    driver: Chrome, guarded_url: str
) -> None:
    page = Page(driver)
    page.open(guarded_url)
    page.until(lambda: page.at("key").is_displayed())
    page.tab("models")
    assert "Authorization: Bearer KEY" in page.at("models-error").text

    page.at("key").send_keys("secret", Keys.ENTER)
    page.until(lambda: page.all("#cards h2"))
    driver.refresh()
    page.until(lambda: page.all("#cards h2"))
    assert page.at("models-error").text == ""
    driver.execute_script("sessionStorage.clear()")
    driver.get_log("browser")  # the refusals
