"""Bodies that are compressed, and bodies that are not of the type that their header says."""

import gzip
import json
import random
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message

from serving.api.http.bodies import limit_body
from serving.errors import TooLarge
from tests.serving.api.world import World

REFUSED = ("custom_instructions", "style_id")
TRANSLATE: tuple[str, Any] = ("/translate", {"q": "a dog", "source": "en", "target": "fr"})
DEEPL: tuple[str, Any] = ("/v2/translate", {"text": ["a dog"], "target_lang": "FR"})
COMPLETE: tuple[str, Any] = ("/v1/completions", {"model": "story", "prompt": "a dog"})
ENDPOINTS = (TRANSLATE, DEEPL, COMPLETE)
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def raw_deflate(data: bytes) -> bytes:
    compress = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compress.compress(data) + compress.flush()


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[:7]) + gzip.compress(b"") + gzip.compress(data[7:])


CODINGS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("GZIP", gzip.compress),
    ("x-gzip", gzip.compress),
    ("gzip", two_members),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("identity", bytes),
    ("", bytes),
    ("identity, gzip", gzip.compress),
    ("gzip, deflate", lambda data: zlib.compress(gzip.compress(data))),
    ("deflate,gzip", lambda data: gzip.compress(raw_deflate(data))),
]


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
@pytest.mark.parametrize(("coding", "compress"), CODINGS)
async def test_a_compressed_body_is_read_as_the_plain_one(
    world: World, path: str, body: Any, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    plain = await world.client.post(path, json=body)
    headers = {"Content-Type": JSON, "Content-Encoding": coding}
    content = compress(json.dumps(body).encode())

    packed = await world.client.post(path, content=content, headers=headers)

    assert packed.status_code == plain.status_code == 200, packed.text
    assert {**packed.json(), "id": 0, "created": 0} == {**plain.json(), "id": 0, "created": 0}


async def test_an_empty_body_lacks_the_first_field(world: World) -> None:
    answer = await world.client.post("/translate", headers={"Content-Type": JSON})
    assert (answer.status_code, answer.json()["field"]) == (400, "q")


async def test_a_compressed_form_is_read(world: World) -> None:
    headers = {"Content-Type": FORM, "Content-Encoding": "gzip"}
    content = gzip.compress(b"q=a+dog&source=en&target=fr")

    answer = await world.client.post("/translate", content=content, headers=headers)

    assert answer.json() == {"translatedText": "A DOG"}


async def test_a_compressed_form_in_parts_is_read(world: World) -> None:
    request = world.client.build_request("POST", "/translate", files={"q": (None, "a dog")})
    content = gzip.compress(request.read())
    headers = {"Content-Type": request.headers["content-type"], "Content-Encoding": "gzip"}
    query = {"source": "en", "target": "fr"}

    answer = await world.client.post("/translate", params=query, content=content, headers=headers)

    assert answer.json() == {"translatedText": "A DOG"}


def error_of(path: str, answer: Any) -> str:
    """Return the message of an error, which must have the shape of its protocol."""
    body = answer.json()
    if path.startswith("/v1/"):
        assert [*body["error"]] == ["message", "type", "param", "code", "reason"]
        assert body["error"]["type"] == "invalid_request_error"
        return str(body["error"]["message"])
    message = "message" if path.startswith("/v2/") else "error"
    assert [*body] == [message, "field", "reason"]
    return str(body[message])


PACKED = gzip.compress(b'{"q": "a"}')
LARGE = b'{"q": "' + b"a" * 20_000_000 + b'"}'
BAD: list[tuple[str, bytes, int, str]] = [
    ("br", b"x", 415, "Content-Encoding: must be gzip or deflate"),
    ("zstd", b"(\xb5/\xfd", 415, "Content-Encoding: must be gzip or deflate"),
    ("compress", b"x", 415, "Content-Encoding: must be gzip or deflate"),
    ("gzip, br", b"x", 415, "Content-Encoding: must be gzip or deflate"),
    ("gzip, gzip, gzip", b"x", 415, "Content-Encoding: must be gzip or deflate"),
    ("gzip", b'{"q": "a"}', 400, "body: is not valid gzip: "),
    ("gzip", PACKED[:-1], 400, "body: is cut short: its gzip data has no end"),
    ("gzip", PACKED[:12], 400, "body: is cut short: its gzip data has no end"),
    ("gzip", PACKED[:-8] + b"\0" * 8, 400, "body: is not valid gzip: "),
    ("gzip", PACKED + b"more", 400, "body: is not valid gzip: "),
    ("gzip", zlib.compress(b"{}"), 400, "body: is not valid gzip: "),
    ("gzip", gzip.compress(b'{"q": '), 400, "body: is not valid JSON: "),
    ("gzip", gzip.compress(b"\xff"), 400, "body: is not valid JSON: "),
    ("deflate", b"\xff\xff\xff", 400, "body: is not valid deflate: "),
    ("deflate", b"x", 400, "body: is cut short: its deflate data has no end"),
    ("deflate", zlib.compress(b"{}")[:-1], 400, "body: is cut short: its deflate data has no end"),
    ("deflate", zlib.compress(b"{}") + b"more", 400, "body: has 4 bytes after the end of its"),
    ("gzip, deflate", zlib.compress(b"{}"), 400, "body: is not valid gzip: "),
    ("gzip", gzip.compress(LARGE, 1), 413, 'body: is too large (got "more than 77536 bytes"'),
    ("deflate", zlib.compress(LARGE, 1)[:5_000], 413, "body: is too large"),
    ("gzip, gzip", gzip.compress(gzip.compress(LARGE, 1)), 413, "body: is too large"),
    ("gzip", gzip.compress(b"") * 10_000, 413, "body: is too large"),
]


@pytest.mark.parametrize("path", [path for path, _ in ENDPOINTS])
async def test_what_cannot_be_decoded_is_refused_in_the_form_of_its_protocol(
    world: World, path: str
) -> None:
    for coding, content, status, message in BAD:
        headers = {"Content-Type": JSON, "Content-Encoding": coding}

        answer = await world.client.post(path, content=content, headers=headers)

        assert answer.status_code == status, (coding, answer.text)
        assert error_of(path, answer).startswith(message), (coding, content[:20])
        assert answer.headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)


async def pieces_of(content: bytes, coding: str, max_bytes: int, size: int) -> AsyncIterator[bytes]:
    messages = [content[start : start + size] for start in range(0, len(content), size)]

    async def receive() -> Message:
        return {"type": "http.request", "body": messages.pop(0), "more_body": bool(messages)}

    headers = Headers({"content-encoding": coding}).raw
    request = limit_body(Request({"type": "http", "headers": headers}, receive), max_bytes)
    async for piece in request.stream():
        yield piece


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 2**20])
@pytest.mark.parametrize(("coding", "compress"), CODINGS)
async def test_pieces_of_any_size_are_decoded(
    coding: str, compress: Callable[[bytes], bytes], size: int
) -> None:
    data = random.Random(1).randbytes(2_000) + b"a" * (3_000_000 if size > 1000 else 3_000)
    decoded = [piece async for piece in pieces_of(compress(data), coding, 2**22, size)]

    assert b"".join(decoded) == data
    assert coding in ("", "identity") or max(map(len, decoded)) <= 2**18


async def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(bytes(200_000_000), 1)
    tracemalloc.start()
    with pytest.raises(TooLarge):
        [piece async for piece in pieces_of(bomb, "gzip", 2**20, 2**16)]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 8 * 2**20


IS_JSON = "body: is JSON, but its Content-Type says {}, a form: send Content-Type: application/json"
PARTS = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n--x--\r\n'
FIELDS = b"q=a&source=en&target=fr"
OF_ANOTHER_TYPE: list[tuple[str, str, bytes, int, str]] = [
    ("/translate", FORM, json.dumps(TRANSLATE[1]).encode(), 400, IS_JSON.format(FORM)),
    ("/translate", FORM, b' \n{"q":"50% &amp; more"}', 400, IS_JSON.format(FORM)),
    (
        *("/translate", "multipart/form-data; boundary=x", json.dumps(TRANSLATE[1]).encode()),
        *(400, IS_JSON.format("multipart/form-data")),
    ),
    ("/translate", JSON, FIELDS, 400, f"body: is a form, but its Content-Type says {JSON}: send"),
    ("/translate", "", FIELDS, 400, "body: is a form, but it has no Content-Type: send"),
    ("/translate", "text/plain", FIELDS, 400, "body: is a form, but its Content-Type says text/"),
    ("/translate", JSON, PARTS, 400, f"body: is a form, but its Content-Type says {JSON}: send"),
    ("/translate", "text/plain", b"a dog", 400, "body: is not valid JSON: "),
    ("/detect", FORM, b'{"q": "a"}', 400, IS_JSON.format(FORM)),
    ("/v2/translate", FORM, json.dumps(DEEPL[1]).encode(), 400, IS_JSON.format(FORM)),
    ("/v2/translate", JSON, b"text=a&target_lang=FR", 400, "body: is a form, but its Content-"),
    ("/v2/translate", "", b"text=a", 400, "body: is a form, but it has no Content-Type: send Co"),
    ("/v2/translate", "text/plain", b"{}", 415, f"Content-Type: must be {JSON} or {FORM}"),
    ("/v1/completions", FORM, b"model=story&prompt=a", 400, "body: is a form, but only JSON is"),
    ("/v1/completions", JSON, b"model=story&prompt=a", 400, "body: is a form, but only JSON is"),
    ("/v1/completions", "multipart/form-data", PARTS, 400, "body: is a form, but only JSON is"),
    ("/v1/completions", JSON, b"", 400, "body: is not valid JSON: "),
    ("/v1/completions", JSON, b"{'model': 'story'}", 400, "body: is not valid JSON: "),
]


@pytest.mark.parametrize(("path", "content_type", "content", "status", "message"), OF_ANOTHER_TYPE)
async def test_a_body_that_is_not_what_its_header_says_is_told_so(
    world: World, path: str, content_type: str, content: bytes, status: int, message: str
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}

    answer = await world.client.post(path, content=content, headers=headers)

    assert answer.status_code == status
    assert error_of(path, answer).startswith(message), answer.text


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/json; charset=utf-8"])
async def test_json_without_its_header_is_read_where_nothing_else_can_be_meant(
    world: World, content_type: str
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    for path, body in (TRANSLATE, COMPLETE):
        answer = await world.client.post(path, content=json.dumps(body), headers=headers)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("fields", [REFUSED, REFUSED[::-1]])
async def test_of_several_refused_fields_the_first_is_named(
    world: World, fields: tuple[str, ...]
) -> None:
    path, body = DEEPL
    answer = await world.client.post(path, json=body | dict.fromkeys(fields, "x"))
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(fields[0])


@pytest.mark.parametrize("names", [("documents", "tools"), ("tools", "documents")])
async def test_of_several_refused_members_the_first_is_named(
    world: World, names: tuple[str, ...]
) -> None:
    chat = {"model": "story", "messages": [{"role": "user", "content": "a dog"}]}
    messages = [chat["messages"][0] | dict.fromkeys(names, "x")]  # type: ignore[operator]
    path = "/v1/chat/completions"
    answer = await world.client.post(path, json=chat | {"messages": messages})
    assert answer.json()["error"]["message"].startswith(f"messages: {names[0]} is not supported")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/translate", {"q": "", "source": "en", "target": "tlh"}, "target"),
        (
            "/v2/translate",
            {"text": ["a"], "source_lang": "EN", "target_lang": "TLH"},
            "target_lang",
        ),
        ("/v1/completions", {"model": "story", "prompt": "p", "temperature": -1}, "temperature"),
        ("/score", {"q": "a", "translations": ["b"], "source": "en"}, "target"),
    ],
)
async def test_an_error_has_its_field_and_its_reason(
    world: World, path: str, body: dict[str, Any], field: str
) -> None:
    answer = (await world.client.post(path, json=body)).json()
    error = answer["error"] if isinstance(answer.get("error"), dict) else answer
    message = error.get("detail") or error.get("message") or error["error"]
    assert error.get("param", error.get("field")) == field
    assert message.startswith(f"{field}: {error['reason']} (got ")
