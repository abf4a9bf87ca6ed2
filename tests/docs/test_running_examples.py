"""Every example of shell in README, docs and `--help` runs as it is written, after `make serve`, or
stands in `NOT_RUN` with the reason.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serving.access.key_file import hash_key, new_key_entry, write_keys
from tests.docs.examples import Example, all_examples
from tests.docs.pages import ROOT
from tests.docs.preloaded import DEFAULTS, write_command
from tests.docs.surroundings import copied, write_surroundings
from tests.served import (
    STOP_TIMEOUT_SECONDS,
    attendant,
    eventually,
    free_port,
    read_lines,
    url_of,
)

# Commands that are not run, by their beginnings or parts. `test_examples.py` reads them all.
NOT_RUN = {
    r"^(?:make|pytest|ruff|source) ": "installs, and runs the tests themselves",
    r"^(?:docker|kubectl|helm) |attendant deploy apply": "needs Docker, or a cluster",
    r"attendant pull (?!--list)|OWNER/MODEL|serve firefox/": "fetches models",
    r"attendant (?:train|tune|lab zoo|lab ship) ": "trains: minutes to days",
    r"build/runs/transformer-en-fr|serve build/bundles/mine|load (?:\S*/)?own": "needs its result",
    r"~/models/(?:ggml|whisper)|faster-whisper-|whisper-small": "reads models of other projects",
    r"argos": "needs packages of Argos Translate, and a server of them",
    r"localhost:5000": "the same",
    r"venv attendant$|--find-links dist": "needs a wheel: tests/deploy/test_wheel.py",
    r"bench-compare|bench-transcribe|bench\.peers|race/": "needs other engines",
    r"--find-capacity": "measures for minutes",
    r"^lm_eval|^guidellm": "needs other programs",
    r"postgres|/etc/|^apt-get|^systemctl|^pg_ctlcluster|--host 0\.0\.0\.0|://(?:one|front):": (
        "changes a machine: tests/serving/deployments/test_three_machines.py runs it on hosts"
    ),
    r"ray\.env|ray start": "needs several machines",
    r" [A-Z_]{4,}(?: |$)|/ID\b": "has a placeholder: BUNDLE, CHECKPOINT",
}
# What is changed in the others: nothing but how long they take, and where the server is.
SHORTER = {
    "--duration 60": "--duration 1",
    "--sweep 1,2,4,8,16,32,64": "--sweep 1,2",
}
SECONDS = {"loadtest": {"duration": 1.0, "warm_up": 0.0}}
ADDRESSES = ("localhost:8000", "127.0.0.1:8000")
# Models that are served beside those of `make serve`.
SERVED = "smollm2-135m-instruct build/bundles/minilm build/bundles/whisper-base"
LAST_MEMORY = ' "$(attendant memory list | tail -n 1 | cut -f 1)"'


def runnable(example: Example) -> list[str]:
    return [
        command
        for command in example.commands
        if not any(re.search(pattern, command) for pattern in NOT_RUN)
    ]


def examples(needed: str) -> list[Any]:
    """List the examples that need nothing, a server, or one with operators."""
    return [
        pytest.param(example, id=example.origin)
        for example in all_examples()
        if example.language == "sh" and runnable(example) and need_of(example) == needed
    ]


def need_of(example: Example) -> str:
    if "attendant models " in example.text:
        return "operators"
    needs_server = "attendant memory " in example.text
    needs_server |= any(address in example.text for address in ADDRESSES)
    return "server" if needs_server else "nothing"


def test_every_reason_is_one() -> None:
    commands = [
        command
        for example in all_examples()
        if example.language == "sh"
        for command in example.commands
    ]
    for pattern in NOT_RUN:
        assert any(re.search(pattern, command) for command in commands), pattern


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("after-make-serve")
    write_surroundings(folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stand-ins")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the command `attendant`."""
    folder = tmp_path_factory.mktemp("bin")
    listener = folder / "socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.docs.preloaded", str(listener)], cwd=ROOT
    )
    try:
        write_command(folder / "attendant", listener)
        assert eventually(listener.exists, seconds=120)
        yield folder
    finally:
        process.terminate()
        process.wait()


def run(
    example: Example,
    clone: Path,
    programs: Path,
    changes: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> str:
    script = "\n".join(runnable(example))
    for long, short in {**SHORTER, **(changes or {})}.items():
        script = script.replace(long, short)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=clone,
        env={
            **os.environ,
            "PATH": os.pathsep.join([str(programs), f"{sys.prefix}/bin", os.environ["PATH"]]),
            "HOME": str(clone.parent / "home"),
            DEFAULTS: json.dumps(SECONDS | dict(defaults or {})),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.parametrize("example", examples("nothing"))
def test_it_runs(
    example: Example, template: Path, made: Path, programs: Path, tmp_path: Path
) -> None:
    run(example, copied(template, tmp_path, example.text, made), programs)


@contextmanager
def serving(*arguments: str | Path) -> Iterator[tuple[str, str]]:
    """Start `attendant serve`; yield the addresses of the server and of its operations port."""
    port, operations_port = free_port(), free_port()
    ports = ("--port", str(port), "--operations-port", str(operations_port))
    with attendant("serve", *map(str, arguments), *ports) as process:
        url = url_of(process)
        reader = threading.Thread(target=read_lines, args=(process, []))
        reader.start()
        try:
            yield url, f"http://127.0.0.1:{operations_port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=STOP_TIMEOUT_SECONDS)
            reader.join()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def server(template: Path, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of all that lies in `build/bundles`, and of models that are asked."""
    folder = tmp_path_factory.mktemp("served")
    copied(template, folder, SERVED, made)
    bundles = (folder / "clone/build/bundles").iterdir()
    with serving(*bundles, folder / "clone/smollm2-135m-instruct") as (url, _):
        yield url


@pytest.mark.servers
@pytest.mark.parametrize("example", examples("server"))
def test_it_runs_beside_a_server(
    example: Example, template: Path, made: Path, programs: Path, server: str, tmp_path: Path
) -> None:
    addresses = dict.fromkeys(ADDRESSES, server.removeprefix("http://"))
    changes = {
        "curl ": "curl --fail-with-body --max-time 60 ",
        " ID": LAST_MEMORY,
        '"smollm2-135m-instruct"': '"imported-llama"',
        '"minilm"': '"embedder"',
    }
    commands = ("import", "list", "export", "delete")
    defaults = {"memory": {command: {"url": server} for command in commands}}
    clone = copied(template, tmp_path, example.text, made)
    run(example, clone, programs, addresses | changes, defaults)


@pytest.mark.servers
def test_python_of_the_page_about_speech_runs(
    template: Path, server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(template)
    [example] = [
        example
        for example in all_examples()
        if example.language == "python" and example.origin.startswith("docs/speech.md")
    ]
    exec(example.text.replace("http://localhost:8000", server), {})

    language, *_ = capsys.readouterr().out.split()
    assert language in ("english", "french")


@pytest.mark.servers
@pytest.mark.parametrize("example", examples("operators"))
def test_models_are_loaded_and_unloaded(
    example: Example, template: Path, made: Path, programs: Path, tmp_path: Path
) -> None:
    """The server runs when the example makes its operator's key, and sees the change."""
    clone = copied(template, tmp_path, example.text, made)
    write_keys(clone / "operators.json", (new_key_entry(name="first", sha256=hash_key("first")),))
    bundle = clone / "build/bundles/transformer-en-fr-int8"
    with serving(bundle, "--operators", clone / "operators.json") as (_, operations):
        defaults = {"models": {command: {"url": operations} for command in ("load", "unload")}}
        run(example, clone, programs, defaults=defaults)
