"""A text that the model's tokenizer panics at is answered in the protocol's own shape, with 400."""

from typing import Any

import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.text.tokenizers_for_tests import FAILS_AT, write_failing_tokenizer

CHAT = [{"role": "user", "content": FAILS_AT}]
TEMPLATE = "{% for each in messages %}{{ each.content }}{% endfor %}"
PAIR = {"source": "en", "target": "fr"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_failing_tokenizer(tmp_path_factory.mktemp("t") / "tokenizer.json"))


@pytest.mark.parametrize(
    ("url", "body", "field"),
    [
        ("/v1/completions", {"prompt": FAILS_AT}, "prompt"),
        ("/v1/completions", {"prompt": ["fine", FAILS_AT], "stream": True}, "prompt"),
        ("/v1/completions", {"prompt": "fine", "bad_words": [FAILS_AT]}, "bad_words"),
        ("/v1/chat/completions", {"messages": CHAT}, "messages"),
        ("/translate", {"q": FAILS_AT, **PAIR}, "q"),
        ("/translate", {"q": "fine", "target_prefix": FAILS_AT, **PAIR}, "target_prefix"),
        ("/translate", {"q": "fine", "glossary": {"fine": FAILS_AT}, **PAIR}, "glossary"),
        ("/score", {"q": "fine", "translations": [FAILS_AT], **PAIR}, "translations"),
    ],
)
async def test_the_field_is_named(
    tokenizer: Tokenizer, url: str, body: dict[str, Any], field: str
) -> None:
    async with made_world(tokenizer, generator={"chat_template": TEMPLATE}) as world:
        if url.startswith("/v1"):
            models = (await world.client.get("/v1/models")).json()["data"]
            body["model"] = models[-1]["id"]
        answer = await world.client.post(url, json=body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    message = error["message"] if url.startswith("/v1") else error
    assert message.startswith(f"{field}: "), message
    assert "tokenizer fails" in message or "cannot be written" in message
