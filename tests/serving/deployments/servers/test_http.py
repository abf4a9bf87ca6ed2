"""HTTP as others speak it, over a socket: old versions of it, half of it, and broken forms."""

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

EN_FR = {"source": "en", "target": "fr"}
TRANSLATE = ("/translate", {"q": "A dog runs. " * 100, "num_beams": 4, **EN_FR})
COMPLETE = ("/v1/completions", {"model": "llama-en", "prompt": "It was", "max_tokens": 20})
LONG = {"model": "far-llama", "max_tokens": 3000, "ignore_eos": True}
COMPLETE_LONG = (COMPLETE[0], {**COMPLETE[1], **LONG})
JSON_HEADERS = "Content-Type: application/json\r\n"


def post(asked: tuple[str, dict[str, Any]], version: str = "1.1", headers: str = "") -> bytes:
    path, fields = asked
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{JSON_HEADERS}{headers}\r\n".encode() + body


def exchange(url: str, request: bytes, is_half_closed: bool = False) -> list[tuple[float, bytes]]:
    """Return what comes until the server closes, and when."""
    address = urlsplit(url)
    came = []
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(request)
        if is_half_closed:
            connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(65536):
            came.append((time.monotonic(), data))
    return came


def answer(url: str, request: bytes, **how: Any) -> tuple[int, dict[str, str], bytes]:
    whole = b"".join(data for _, data in exchange(url, request, **how))
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


@pytest.mark.parametrize("keep_alive", ["", "Connection: keep-alive\r\n"])
def test_a_stream_over_http_1_0_has_no_frames(server_url: str, keep_alive: str) -> None:
    path, fields = COMPLETE
    streamed = (path, {**fields, "stream": True, "ignore_eos": True})

    status, headers, body = answer(server_url, post(streamed, "1.0", keep_alive))

    events = [event for event in body.decode().split("\n\n") if event]
    assert (status, headers["connection"], events[-1]) == (200, "close", "data: [DONE]")
    assert "transfer-encoding" not in headers
    assert all(event.startswith("data: ") for event in events)


def test_a_stream_over_http_1_0_is_one_in_time(server_url: str) -> None:
    """Its first token comes long before its last."""
    path, fields = COMPLETE_LONG

    began = time.monotonic()
    came = exchange(server_url, post((path, {**fields, "stream": True}), "1.0"))

    times = [at - began for at, data in came if b"data: " in data]
    assert b"data: [DONE]" in came[-1][1]
    assert times[0] < times[-1] / 2


def test_a_whole_answer_over_http_1_0(server_url: str) -> None:
    status, headers, body = answer(server_url, post(COMPLETE, "1.0"))

    assert (status, len(body)) == (200, int(headers["content-length"]))
    assert json.loads(body)["object"] == "text_completion"


@pytest.mark.parametrize("asked", [TRANSLATE, COMPLETE_LONG])
def test_who_closes_half_a_connection_is_told_in_the_protocols_shape(
    server_url: str, asked: tuple[str, dict[str, Any]]
) -> None:
    """To a server a client that only says that it will say no more looks like one that has left."""
    status, headers, body = answer(server_url, post(asked), is_half_closed=True)

    error = json.loads(body)["error"]
    assert (status, headers["content-type"]) == (400, "application/json")
    assert "closed" in (error["message"] if asked is COMPLETE_LONG else error)
    if asked is COMPLETE_LONG:
        assert {*error} == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/docs", "/openapi.json"])
def test_head(server_url: str, path: str) -> None:
    request = f"HEAD {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()

    status, headers, body = answer(server_url, request)

    whole = httpx.get(server_url + path)
    assert (status, body) == (200, b"")
    assert headers["content-type"] == whole.headers["content-type"]
    assert int(headers["content-length"]) == len(whole.content)


@pytest.mark.parametrize(
    "header",
    [
        b"X-Request-ID: \xff",
        b"X-Request-ID: " + b"a" * 1000,
        b"X-Session-ID: \xff",
        b"x_session_id: \xff",
        b"serve-multiplexed-model-id: \xff",
        b"X-Request-Timeout-Seconds: 0.001",
        b"X-Request-Timeout-Seconds: \xff",
        b"X-Request-Disconnect-Disabled: \xff",
    ],
)
def test_headers_that_mean_something_to_ray(server_url: str, header: bytes) -> None:
    request = post(COMPLETE, headers="Connection: close\r\n").replace(
        b"Host: a\r\n", b"Host: a\r\n" + header + b"\r\n"
    )

    status, headers, body = answer(server_url, request)

    assert status == 200, body
    assert len(headers["x-request-id"]) < 100


def test_an_id_that_a_client_gives_comes_back_once(server_url: str) -> None:
    with httpx.Client(base_url=server_url) as client:
        response = client.get("/health", headers={"X-Request-ID": "mine-7"})

    assert response.headers.get_list("x-request-id") == ["mine-7"]
