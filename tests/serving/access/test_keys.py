"""The file of keys, and the ring that reads it while it serves."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from serving.access.key_file import generate_key, read_keys
from serving.access.key_ring import KeyRing, open_key_ring
from serving.access.rates import Rates
from serving.cli import main
from serving.errors import ConfigError, RateExceeded
from serving.storage.state import State
from tests.serving.access.clock import Clock


def attendant(*arguments: object) -> str:
    result = CliRunner().invoke(main, ["keys", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.output.strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_a_key_is_printed_once_and_never_written(path: Path) -> None:
    key = attendant("create", "alice", "--rate", 5, "--tokens", 600, "--file", path)
    attendant("create", "bob", "--requests", 9, "--characters", 10**7, "--file", path)

    assert len(key) > 40 and key not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert attendant("list", "--file", path).splitlines() == [
        "alice\t5 requests a second\t600 tokens a minute"
        "\tany number of requests a minute\tany number of characters a month",
        "bob\tany number of requests a second\tany number of tokens a minute"
        "\t9 requests a minute\t10000000 characters a month",
    ]
    attendant("revoke", "alice", "--file", path)
    assert [entry.name for entry in read_keys(path)] == ["bob"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("create", "alice"), "there is a key of alice already"),
        (("create", "a/b"), "name: "),
        (("create", "carol", "--rate", "0"), "requests_per_second: "),
        (("create", "carol", "--tokens", "nan"), "tokens_per_minute: "),
        (("revoke", "bob"), "there is no key of bob"),
    ],
)
def test_what_cannot_be_done_is_said(path: Path, arguments: tuple[str, ...], problem: str) -> None:
    attendant("create", "alice", "--file", path)
    before = path.read_bytes()

    result = CliRunner().invoke(main, ["keys", *arguments, "--file", str(path)])

    assert result.exit_code != 0 and problem in result.output
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"keys": [{"name": "a", "sha256": "secret"}]}',
        '{"version": 2}',
        '{"keys": [], "more": 1}',
        json.dumps({"keys": [{"name": "a", "sha256": "0" * 64}] * 2}),
    ],
)
def test_a_file_that_is_none_is_refused_without_its_content(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_keys(path)
    assert "secret" not in str(caught.value)


def test_only_known_keys_are_found(path: Path) -> None:
    key = attendant("create", "alice", "--file", path)
    ring = KeyRing(path, {"ATTENDANT_KEY": "a key of one's own"})

    found = [ring.find(each) for each in (key, "a key of one's own", generate_key(), "", "é\ud800")]

    assert [each and each.name for each in found] == ["alice", "environment", None, None, None]
    assert open_key_ring(None, {}) is None


def test_white_space_around_the_key_of_the_environment_is_no_part_of_it(path: Path) -> None:
    """A Kubernetes secret that was made with `echo` ends with a line break."""
    ring = open_key_ring(None, {"ATTENDANT_KEY": "a key of one's own\r\n"})
    assert ring is not None and ring.find("a key of one's own") is not None

    with pytest.raises(ConfigError, match="only white space"):
        open_key_ring(None, {"ATTENDANT_KEY": " \n"})


def test_no_key_of_the_file_has_the_name_of_the_key_in_the_environment(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, key = Clock(), attendant("create", "alice", "--file", path)
    ring = KeyRing(path, {"ATTENDANT_KEY": "a key of one's own"}, clock)
    attendant("create", "environment", "--file", path)

    with pytest.raises(ConfigError, match="may be named 'environment' while ATTENDANT_KEY is set"):
        open_key_ring(path, {"ATTENDANT_KEY": "a key of one's own"})
    assert open_key_ring(path, {}) is not None

    clock.now += 1
    assert ring.find(key) and "'environment'" in caplog.text


def test_a_changed_file_is_read_and_a_broken_one_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alice, clock = attendant("create", "alice", "--file", path), Clock()
    ring = KeyRing(path, {}, clock)
    bob = attendant("create", "bob", "--file", path)
    assert ring.find(bob) is None

    clock.now += 1
    assert ring.find(bob) and ring.find(alice)
    path.write_text("{")
    clock.now += 1
    assert ring.find(bob)
    assert [each.levelno for each in caplog.records] == [logging.ERROR]

    path.unlink()
    attendant("create", "carol", "--file", path)
    clock.now += 1
    assert ring.find(alice) is None


async def test_rates_are_kept_while_an_entry_stays(path: Path, state: State) -> None:
    clock, rates = Clock(), Rates(state)
    alice = attendant("create", "alice", "--rate", 0.01, "--file", path)
    ring = KeyRing(path, {}, clock)
    key = ring.find(alice)
    assert key is not None
    await rates.admit(key)

    attendant("create", "bob", "--file", path)
    clock.now += 1
    again = ring.find(alice)

    assert again is key
    with pytest.raises(RateExceeded):
        await rates.admit(again)
