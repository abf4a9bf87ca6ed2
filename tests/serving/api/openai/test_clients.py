"""What people have in their programs: LangChain's ChatOpenAI and litellm, over a real socket."""

import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world

TEXT = " once upon a time"


@pytest.fixture
async def url(tokenizer: Tokenizer) -> AsyncIterator[str]:
    """Where an application listens, on a thread of its own."""
    async with made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE}) as world:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            config = uvicorn.Config(world.app, lifespan="off", log_level="error")
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
            thread.start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            server.should_exit = True
            thread.join(timeout=10)


async def test_langchain(url: str) -> None:
    package = pytest.importorskip("langchain_openai", reason="LangChain is not installed")
    async with httpx.AsyncClient() as client:
        options: dict[str, Any] = {"base_url": url, "api_key": "x", "http_async_client": client}
        chat = package.ChatOpenAI(model="story", **options)
        whole = await chat.ainvoke("Well?")
        pieces = [piece.content async for piece in chat.astream("Well?")]
        translated = await package.ChatOpenAI(model="shout:fr", **options).ainvoke("Go on.")

    assert whole.content == "".join(pieces) == TEXT and len(pieces) > 5
    assert whole.usage_metadata["output_tokens"] == len(TEXT)
    assert translated.content == "GO ON."


@pytest.mark.filterwarnings("ignore::UserWarning")  # pydantic's, of litellm's own types
async def test_litellm(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = pytest.importorskip("litellm", reason="litellm wants an older openai than this one")
    asked: dict[str, Any] = {
        "model": "openai/story",
        "messages": [{"role": "user", "content": "Well?"}],
        "api_base": url,
        "api_key": "x",
    }
    whole = await litellm.acompletion(**asked)
    stream = await litellm.acompletion(**asked, stream=True)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]

    assert whole.choices[0].message.content == "".join(pieces) == TEXT
    with pytest.raises(litellm.exceptions.NotFoundError):
        await litellm.acompletion(**asked | {"model": "openai/nobody"})
