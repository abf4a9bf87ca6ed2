"""JSON documents and files over HTTP. A download that was cut off is resumed, by this program or by
the next one, and a file appears at its path only if its size and SHA-256 are right.

The proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`) and the certificates of the system, or of
`SSL_CERT_FILE`, are used.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from export.downloads import PullError

MOST_JSON_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
PAUSES_SECONDS = (1.0, 2.0, 4.0)  # after tries that brought nothing
HTTP_PARTIAL_CONTENT, HTTP_TOO_MANY_REQUESTS, HTTP_RANGE_NOT_SATISFIABLE = 206, 429, 416
HTTP_SERVER_ERRORS = 500
HEADERS = {"User-Agent": "attendant", "Accept-Encoding": "identity"}


class Unreachable(PullError):
    """No server answers at an address, or it answers that it cannot just now."""


class StatusError(PullError):
    """A server refuses a request. status: the one of HTTP."""

    def __init__(self, url: str, status: int, reason: str) -> None:
        super().__init__([f"{url} answers {status} {reason}".rstrip()])
        self.status = status


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL. size: in bytes."""

    url: str
    size: int
    sha256: str


def fetch_json(url: str, timeout: float) -> Any:
    """Return the JSON document at a URL. Raises PullError.

    timeout: seconds that a connection, and each part of the answer, may take.
    """
    with _open(url, timeout) as response:
        try:
            body = response.read(MOST_JSON_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise _unreachable(url, error) from None
    if len(body) > MOST_JSON_BYTES:
        raise PullError([f"{url} answers with more than {MOST_JSON_BYTES >> 20} MiB"])
    try:
        return json.loads(body)
    except ValueError:
        raise PullError([f"{url} answers with something that is not JSON"]) from None


def fetch_file(
    file: RemoteFile, path: Path, timeout: float, advance: Callable[[int], object]
) -> None:
    """Download a file to `path`, from where an earlier download ended. Raises PullError.

    advance: called with the numbers of bytes that are there, as they come.
    """
    part = path.with_name(f"{path.name}.part")
    was_resumed = part.is_file() and part.stat().st_size > 0
    _complete(file, part, timeout, advance)
    digest = sha256_of(part)
    if digest != file.sha256 and was_resumed:  # it was the beginning of another file
        advance(-part.stat().st_size)
        part.unlink()
        _complete(file, part, timeout, advance)
        digest = sha256_of(part)
    if digest != file.sha256:
        part.unlink()
        raise PullError([f"{file.url} has SHA-256 {digest}, expected {file.sha256}"])
    part.replace(path)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _complete(
    file: RemoteFile, part: Path, timeout: float, advance: Callable[[int], object]
) -> None:
    """Download what is missing of a part, in several requests where connections break."""
    if part.is_file() and part.stat().st_size > file.size:
        part.unlink()
    size = part.stat().st_size if part.is_file() else 0
    advance(size)
    pauses = iter(PAUSES_SECONDS)
    while size < file.size:
        try:
            _download(file, part, size, timeout, advance)
            error: Unreachable | None = None
        except Unreachable as raised:
            error = raised
        size_before, size = size, part.stat().st_size if part.is_file() else 0
        if size > size_before:
            pauses = iter(PAUSES_SECONDS)
        elif (pause := next(pauses, None)) is not None:
            time.sleep(pause)
        else:
            problem = str(error) if error else f"{file.url} ends too early"
            progress = f"{size:,} of {file.size:,} bytes are here, and the same command goes on"
            raise Unreachable([f"{problem}: {progress}"])
    if size > file.size:
        part.unlink()
        raise PullError([f"{file.url} has more than the {file.size:,} bytes that were announced"])


def _download(
    file: RemoteFile, part: Path, offset: int, timeout: float, advance: Callable[[int], object]
) -> None:
    """Append what one request gives. Raises Unreachable if the connection breaks."""
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    try:
        response = _open(file.url, timeout, headers)
    except StatusError as error:
        if error.status == HTTP_RANGE_NOT_SATISFIABLE:
            advance(-offset)
            part.unlink()
            return
        raise
    with response:
        is_partial = response.status == HTTP_PARTIAL_CONTENT
        starts = response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
        if offset and not (is_partial and starts):  # the whole file
            advance(-offset)
            offset = 0
        with part.open("ab" if offset else "wb") as output:
            size = offset
            while size <= file.size:
                try:
                    data = response.read1(CHUNK_BYTES)
                except (OSError, HTTPException) as error:
                    raise _unreachable(file.url, error) from None
                if not data:
                    return
                output.write(data)
                output.flush()  # what is there stays if this process is killed
                size += len(data)
                advance(len(data))


def _open(url: str, timeout: float, headers: dict[str, str] | None = None) -> HTTPResponse:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise PullError([f"{url!r} is no URL that begins with https:// or http://"])
    try:
        request = Request(url, headers=HEADERS | (headers or {}))
        response: HTTPResponse = urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        if error.code == HTTP_TOO_MANY_REQUESTS or error.code >= HTTP_SERVER_ERRORS:
            message = f"{url} answers {error.code} {error.reason}: try again later"
            raise Unreachable([message]) from None
        raise StatusError(url, error.code, str(error.reason)) from None
    except URLError as error:
        raise _unreachable(url, error.reason) from None
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(url, error) from None
    return response


def _unreachable(url: str, reason: object) -> Unreachable:
    if isinstance(reason, TimeoutError):
        return Unreachable([f"{url} does not answer in time"])
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return Unreachable([f"{url} cannot be reached: {text}"])
