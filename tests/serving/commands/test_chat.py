"""`attendant chat`: in a terminal, which tests open as a pty, and in pipes."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fastapi import FastAPI

from serving.bundle.manifest import Precision
from serving.cli import main
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.openai.listening import listening
from tests.serving.pipelines.fakes import byte_tokenizer
from tests.tiny import tiny_bundle

ROOT = Path(__file__).parents[3]
TIMEOUT_SECONDS = 120
_LEAST_ANSWER = 100  # bytes


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model with a chat template, and room for long answers."""
    folder = tiny_bundle(
        "llama", tmp_path_factory.mktemp("chat"), Precision.INT8, context_length=100_000
    )
    manifest = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**manifest, "chat_template": CHAT_TEMPLATE}))
    return str(folder)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server listens whose model chats."""
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))

    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE}) as world:
            yield world.app

    with listening(app) as address:
        yield address


def chat(*arguments: str, lines: str) -> Result:
    return CliRunner().invoke(main, ["chat", *arguments], lines)


class Terminal:
    """`attendant chat` in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serving.cli", "chat", *arguments],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._screen = b""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def read_until(self, text: str) -> str:
        """Return what was written up to this text, which has to come."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while text.encode() not in self._screen:
            left = deadline - time.monotonic()
            if not select.select([self._master], [], [], max(0, left))[0]:
                raise AssertionError(f"{text!r} did not come: {self._screen[-500:]!r}")
            self._screen += os.read(self._master, 4096)
        before, _, self._screen = self._screen.partition(text.encode())
        return before.decode(errors="replace")

    def give_up_line(self) -> None:
        """Type Ctrl-C at a prompt until something comes: before Python waits for keys, it only
        notes the signal, until the next key.
        """
        while not (self._screen or select.select([self._master], [], [], 0)[0]):
            self.type("\x03")
            select.select([self._master], [], [], 2)

    def has_answer(self) -> bool:
        """Wait for an answer that was not read yet, and return whether it has come. What the
        terminal writes by itself after a line is shorter.
        """
        while len(self._screen) < _LEAST_ANSWER:
            if not select.select([self._master], [], [], TIMEOUT_SECONDS)[0]:
                return False
            self._screen += os.read(self._master, 4096)
        return True

    def end(self) -> int:
        try:
            return self.process.wait(TIMEOUT_SECONDS)
        finally:
            self.process.kill()
            os.close(self._master)


def test_control_c_stops_the_answer_and_not_the_program(bundle: str) -> None:
    terminal = Terminal(bundle, "--min-tokens", "90000")
    terminal.read_until("> ")
    terminal.type("Tell me all.\n")
    terminal.read_until("\n")
    assert terminal.has_answer()  # the answer has begun
    terminal.type("\x03")
    terminal.read_until("(stopped)")
    terminal.read_until("> ")
    terminal.give_up_line()
    terminal.read_until("> ")
    terminal.type("/quit\n")
    assert terminal.end() == 0


def test_commands_change_the_chat(url: str) -> None:
    terminal = Terminal(url, "--system", "be brief", "--max-tokens", "300")
    terminal.read_until("> ")
    terminal.type("/help\n")
    assert "/reset" in terminal.read_until("> ")
    terminal.type("/nonsense\n")
    terminal.read_until("There is no command /nonsense")
    terminal.read_until("> ")
    terminal.type("one \\\ntwo\n")
    terminal.read_until("two")
    terminal.read_until("> ")
    terminal.type("/reset\n")
    terminal.read_until("A new chat.")
    terminal.type("/system\n")
    terminal.read_until("without a system message")
    terminal.read_until("> ")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_each_line_of_a_pipe_is_a_question_of_one_chat(bundle: str) -> None:
    options = ["--temperature", "0", "--max-tokens", "6"]
    together = chat(bundle, *options, lines="Who?\n\nWhere?\n")
    alone = chat(bundle, *options, lines="Where?")
    again = chat(bundle, *options, lines="Who?\nWhere?")
    assert (together.exit_code, alone.exit_code) == (0, 0), together.stderr
    assert together.stdout == again.stdout  # a blank line is no question
    assert not together.stdout.endswith(alone.stdout)  # the first question is part of the chat


def test_the_whole_input_is_one_question(bundle: str) -> None:
    options = [bundle, "--temperature", "0", "--max-tokens", "6", "--whole-input"]
    whole, line = chat(*options, lines="Who?\nWhere?\n"), chat(*options, lines="Who?\n")
    assert (whole.exit_code, line.exit_code) == (0, 0), whole.stderr
    assert whole.stdout != line.stdout


def test_a_server_answers_as_its_api_does(url: str) -> None:
    first = chat(url, "--max-tokens", "20", lines="Hello")
    named = chat(url, "--model", "story", "--max-tokens", "20", lines="Hello")
    unknown = chat(url, "--model", "nobody", lines="Hello")
    assert first.exit_code == 0 and first.stdout.strip(), first.stderr
    assert first.stdout == named.stdout
    assert unknown.exit_code != 0 and "nobody" in unknown.stderr
    assert "Traceback" not in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{translator}"], "attendant translate --model"),
        (["{generator}"], "attendant generate --model"),
        (["{missing}"], "no such folder"),
        (["http://127.0.0.1:1"], "did not list its models: "),
        (["http://127.0.0.1:1", "--device", "cpu"], "--device is for bundles"),
        (["{generator}", "--model", "a"], "--model is for servers"),
    ],
)
def test_what_cannot_chat_is_told_in_one_line(
    arguments: list[str], message: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "silent"
    places = {
        "translator": folder / "bahdanau-int8",
        "generator": folder / "llama-int8",
        "missing": folder / "missing",
    }
    for architecture in ("bahdanau", "llama"):
        if not (folder / f"{architecture}-int8").exists():
            tiny_bundle(architecture, folder, Precision.INT8)
    result = chat(*(word.format(**places) for word in arguments), lines="Hello")
    assert result.exit_code != 0 and message in result.stderr
    assert "Traceback" not in result.stderr and result.stdout == ""


def test_a_pipe_ends_with_the_signal_of_control_c(bundle: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "serving.cli", "chat", bundle, "--min-tokens", "90000"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"Tell me all.\n")
    process.stdin.flush()
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130 and b"Traceback" not in errors
