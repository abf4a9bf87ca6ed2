"""A real Chromium, and what a person does with the page in it."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs Chromium and its driver: chromium, chromium-driver"
)
SECONDS = 60
SENTENCES = "A dog runs through the snow. Two men are talking."
TABS = ("translate", "write", "compare", "picture", "transcribe", "models", "load")
FOLLOW_SHIFTS = """
    window.shifted = 0;
    new PerformanceObserver((list) => {
        for (const { hadRecentInput, value } of list.getEntries()) {
            if (!hadRecentInput) window.shifted += value;
        }
    }).observe({ type: "layout-shift", buffered: true });
"""


@contextmanager
def chromium() -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--lang=en"),
        "--use-fake-device-for-media-stream",  # a microphone that beeps
        "--autoplay-policy=no-user-gesture-required",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": FOLLOW_SHIFTS})
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """Does what a person does with the page."""

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

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def translate(self, text: str) -> str:
        """Type a text; return what is shown once its words can be worked on."""
        said = self.at("translate-status").get_attribute("textContent")
        self.at("text").clear()
        self.at("text").send_keys(text)
        self.until(lambda: self.at("translate-status").get_attribute("textContent") != said)
        return self.at("translation").text

    def choose(self, name: str, value: str) -> None:
        Select(self.at(name)).select_by_value(value)

    def write(self, model: str, prompt: str) -> None:
        self.tab("write")
        self.choose("writer", model)
        self.at("prompt").send_keys(prompt, Keys.CONTROL, Keys.ENTER)
        self.until(lambda: self.at("written").get_attribute("aria-busy") == "false")

    def set_parameter(self, name: str, value: str) -> None:
        self.tab("write")
        self.run("for (const each of document.querySelectorAll('#write details')) each.open = true")
        self.until(lambda: self.all(f"#{name}"))
        self.at(name).clear()
        self.at(name).send_keys(value)

    def tab(self, name: str) -> None:
        self.at(f"tab-{name}").click()

    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def style_of(self, element: WebElement, name: str) -> str:
        script = "return arguments[0].style.getPropertyValue(arguments[1])"
        return str(self.run(script, element, name))

    @contextmanager
    def looking_like(self, scheme: str, width: int) -> Iterator[None]:
        metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@contextmanager
def listening(app: FastAPI, port: int) -> Iterator[str]:
    """An application that listens on a port, on a thread of its own; its URL."""
    config = uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
