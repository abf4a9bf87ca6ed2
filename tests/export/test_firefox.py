"""`attendant pull firefox/...` fetches models by the protocol of Remote Settings."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from export import http_files
from export.pull import pull
from export.readers.reading import read_model
from serving.bundle.opening import open_bundle
from tests.export.readers.marian.files import bergamot_folder
from tests.export.remote_settings import (
    OLD_RECORDS,
    RECORDS,
    RemoteSettings,
    serve_remote_settings,
    wait_for,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteSettings]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(http_files, "PAUSES_SECONDS", (0.01, 0.01))
    with serve_remote_settings() as settings:
        monkeypatch.setenv("ATTENDANT_FIREFOX_SERVER", f"{settings.url}/v1/")
        yield settings


def run(*arguments: str) -> Result:
    return CliRunner().invoke(pull, [*arguments, "--no-verify"])


def sentence(*arguments: str) -> str:
    """Return the sentence with which a pull is refused."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    first, *lines = result.output.splitlines()
    assert first == f"{arguments[0]} cannot be pulled:" and len(lines) == 1, result.output
    return lines[0].strip()


def test_a_pair_becomes_a_bundle_in_int8(settings: RemoteSettings, tmp_path: Path) -> None:
    settings.add_model(tmp_path)
    result = run("firefox/en-pt")
    assert result.exit_code == 0, result.output
    manifest = open_bundle(Path("firefox-en-pt")).manifest
    assert (manifest.name, manifest.precision) == ("firefox-en-pt", "int8")
    assert (manifest.source_languages, manifest.target_languages) == (("en",), ("pt",))
    assert manifest.domain is None
    assert manifest.limits.split_tokens == 128
    assert manifest.generation == {"max_length_factor": 2.0, "num_beams": 1}
    assert manifest.has_shortlist
    card = Path("firefox-en-pt/README.md").read_text()
    assert manifest.origin == "firefox/en-pt 3.0 base"
    assert card.startswith("# Firefox Translations, en-pt 3.0 base\n")
    assert "MPL-2.0" in card


def test_weights_and_shortlist_are_those_of_the_files(
    settings: RemoteSettings, tmp_path: Path
) -> None:
    settings.add_model(tmp_path)
    assert run("firefox/en-pt").exit_code == 0
    bergamot_folder(tmp_path / "original")
    [folder] = (tmp_path / "cache/attendant/firefox").glob("*")
    fetched, original = read_model(folder), read_model(tmp_path / "original")
    assert {*fetched.weights} == {*original.weights}
    assert all((fetched.weights[name] == original.weights[name]).all() for name in fetched.weights)
    assert fetched.files["tokenizer.json"] == original.files["tokenizer.json"]


def test_the_best_architecture_and_its_newest_version_are_taken(
    settings: RemoteSettings, tmp_path: Path
) -> None:
    settings.add_model(tmp_path, version="3.9", architecture="tiny")
    settings.add_model(tmp_path, version="3.10", architecture="base")
    settings.add_model(tmp_path, version="3.2", architecture="base")
    settings.add_model(
        tmp_path,
        version="3.11a1",
        filter_expression="env.channel == 'nightly'",
        architecture="base",
    )
    assert run("firefox/en-pt").exit_code == 0
    assert "en-pt 3.10 base" in Path("firefox-en-pt/README.md").read_text()
    assert run("firefox/en-pt", "--architecture", "tiny", "-o", "tiny").exit_code == 0
    assert "en-pt 3.9 tiny" in Path("tiny/README.md").read_text()
    assert sentence("firefox/en-pt", "--architecture", "huge") == (
        "there is no huge model of en-pt: there is base, tiny"
    )


def test_languages_with_scripts_keep_their_names(settings: RemoteSettings, tmp_path: Path) -> None:
    settings.add_model(tmp_path, ("en", "zh-Hans"))
    assert run("firefox/en-zh-hans").exit_code == 0
    assert open_bundle(Path("firefox-en-zh-Hans")).manifest.target_languages == ("zh-Hans",)


def test_vocabularies_of_both_languages(settings: RemoteSettings, tmp_path: Path) -> None:
    settings.add_model(tmp_path)
    [vocabulary] = [record for record in settings.records if record["fileType"] == "vocab"]
    vocabulary["fileType"] = "srcvocab"
    settings.records.append({**vocabulary, "fileType": "trgvocab"})
    settings.records = [record for record in settings.records if record["fileType"] != "lex"]
    settings.publish()
    assert run("firefox/en-pt").exit_code == 0
    assert not open_bundle(Path("firefox-en-pt")).manifest.has_shortlist


def test_what_is_there_is_not_fetched_again_and_serves_offline(
    settings: RemoteSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.add_model(tmp_path)
    assert run("firefox/en-pt").exit_code == 0
    settings.requests.clear()
    assert run("firefox/en-pt", "-o", "again").exit_code == 0
    assert settings.requests == ["/v1/", RECORDS]

    [model] = (tmp_path / "cache/attendant/firefox").glob("*/model.intgemm*")
    settings.requests.clear()
    damaged = model.read_bytes()[:-1]
    model.write_bytes(damaged)
    assert run("firefox/en-pt", "-o", "mended").exit_code == 0
    assert len(settings.requests_for_attachments()) == 1

    monkeypatch.setenv("ATTENDANT_FIREFOX_SERVER", "http://127.0.0.1:9/v1")
    result = run("firefox/en-pt", "-o", "offline")
    assert result.exit_code == 0, result.output
    note = "cannot be reached: Connection refused: taking en-pt 3.0 base, which was fetched earlier"
    assert note in result.output
    assert "Connection refused" in sentence("firefox/en-de")
    assert "Connection refused" in sentence("firefox/en-pt", "--architecture", "tiny")


def test_cut_connections_are_resumed_where_they_ended(
    settings: RemoteSettings, tmp_path: Path
) -> None:
    settings.add_model(tmp_path)
    settings.cut_at = 700
    assert run("firefox/en-pt").exit_code == 0
    ranges = [request.partition(" ")[2] for request in settings.requests_for_attachments()]
    assert ranges == ["", "bytes=700-"] * 3


def test_a_server_without_ranges_sends_the_whole_file_again(
    settings: RemoteSettings, tmp_path: Path
) -> None:
    settings.add_model(tmp_path)
    settings.statuses = {"/attachments/" + settings.records[0]["attachment"]["location"]: [503]}
    settings.cut_at = 700
    assert "503" in sentence("firefox/en-pt")
    settings.statuses.clear()
    settings.cut_at, settings.ignores_ranges = None, True
    part_of_first(tmp_path, settings).write_bytes(b"xyz")
    assert run("firefox/en-pt").exit_code == 0


def part_of_first(tmp_path: Path, settings: RemoteSettings) -> Path:
    """Return the path of the unfinished download of the first attachment."""
    digest = settings.records[0]["attachment"]["hash"][:8]
    folder = tmp_path / "cache/attendant/firefox/en-pt-3.0-base"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"model.intgemm.alphas.bin.{digest}.zst.part"


@pytest.mark.parametrize("size", [100, 10_000_000])
def test_an_unfinished_download_of_something_else_is_begun_anew(
    settings: RemoteSettings, tmp_path: Path, size: int
) -> None:
    settings.add_model(tmp_path)
    part_of_first(tmp_path, settings).write_bytes(b"x" * size)
    assert run("firefox/en-pt").exit_code == 0


def test_a_killed_pull_goes_on_where_it_ended(settings: RemoteSettings, tmp_path: Path) -> None:
    settings.add_model(tmp_path)
    settings.stall_at = 1000
    command = [sys.executable, "-m", "serving.cli", "pull", "firefox/en-pt", "--no-verify"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    part = part_of_first(tmp_path, settings)
    wait_for(lambda: part.exists() and part.stat().st_size == 1000)
    process.send_signal(signal.SIGKILL)
    process.wait()

    settings.stall_at = None
    settings.requests.clear()
    assert run("firefox/en-pt").exit_code == 0
    assert settings.requests_for_attachments()[0].endswith(" bytes=1000-")


def test_a_stopped_pull_leaves_no_bundle(settings: RemoteSettings, tmp_path: Path) -> None:
    settings.add_model(tmp_path)
    settings.stall_at = 1000
    command = [sys.executable, "-m", "serving.cli", "pull", "firefox/en-pt"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    wait_for(lambda: part_of_first(tmp_path, settings).exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert not (tmp_path / "firefox-en-pt").exists()


def test_files_of_another_content_are_refused(settings: RemoteSettings, tmp_path: Path) -> None:
    settings.add_model(tmp_path)
    location = settings.records[0]["attachment"]["location"]
    path = f"/attachments/{location}"
    right = settings.bodies[path]
    settings.bodies[path] = right[:-1] + b"\0"
    assert f"{location} has SHA-256 " in sentence("firefox/en-pt")
    settings.bodies[path] = right + b"more"
    assert f"has more than the {len(right):,} bytes that were announced" in sentence(
        "firefox/en-pt"
    )
    settings.bodies[path] = right[:-1]
    expected = f"ends too early: {len(right) - 1:,} of {len(right):,} bytes are here, and the same"
    assert expected in sentence("firefox/en-pt")
    settings.bodies[path] = right
    settings.records[0]["decompressedHash"] = "0" * 64
    settings.publish()
    assert f"{location} holds a file of SHA-256 " in sentence("firefox/en-pt")
    assert not [*Path().glob("firefox-en-pt*")]


def test_a_compressed_file_that_is_none_or_grows_without_end(
    settings: RemoteSettings, tmp_path: Path
) -> None:
    settings.add_model(tmp_path)
    settings.records[0]["decompressedSize"] = 10
    settings.publish()
    assert "holds a file of SHA-256" in sentence("firefox/en-pt")
    content = settings.add_model(tmp_path, ("en", "de"))["model"]
    record = next(record for record in settings.records if record["targetLanguage"] == "de")
    record["attachment"] |= {
        "hash": hashlib.sha256(content).hexdigest(),
        "size": len(content),
    }
    record["decompressedHash"] = "1" * 64
    settings.bodies["/attachments/" + record["attachment"]["location"]] = content
    settings.publish()
    assert "cannot be decompressed" in sentence("firefox/en-de")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"attachment": None}, "a record has no attachment.location"),
        ({"attachment": {"location": "x.zst"}}, "no usable attachment.size and attachment.hash"),
        ({"decompressedHash": 7}, "no usable decompressedSize and decompressedHash"),
        ({"decompressedSize": 10**12}, "no usable decompressedSize and decompressedHash"),
        ({"version": "3.0b1"}, "version 3.0b1 is no release"),
        ({"version": "4.0"}, "version 4.0 is newer than this version of Attendant reads"),
        ({"version": None}, "a record has no version"),
        ({"architecture": "/../../x"}, "a record has no usable architecture: /../../x"),
        ({"fileType": "weights"}, "has no model file or no vocabulary"),
    ],
)
def test_records_of_another_shape_are_named(
    settings: RemoteSettings, tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    settings.add_model(tmp_path, **change)
    assert sentence("firefox/en-pt").startswith("en-pt cannot be used: ")
    assert expected in sentence("firefox/en-pt")


def test_records_that_are_not_understood_do_not_hide_the_others(
    settings: RemoteSettings, tmp_path: Path
) -> None:
    settings.add_model(tmp_path)
    settings.records += [7, None, {}, {"sourceLanguage": ["en"]}, {"sourceLanguage": "../x"}]  # type: ignore[list-item]
    settings.records.append({**settings.records[0], "version": "9.0"})
    settings.records.append({**settings.records[0], "fileType": ["model"]})
    settings.publish()
    assert run("firefox/en-pt").exit_code == 0


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/", b"{}", "/v1/ does not say where attachments are"),
        ("/v1/", b"<html>Sign in</html>", "/v1/ answers with something that is not JSON"),
        ("/v1/", b"[]", "/v1/ does not say where attachments are"),
        (RECORDS, b"[]", "answers with JSON that has no list of records as `data`"),
        (RECORDS, b'{"data": {}}', "answers with JSON that has no list of records as `data`"),
        (RECORDS, b'{"data": []}', "has no models of translation"),
        (RECORDS, b"\xff", "that is not JSON"),
    ],
)
def test_other_servers_are_told_from_catalogues(
    settings: RemoteSettings, tmp_path: Path, path: str, body: bytes, expected: str
) -> None:
    settings.add_model(tmp_path)
    settings.bodies[path] = body
    assert expected in sentence("firefox/en-pt")


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503])
def test_errors_of_the_server_are_said(
    settings: RemoteSettings, tmp_path: Path, status: int
) -> None:
    settings.add_model(tmp_path)
    settings.statuses["/v1/"] = [status]
    assert f"/v1/ answers {status} " in sentence("firefox/en-pt")
    settings.statuses = {"/attachments/" + settings.records[0]["attachment"]["location"]: [status]}
    assert f".zst answers {status} " in sentence("firefox/en-pt")


def test_a_server_that_is_busy_for_a_moment_is_asked_again(
    settings: RemoteSettings, tmp_path: Path
) -> None:
    settings.add_model(tmp_path)
    path = "/attachments/" + settings.records[0]["attachment"]["location"]
    settings.statuses[path] = [503, 429, 200]
    assert run("firefox/en-pt").exit_code == 0
    assert settings.requests.count(path) == 3


def test_mirrors_with_the_older_collection(settings: RemoteSettings, tmp_path: Path) -> None:
    contents = settings.add_model(tmp_path, version="2.1")
    for record in settings.records:
        content = contents[record["fileType"]]
        record |= {"fromLang": "en", "toLang": "pt"}
        for name in ("sourceLanguage", "targetLanguage", "decompressedHash", "decompressedSize"):
            del record[name]
        location = record["attachment"]["location"].replace(".zst", ".bin")
        digest = hashlib.sha256(content).hexdigest()
        record["attachment"] = {"location": location, "hash": digest, "size": str(len(content))}
        settings.bodies[f"/attachments/{location}"] = content
    settings.bodies[OLD_RECORDS] = json.dumps({"data": settings.records}).encode()
    del settings.bodies[RECORDS]
    assert run("firefox/en-pt").exit_code == 0


def test_missing_pairs_name_what_is_near(settings: RemoteSettings, tmp_path: Path) -> None:
    for pair in (("fr", "en"), ("en", "de"), ("en", "pt")):
        settings.add_model(tmp_path, pair)
    assert sentence("firefox/fr-de") == (
        "there is no fr-de: there is fr-en, en-de; a server of both translates by way of English"
    )
    assert sentence("firefox/fr-xx") == "there is no fr-xx: there is fr-en"
    assert "did you mean en-pt? `attendant pull firefox` lists the 3 pairs" in sentence(
        "firefox/enpt"
    )
    assert "lists the 3 pairs" in sentence("firefox/zzz")


def test_pairs_are_listed(settings: RemoteSettings, tmp_path: Path) -> None:
    settings.add_model(tmp_path, ("fr", "en"))
    settings.add_model(tmp_path, ("en", "pt"))
    assert run("firefox").output == "firefox/en-pt\nfirefox/fr-en\n"


def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("file:///etc", "firefox.example", "http://"):
        monkeypatch.setenv("ATTENDANT_FIREFOX_SERVER", address)
        assert "is no URL that begins with https:// or http://" in sentence("firefox/en-pt")


def test_options_that_do_not_fit_the_name() -> None:
    result = run("bergamot-en-pt", "--architecture", "tiny")
    assert result.exit_code == 2 and "--architecture is for models of Firefox" in result.output
    result = run("firefox/en-pt", "--file", "x.gguf")
    assert result.exit_code == 2 and "--file is for models of the Hugging Face hub" in result.output
