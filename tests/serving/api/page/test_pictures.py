"""Pictures on the page at `/`: what is written about them, and what each word looks at."""

import base64
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.serving.api.page.browser import Page, needs_browser

pytestmark = [needs_browser, pytest.mark.full]
GIVE = """
const [content, event] = arguments, files = new DataTransfer();
const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
files.items.add(new File([bytes], "it's.png", { type: "image/png" }));
dispatchEvent(event === "drop" ? new DragEvent(event, { dataTransfer: files, cancelable: true })
    : new ClipboardEvent(event, { clipboardData: files }));
"""
LEVELS = """
const copy = new OffscreenCanvas(5, 5).getContext("2d");
copy.drawImage(arguments[0], 0, 0, 5, 5);
return [...copy.getImageData(0, 0, 5, 5).data];
"""


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "it's.png"
    pixels = np.random.default_rng(0).integers(128, 256, (5, 5, 3), np.uint8)
    Image.fromarray(pixels).resize((500, 300), Image.Resampling.NEAREST).save(path)
    return path


def levels(page: Page) -> Any:
    """Return the levels of patches [patch, red green blue]."""
    return np.array(page.run(LEVELS, page.at("picture-shown"))).reshape(25, 4)[:, :3]


def answer_of_program(page: Page, language: str, folder: Path) -> Any:
    page.run("arguments[0].open = true", page.all("#picture .snippet")[0])
    Select(page.all("#picture .snippet select")[0]).select_by_visible_text(language)
    program = ["bash", "-c"] if language == "curl" else [sys.executable, "-c"]
    program.append(page.all("#picture .snippet pre")[0].text)
    answer = subprocess.run(program, capture_output=True, text=True, check=True, cwd=folder)
    return json.loads(answer.stdout)["choices"][0]


@pytest.mark.parametrize(("event", "language"), [("drop", "curl"), ("paste", "Python")])
def test_each_word_lights_up_what_it_looks_at(
    page: Page, photo: Path, event: str, language: str
) -> None:
    page.tab("picture")
    page.run(GIVE, base64.b64encode(photo.read_bytes()).decode(), event)
    page.until(lambda: page.all("#caption .word"))
    expected = answer_of_program(page, language, photo.parent)
    assert page.at("caption").text == expected["message"]["content"].strip()

    plain, words = levels(page), page.all("#caption .word")
    words[0].send_keys(Keys.END)
    [result] = expected["attention"]
    begins = [i for i, token in enumerate(result["row_tokens"]) if token.startswith(" ")]
    weights = np.mean(result["weights"][0][0][begins[-1] :], axis=0)[1:]  # after a class token
    row, column = divmod(int(weights.argmax()), 5)
    said = f"“{words[-1].text}” looks most at row {row + 1}, column {column + 1}: "
    assert len(words) > 1
    assert page.at("picture-status").text.startswith(said)
    light = (levels(page) / plain).mean(axis=1)
    assert np.corrcoef(light, weights)[0, 1] > 0.9 and light.argmax() == weights.argmax()

    page.at("tab-picture").send_keys("")
    assert (levels(page) == plain).all()


def says_in_error(page: Page, message: str) -> bool:
    return page.at("picture-error").text.startswith(message)


def test_what_is_no_picture_is_said_in_words(page: Page, photo: Path) -> None:
    page.tab("picture")
    files = [photo.parent / name for name in ("a.png", "a.svg", "b.png")]
    files[0].write_bytes(photo.read_bytes()[:60])
    files[1].write_text("<svg/>")
    Image.open(photo).save(files[2], "BMP")  # which the browser can read
    says = [f"{file.name} cannot be read as PNG, JPEG, WebP or GIF." for file in files[:2]]
    says.append("The message: no picture in PNG, JPEG, WEBP, GIF can be read of it: ")
    for file, message in zip(files, says, strict=True):
        page.at("picture-file").send_keys(str(file))
        page.until(partial(says_in_error, page, message))
