"""Bodies of HTTP requests: none is answered with a 500, and every refusal is in its shape."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import strategies as st

from tests.fuzz.inputs import TEXTS, VALUES, damaged, fuzz
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.endpoints import ENDPOINTS
from tests.serving.pipelines.fakes import byte_tokenizer

EN_FR = {"source": "en", "target": "fr"}
BODIES: dict[str, dict[str, Any]] = {
    "/translate": {"q": "A dog runs.", **EN_FR},
    "/detect": {"q": "A dog runs."},
    "/score": {"q": "a", "translations": "A", **EN_FR},
    "/v2/translate": {"text": ["A dog runs."], "source_lang": "EN", "target_lang": "FR"},
    "/tokenize": {"model": "story", "prompt": "p"},
    "/detokenize": {"model": "story", "tokens": [5]},
    "/v1/completions": {"model": "story", "prompt": "p", "max_tokens": 3},
    "/v1/chat/completions": {"model": "story", "messages": [{"role": "user", "content": "p"}]},
    "/v1/responses": {"model": "story", "input": [{"role": "user", "content": "p"}]},
}
FORM = "application/x-www-form-urlencoded"
IN_PARTS = (
    b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nA dog.\r\n'
    b'--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
    b'--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nfr\r\n--x--\r\n'
)
Ask = Callable[[str, bytes, str], None]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """A check that asks and looks at the answer."""
    with asyncio.Runner() as runner:
        tokenizer = byte_tokenizer(tmp_path)
        making = made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE})
        world = runner.run(making.__aenter__())

        def check(path: str, content: bytes, media_type: str) -> None:
            headers = {"content-type": media_type}
            answer = runner.run(world.client.post(path, content=content, headers=headers))
            is_told(answer)

        yield check
        runner.run(making.__aexit__(None, None, None))


def is_told(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    told = answer.json()
    assert answer.status_code in (200, 201) or told.get("error") or told["message"]


def bodies(path: str) -> st.SearchStrategy[bytes]:
    """A good body in which some fields, known ones mostly, have other values."""
    [known] = [[*e.body.model_fields] for e in ENDPOINTS if e.protocol.prefix + e.path == path]
    names = st.sampled_from(known) | TEXTS
    others = st.dictionaries(names, VALUES, max_size=3)
    return others.map(lambda fields: json.dumps(BODIES[path] | fields).encode())


@pytest.mark.parametrize("path", BODIES)
def test_fields(ask: Ask, path: str) -> None:
    fuzz(bodies(path), lambda body: ask(path, body, "application/json"))


@pytest.mark.parametrize("path", BODIES)
def test_bytes_of_json(ask: Ask, path: str) -> None:
    body = json.dumps(BODIES[path]).encode()
    fuzz(damaged(body), lambda body: ask(path, body, "application/json"))


def test_forms(ask: Ask) -> None:
    body = urlencode(BODIES["/translate"] | {"alternatives": 2, "glossary": '{"a": "b"}'})
    fuzz(damaged(body.encode()), lambda body: ask("/translate", body, FORM))


def test_forms_in_parts(ask: Ask) -> None:
    fuzz(
        damaged(IN_PARTS),
        lambda body: ask("/translate", body, "multipart/form-data; boundary=x"),
    )
