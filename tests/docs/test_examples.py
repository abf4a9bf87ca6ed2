"""Every example of README, docs and `--help` is one that could run: its shell is valid, commands
take its options, configurations and bodies of requests are understood, targets, files and modules
exist. `test_running_examples.py` runs them.
"""

import ast
import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path, PosixPath
from typing import Any

import click
import pytest
import yaml

from serving.api.http.bodies import RequestBody, parse
from serving.server_config import parse_config
from tests.deploy.rendered import check
from tests.docs.commands import invocations, parsed
from tests.docs.examples import (
    Example,
    all_commands,
    all_examples,
    is_command,
    is_shell,
    quoted_commands,
)
from tests.docs.pages import ROOT
from tests.serving.api.endpoints import ENDPOINTS

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LANGUAGES = {"", "json", "nginx", "python", "sh", "toml", "yaml"}
# Words that stand for values in a synopsis.
PLACEHOLDERS = {"N": "1", "X": "1", "R": "1", "LIMIT": "p95_e2e_ms<1", "URL": "http://localhost"}
BODIES = {endpoint.protocol.prefix + endpoint.path: endpoint.body for endpoint in ENDPOINTS}
JSON_REQUEST = re.compile(
    r"localhost:8000(/\S*) -H 'Content-Type: application/json' \\\n\s+-d '(.*)'"
)
APPLIED = "kubectl apply -f - <<'END'"
MENTIONS = (click.MissingParameter, click.BadOptionUsage)


class PresentPath(PosixPath):
    def exists(self, **_: Any) -> bool:
        return True


def examples_in(*languages: str) -> list[Any]:
    examples = (example for example in all_examples() if example.language in languages)
    return [pytest.param(example, id=example.origin) for example in examples]


@pytest.fixture(autouse=True)
def files_are_as_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let options take paths that are not there, and find a bundle."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: Path(value))
    monkeypatch.setattr(click.File, "convert", lambda self, value, param, ctx: Path(value))
    monkeypatch.setattr("loadtest.bench.compare.Path", PresentPath)
    monkeypatch.setattr("serving.commands.options.find_bundle", lambda *_: Path("bundle"))


def test_commands_stand_in_blocks_of_shell() -> None:
    """Other languages are checked by name; a block without one is text, and holds no command."""
    assert {example.language for example in all_examples()} == LANGUAGES
    texts = (example for example in all_examples() if example.language == "")
    lines = ((text.origin, line) for text in texts for line in text.text.splitlines())
    assert [(origin, line) for origin, line in lines if is_command(line)] == []


@pytest.mark.parametrize("example", examples_in("sh"))
def test_commands_are_understood(example: Example) -> None:
    assert is_shell(example.text)
    for command in example.commands:
        for words in invocations(command):
            parsed(words)
        for path, fields in JSON_REQUEST.findall(command):
            body = parse(BODIES[path], json.loads(fields))
            assert not isinstance(body, RequestBody) or body.job("job")
        assert list(missing_things(command)) == []


def test_quoted_commands_are_understood() -> None:
    """Commands within a line, too, with every option that a synopsis has in brackets."""
    for origin, text in quoted_commands():
        if "COMMAND" in text:
            continue
        words = re.sub(r"[][]|\.\.\.", " ", re.sub(r"(?<=[\w-])\|[\w|-]*", "", text))
        for invocation in invocations(words):
            arguments = [PLACEHOLDERS.get(word, word) for word in invocation]
            try:
                parsed(arguments)
            except MENTIONS:
                pass
            except (click.UsageError, AssertionError) as error:
                pytest.fail(f"{origin}: {text}: {error}")
        assert list(missing_things(text)) == [], origin


def missing_things(command: str) -> Iterator[str]:
    """Yield what a command of another program names, and this repository does not have."""
    words = shlex.split(command, comments=True)
    program = words[0].rpartition("/")[2] if words else ""
    if program == "make":
        for word in words[1:]:
            name = re.escape(word.partition("=")[0])
            pattern = rf"^{name} \?=|\b{name} \?=|^{name} :=" if "=" in word else rf"^{name}:.*##"
            if not re.search(pattern, MAKEFILE, re.MULTILINE):
                yield f"make {word}"
    if program == "python" and words[1] == "-m" and importlib.util.find_spec(words[2]) is None:
        yield words[2]
    if program == "pytest":
        markers = [
            line.partition(":")[0] for line in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]
        ]
        for option, word in pairwise(words):
            if option == "-m" and word not in markers:
                yield f"marker {word}"
            if word.startswith("tests/") and not (ROOT / word).exists():
                yield word
    if program == "pip":
        for extra in re.findall(r"\w+(?=[\w,]*\])", command):
            if extra not in PYPROJECT["project"]["optional-dependencies"]:
                yield f"extra {extra}"
    for path in re.findall(r"(?:-f|helm install \w+) (deploy/\S+)", command):
        if not (ROOT / path).exists():
            yield path


@pytest.mark.parametrize("example", examples_in("json"))
def test_json_is_valid(example: Example) -> None:
    assert json.loads(example.text)


@pytest.mark.parametrize("example", examples_in("toml"))
def test_toml_is_valid(example: Example) -> None:
    assert tomllib.loads(example.text)


@pytest.mark.parametrize("example", examples_in("yaml"))
def test_configurations_are_understood(example: Example) -> None:
    """A configuration of the server, or a part of one; a list is one of another program."""
    value = yaml.safe_load(example.text)
    if isinstance(value, dict):
        groups = {"groups": [{"bundles": ["bundle"]}]}
        assert parse_config(example.origin, groups | value).groups


def test_python_in_helps_is_valid() -> None:
    """`test_pages.py` compares that of pages with the files that it quotes."""
    examples = [example for example in all_examples() if "--help" in example.origin]
    texts = [example.text for example in examples if example.language == "python"]
    assert texts and all(ast.parse(text).body for text in texts)


@pytest.mark.parametrize(
    "example", [example for example in examples_in("sh") if APPLIED in example.values[0].text]
)
def test_manifests_in_shell_are_those_of_kubernetes(example: Example) -> None:
    [manifests] = re.findall(rf"{APPLIED}\n(.*?)^END$", example.text, re.DOTALL | re.MULTILINE)
    for manifest in yaml.safe_load_all(manifests):
        check(manifest)


def test_there_is_an_example_for_each_endpoint() -> None:
    text = "".join(example.text for example in all_examples() if example.language == "sh")
    paths = {*re.findall(r"curl.* localhost:8000(/[\w/]+)", text)}
    assert paths == {
        "/translate",
        "/translate_file",
        "/v2/document",
        "/v2/translate",
        "/score",
        "/languages",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/models",
        "/v1/embeddings",
        "/health",
        "/ready",
        "/metrics",
    }


def test_every_command_has_an_example() -> None:
    """As docs/serving.md says: in its own help, or in that of its group."""
    examples = [
        example
        for example in all_examples()
        if "--help" in example.origin and example.language == "sh"
    ]
    commands = [command for example in examples for command in example.commands]
    shown = {parsed(words).command_path for text in commands for words in invocations(text)}
    leaves = {words for words, command in all_commands() if not isinstance(command, click.Group)}
    assert leaves - shown == set()


@pytest.mark.parametrize(
    "command",
    ["attendant sing", "attendant serve bundle --loud", "attendant lab zoo | attendant keys make"],
)
def test_a_wrong_command_is_found(command: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        list(map(parsed, invocations(command)))


@pytest.mark.parametrize(
    "command",
    [
        "make coffee",
        "make serve CUPS=2",
        "python -m serving.coffee",
        "pytest -m strong",
        "pytest tests/coffee",
        "pip install '.[coffee]'",
        "kubectl apply -f deploy/coffee.yaml",
    ],
)
def test_a_missing_thing_is_found(command: str) -> None:
    assert len([*missing_things(command)]) == 1
