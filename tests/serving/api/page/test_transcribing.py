"""Speech on the page at `/`: recordings, their words and spectrograms, and the microphone."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from serving.pipelines.transcription.subtitles import write_srt, write_vtt
from serving.text.tokenizer import Tokenizer
from tests.served import free_port
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.transcribers import AUDIO, FakeTranscriber, wave_file
from tests.serving.api.page.browser import Page, listening, needs_browser

pytestmark = needs_browser
SECONDS = 32.0  # two windows
WORDS = " ".join(FakeTranscriber.WORDS)
PLAYED = "const { paused, currentTime } = player; return [paused, currentTime]"
PAUSE = "player.pause()"
FAINT = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
# How much more blue than red there is in each column of the spectrogram.
BLUE = """
const canvas = document.getElementById("spectrogram"), { width, height } = canvas;
const pixels = canvas.getContext("2d").getImageData(0, height / 2, width, height / 4);
const columns = new Array(width).fill(0);
pixels.data.forEach((level, place) => {
    const column = Math.floor(place / 4) % width, channel = place % 4;
    if (channel === 2) columns[column] += level * pixels.data[place + 1] / 255;
    if (channel === 0) columns[column] -= level * pixels.data[place + 3] / 255;
});
return columns;
"""


class WaitingTranscriber(FakeTranscriber):
    """Waits after its first segment for a gate, if it has one. has_ended: of its last job."""

    gate: asyncio.Event | None = None
    has_ended = False

    async def stream(self, job: Any) -> AsyncGenerator[Any, None]:
        self.has_ended = False
        try:
            async for part in super().stream(job):
                yield part
                if self.gate is not None:
                    await self.gate.wait()
        finally:
            self.has_ended = True


@pytest.fixture
def scribe() -> WaitingTranscriber:
    return WaitingTranscriber()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "it's speech.wav"
    path.write_bytes(wave_file(SECONDS))
    return path


@pytest.fixture
async def page(
    driver: Chrome, tokenizer: Tokenizer, scribe: WaitingTranscriber
) -> AsyncIterator[Page]:
    """The tab, opened. The browser must have had nothing to say but of refused requests."""
    english = FakeTranscriber("english", replace(AUDIO, languages={}, translate=None))
    async with made_world(tokenizer, others=[scribe, english]) as world:
        with listening(world.app, free_port()) as url:
            page = Page(driver)
            driver.get("about:blank")
            page.open(url)
            page.tab("transcribe")
            page.until(lambda: page.at("transcriber").text)
            yield page
            said = [entry["message"] for entry in driver.get_log("browser")]
            assert [message for message in said if "status of 400" not in message] == []
            driver.get("about:blank")


def transcribe(page: Page, file: Path) -> None:
    page.at("recording").send_keys(str(file))
    wait_for_the_end(page)


def wait_for_the_end(page: Page) -> None:
    page.until(lambda: page.at("transcript").get_attribute("aria-busy") == "false")


def texts(page: Page, selector: str) -> list[str]:
    return [element.text for element in page.all(selector)]


async def test_words_light_up_while_the_recording_is_played(page: Page, recording: Path) -> None:
    transcribe(page, recording)

    assert texts(page, "#transcript .time") == ["0:00", "0:10", "0:20", "0:30"]
    words = page.all("#transcript .word")
    assert [word.text for word in words] == [*FakeTranscriber.WORDS] * 3 + ["zero", "one"]
    assert page.at("transcribe-status").text.startswith(
        "Haitian Creole, 90% certain; 0:32 transcribed in "
    )
    assert page.style_of(words[0], "--surprise") == "0.100"

    words[15].click()
    page.until(lambda: texts(page, ".spoken") == ["five"])
    paused, seconds = page.run(PLAYED)
    assert not paused and 15.25 <= seconds < 15.75
    page.until(lambda: texts(page, ".spoken") == ["six"])  # by itself
    page.run(PAUSE)
    words[15].send_keys(Keys.END, Keys.ENTER)
    page.until(lambda: texts(page, ".spoken") == ["one"])
    page.run(PAUSE)
    page.all("#transcript .time")[2].click()
    page.until(lambda: 20 <= page.run(PLAYED)[1] < 21)
    page.run(PAUSE)


async def test_what_a_word_attends_to_is_drawn_over_the_spectrogram(
    page: Page, recording: Path
) -> None:
    transcribe(page, recording)
    words = page.all("#transcript .word")
    canvas = page.at("spectrogram")
    page.run("arguments[0].focus()", words[3])
    assert page.at("word-status").text == "“three”, 3.3 to 3.8 s, probability 90%"
    assert canvas.get_attribute("aria-label") == (
        "Spectrogram from 0:00 to 0:30, with what a word attends to"
    )
    blue = np.array(page.run(BLUE))
    by_second = blue[: len(blue) // 30 * 30].reshape(30, -1).mean(axis=1)
    expected = np.sqrt(np.arange(30) + 0.5)  # weights grow with the time
    assert np.corrcoef(by_second, expected)[0, 1] > 0.98

    page.run("arguments[0].focus()", words[31])
    assert str(canvas.get_attribute("aria-label")).startswith("Spectrogram from 0:30 to 0:32")

    ActionChains(page.driver).move_to_element(canvas).click().perform()  # plays nothing
    page.until(lambda: 30.5 < page.run(PLAYED)[1] < 31.5)
    assert page.run(PLAYED)[0]


async def test_a_long_transcription_is_followed_and_stopped(
    page: Page, recording: Path, scribe: WaitingTranscriber
) -> None:
    scribe.gate = asyncio.Event()  # never set
    page.at("recording").send_keys(str(recording))
    page.until(lambda: texts(page, ".segment"))
    assert not scribe.has_ended
    page.until(lambda: page.at("stop-transcribing").is_displayed())
    progress = page.at("transcribe-progress").get_attribute("value")
    assert float(progress or 0) == pytest.approx(10 / SECONDS)
    page.at("stop-transcribing").click()

    page.until(lambda: scribe.has_ended)
    assert page.at("transcribe-status").text == "Stopped."
    assert len(page.all("#transcript .word")) == 10
    assert page.at("copy-transcript").is_displayed()


async def test_downloads_are_what_the_server_writes(
    page: Page, recording: Path, tmp_path: Path, scribe: WaitingTranscriber
) -> None:
    transcribe(page, recording)
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    segments = (await scribe.run(scribe.jobs[0])).segments
    written_by_server = {".srt": write_srt(segments), ".vtt": write_vtt(segments)}
    for button in page.all("#transcript-downloads button"):
        button.click()
        path = tmp_path / f"it's speech{button.text}"
        page.until(path.exists)
        if button.text in written_by_server:
            assert path.read_text() == written_by_server[button.text]
    assert "zero one two three four five six seven\neight nine\n" in written_by_server[".srt"]
    assert (tmp_path / "it's speech.txt").read_text().split("\n")[:2] == [WORDS, WORDS]
    written = json.loads((tmp_path / "it's speech.json").read_text())
    assert (written["spoken_language"], written["duration"]) == ("ht", SECONDS)
    assert written["segments"][3]["words"][1]["word"] == "one"


@pytest.mark.parametrize("language", ["curl", "Python"])
async def test_a_program_gets_the_same(page: Page, recording: Path, language: str) -> None:
    transcribe(page, recording)
    page.run("arguments[0].open = true", page.all("#transcribe .snippet")[0])
    Select(page.all("#transcribe .snippet select")[0]).select_by_visible_text(language)
    code = page.all("#transcribe .snippet pre")[0].text
    program = ["bash", "-c"] if language == "curl" else [sys.executable, "-c"]
    process = await asyncio.create_subprocess_exec(
        *program, code, stdout=subprocess.PIPE, cwd=recording.parent
    )
    written, _ = await process.communicate()
    answer = json.loads(written)
    assert [word["word"] for word in answer["words"]] == texts(page, "#transcript .word")
    assert len(answer["segments"]) == 4


async def test_a_transcript_is_translated_beside_its_segments(page: Page, recording: Path) -> None:
    transcribe(page, recording)
    assert not page.at("onward").is_displayed()  # nothing here translates Haitian Creole
    page.choose("speech", "en")
    wait_for_the_end(page)
    assert page.at("transcribe-status").text.startswith("0:32 transcribed")
    page.all("#onward summary")[0].click()
    page.choose("onward-target", "fr")
    page.at("onward-translate").click()

    page.until(lambda: page.at("onward-downloads").is_displayed())
    rows = [texts(page, f"#onward tbody tr:nth-child({row}) > *") for row in (1, 4)]
    assert rows == [["0:00", WORDS, WORDS.upper()], ["0:30", "zero one", "ZERO ONE"]]


async def test_speech_is_translated_to_english_where_the_model_can(
    page: Page, recording: Path, scribe: WaitingTranscriber
) -> None:
    transcribe(page, recording)
    translates = page.all("[name=speech-task][value=translate]")[0]
    translates.click()
    wait_for_the_end(page)
    assert [job.translates for job in scribe.jobs] == [False, True]
    assert page.at("transcript").get_attribute("lang") == "en"
    page.choose("transcriber", "english")
    assert not translates.is_enabled()
    assert texts(page, "#speech option") == ["English"]


async def test_what_cannot_be_heard_is_said_in_words(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "notes.mp3"
    file.write_text("It was a dark night.\n" * 100)
    transcribe(page, file)
    assert page.at("transcribe-error").text.startswith("The file: ")
    page.until(lambda: "cannot play the file" in page.at("player-status").text)
    assert page.at("transcript").text == ""


def set_microphone(page: Page, setting: str) -> None:
    permission = {"permission": {"name": "microphone"}, "setting": setting}
    page.driver.execute_cdp_cmd("Browser.setPermission", permission)


async def test_the_microphone_is_recorded_and_can_be_played_from_any_word(
    page: Page, scribe: WaitingTranscriber
) -> None:
    set_microphone(page, "granted")
    page.at("record").click()
    page.until(lambda: page.at("recorded").text == "0:02")
    page.until(lambda: float(page.at("level").get_attribute("value") or 0) > 0.3)
    assert page.at("record").text.endswith("Stop recording")
    page.at("record").click()
    page.until(lambda: page.all("#transcript .word"))
    wait_for_the_end(page)

    assert page.at("recording-name").text.startswith("Recording.")
    [job] = scribe.jobs
    assert 1.5 < len(job.samples) / 16_000 < 60 and np.abs(job.samples).max() > 1000
    assert page.at("record").text.endswith("Record")
    page.until(lambda: page.run("return Number.isFinite(player.duration)"))
    page.all("#transcript .word")[1].click()
    page.until(lambda: texts(page, ".spoken") == ["one"])
    page.run(PAUSE)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (None, "This page may not use the microphone."),
        (
            "navigator.mediaDevices.getUserMedia = () => Promise.reject("
            "new DOMException('', 'NotFoundError'))",
            "The browser finds no microphone.",
        ),
        (
            "Object.defineProperty(navigator, 'mediaDevices', { value: undefined })",
            "Browsers give the microphone to pages over HTTPS or at localhost alone.",
        ),
    ],
    ids=["denied", "none", "insecure"],
)
async def test_why_there_is_no_microphone_is_said(
    page: Page, script: str | None, sentence: str
) -> None:
    if script is None:
        set_microphone(page, "denied")
    else:
        page.run(script)
    page.at("record").click()
    page.until(lambda: page.at("transcribe-error").text.startswith(sentence))
    assert page.at("record").get_attribute("aria-pressed") == "false"


async def test_without_a_model_it_says_how_one_is_had(driver: Chrome, tokenizer: Tokenizer) -> None:
    async with made_world(tokenizer) as world:
        with listening(world.app, free_port()) as url:
            page = Page(driver)
            page.open(url)
            page.tab("transcribe")
            page.until(lambda: "attendant pull whisper-base" in page.at("transcribe-missing").text)
            assert not page.at("record").is_displayed()
            driver.get("about:blank")


@pytest.mark.full
def test_the_real_server_transcribes(driver: Chrome, server_url: str, tmp_path: Path) -> None:
    path = tmp_path / "speech.wav"
    path.write_bytes(wave_file(3.0))
    page = Page(driver)
    page.open(server_url)
    page.tab("transcribe")
    page.until(lambda: page.at("transcriber").text)
    page.choose("speech", "en")
    transcribe(page, path)

    assert page.at("transcribe-error").text == ""
    words = page.all("#transcript .word")
    assert words and page.at("transcribe-status").text.startswith("0:03 transcribed in ")
    page.run("arguments[0].focus()", words[0])
    assert page.at("word-status").text.startswith(f"“{words[0].text}”, 0.")
    assert np.ptp(page.run(BLUE)) > 0
    driver.get("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_transcript_is_legible_on_wide_and_narrow_screens(
    page: Page, recording: Path, scheme: str
) -> None:
    for width in (1280, 390):
        with page.looking_like(scheme, width):
            transcribe(page, recording)
            page.run("arguments[0].focus()", page.all("#transcript .word")[2])
            assert page.run(FAINT) == []
            assert page.run("return document.documentElement.scrollWidth") <= width
            ink = "return getComputedStyle(document.getElementById('spectrogram')).color"
            assert page.run(ink) == page.run("return getComputedStyle(document.body).color")


async def test_colours_of_probabilities_can_be_left_out(page: Page, recording: Path) -> None:
    transcribe(page, recording)
    background = "return getComputedStyle(document.querySelectorAll('.word')[5]).backgroundColor"
    coloured = page.run(background)
    page.at("show-probabilities").click()
    assert page.run(background) == "rgba(0, 0, 0, 0)" != coloured
