"""`attendant memory` fills, lists, exports and deletes the translation memories of a server."""

import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import click

from serving.commands.administration import ask, open_url
from serving.commands.failure import fail

_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 120.0
_CHUNK_BYTES = 2**20
_MEMORIES = "/v3/translation_memories"


def _server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a server and a key."""
    key = click.option(
        "--api-key",
        envvar="ATTENDANT_KEY",
        show_envvar=True,
        default="",
        help="The key, if the server wants one; the memories of other keys are invisible.",
    )
    url = click.option(
        "--url", default="http://127.0.0.1:8000", show_default=True, help="Where the server is."
    )
    return url(key(command))


@click.group()
def memory() -> None:
    """Fill, list, export and delete the translation memories of a server.

    A request names a memory by its id (DeepL's translation_memory_id; memory in /translate). What
    the memory has is answered as it is there; what is 75 % alike or more, too.

    \b
    Examples:
      attendant memory import team.tmx --name Team
      attendant memory list
      attendant memory export ID -o team.tmx
      attendant memory delete ID
    """


@memory.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", help="The name of the memory.  [default: that of the file]")
@_server
def import_file(file: Path, name: str | None, url: str, api_key: str) -> None:
    """Make a memory of FILE, a TMX file, and print its id.

    Units without a source or a target, and those that occur twice, are skipped. The file is read
    whole or not at all: an error says its line.
    """
    size = file.stat().st_size
    announced = {
        "source_file": {"file_name": file.name[-100:], "content_length": size},
        "parameters": {"display_name": name or file.name},
    }
    job = _answer("POST", url, f"{_MEMORIES}/import", api_key, announced)
    _upload(file, size, job["upload_url"])
    result = _wait_for_job(url, api_key, job["job_id"])
    if result["status"] != "completed":
        fail(f"{file}: {result.get('error', {}).get('message', result['status'])}")
    if skipped := result.get("skipped_segment_count"):
        click.echo(f"attendant: {skipped} units were skipped", err=True)
    click.echo(result["translation_memory_id"])


@memory.command("list")
@_server
def list_memories(url: str, api_key: str) -> None:
    """List ids, languages, numbers of units, and names."""
    for memory_info in _all_memories(url, api_key):
        languages = (
            f"{memory_info['source_language']} > {', '.join(memory_info['target_languages'])}"
        )
        fields = (
            memory_info["translation_memory_id"],
            languages,
            memory_info["segment_count"],
            memory_info["name"],
        )
        click.echo("\t".join(map(str, fields)))


@memory.command()
@click.argument("identity", metavar="ID")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False))
@_server
def export(identity: str, output: Path, url: str, api_key: str) -> None:
    """Write the memory ID as TMX."""
    path = f"{_MEMORIES}/{urllib.parse.quote(identity, safe='')}/export"
    job = _answer("POST", url, path, api_key)
    source = _wait_for_job(url, api_key, job["job_id"])["download_url"]
    with _open_url("GET", source) as answer, output.open("wb") as file:
        while chunk := answer.read(_CHUNK_BYTES):
            file.write(chunk)


@memory.command()
@click.argument("identity", metavar="ID")
@_server
def delete(identity: str, url: str, api_key: str) -> None:
    """Delete the memory ID."""
    path = f"{_MEMORIES}/{urllib.parse.quote(identity, safe='')}"
    headers = {"Authorization": f"DeepL-Auth-Key {api_key}"}
    _open_url("DELETE", url.rstrip("/") + path, headers).close()


def _upload(file: Path, size: int, address: str) -> None:
    from tqdm import tqdm

    with (
        file.open("rb") as source,
        tqdm(total=size, unit="B", unit_scale=True, desc="sending", disable=None) as bar,
    ):

        def chunks() -> Iterator[bytes]:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk
                bar.update(len(chunk))

        headers = {"Content-Type": "application/xml", "Content-Length": str(size)}
        _open_url("PUT", address, headers, chunks()).close()


def _wait_for_job(url: str, api_key: str, job: str) -> dict[str, Any]:
    """Wait until a job has ended, and return its result. A server that is away for a moment goes on
    with the job when it is back.
    """
    address, key = f"{url.rstrip('/')}{_MEMORIES}/jobs/{job}", f"DeepL-Auth-Key {api_key}"
    answered = time.monotonic()
    while True:
        try:
            result: dict[str, Any] = ask("GET", address, key)["results"][0]
            answered = time.monotonic()
            if result["status"] not in ("awaiting_input", "processing"):
                return result
        except ValueError as error:
            if time.monotonic() - answered > _PATIENCE_SECONDS:
                fail(str(error))
        time.sleep(_POLL_SECONDS)


def _all_memories(url: str, api_key: str) -> Iterator[dict[str, Any]]:
    page = 0
    while memories := _answer("GET", url, f"{_MEMORIES}?page={page}", api_key)[
        "translation_memories"
    ]:
        yield from memories
        page += 1


def _answer(method: str, url: str, path: str, api_key: str, body: Any = None) -> Any:
    try:
        return ask(method, url.rstrip("/") + path, f"DeepL-Auth-Key {api_key}", body)
    except ValueError as error:
        fail(str(error))


def _open_url(
    method: str, url: str, headers: dict[str, str] | None = None, data: Any = None
) -> HTTPResponse:
    """Return the answer to a file that is sent, or that answers; fail with the reason."""
    try:
        return open_url(method, url, headers or {}, data)
    except ValueError as error:
        fail(str(error))
