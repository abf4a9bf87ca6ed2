"""Chats, Responses and batches of a model that reads pictures: what it writes, what it attends to,
what is refused.
"""

import base64
import json
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from PIL import Image
from transformers import ViTImageProcessorPil

from export.bundling.writer import export_checkpoint
from export.readers.reading import read_model
from serving.api.openai import batches
from serving.bundle.manifest import Precision
from serving.pipelines.completion.images import MAX_PIXELS
from serving.storage.opening import open_state
from tests.export.readers.hugging_face.captioners import PROCESSOR, save
from tests.serving.api.openai.test_batches import lines, results, wait_until_ended
from tests.serving.api.real_models.applications import client_over
from tests.tiny import tiny_bundle

SIZES = [(50, 40), (64, 31), (12, 90), (30, 30)]
NUM_TOKENS = 6


def photo(number: int) -> Image.Image:
    """Return a picture of a few coloured areas."""
    random = np.random.default_rng(number)
    pixels = random.integers(0, 256, (4, 3, 3), np.uint8)
    return Image.fromarray(pixels).resize(SIZES[number % len(SIZES)], Image.Resampling.NEAREST)


def data_url(picture: Image.Image) -> str:
    file = BytesIO()
    picture.save(file, "png")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captioner")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    model = save("captioning", folder / "theirs")
    export_checkpoint(read_model(folder / "theirs"), folder / "ours", Precision.FP32)
    return model


@pytest.fixture
async def client(folder: Path, theirs: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_over(folder / "ours") as client:
        yield client


async def ask(client: httpx.AsyncClient, *messages: Any, **fields: Any) -> httpx.Response:
    [model] = (await client.get("/v1/models")).json()["data"]
    body = {"model": model["id"], "messages": messages, "max_tokens": NUM_TOKENS, **fields}
    return await client.post("/v1/chat/completions", json=body)


def expected(theirs: Any, picture: Image.Image) -> str:
    """Return the text by `transformers`, with its own way to pixels."""
    values = ViTImageProcessorPil(**PROCESSOR)(picture, return_tensors="pt").pixel_values
    [row] = theirs.generate(values, do_sample=False, max_length=1 + NUM_TOKENS).tolist()
    words = row[1:]
    written = words[: words.index(2)] if 2 in words else words
    return " ".join(f"w{i}" for i in written if i > 3)  # others are special tokens


@pytest.mark.parametrize("number", range(4))
async def test_the_text_is_that_of_transformers(
    client: httpx.AsyncClient, theirs: Any, number: int
) -> None:
    picture = photo(number)
    answer = (await ask(client, user(image(data_url(picture), detail="auto")))).json()
    assert answer["choices"][0]["message"]["content"] == expected(theirs, picture)
    assert answer["usage"]["prompt_tokens"] == 1 + 26


async def test_streamed_is_whole(client: httpx.AsyncClient) -> None:
    message = user(image(data_url(photo(0))), {"type": "text", "text": " "})
    whole = (await ask(client, message)).json()["choices"][0]["message"]["content"]
    lines = (await ask(client, message, stream=True)).text.split("\n\n")
    assert "".join(_text(line) for line in lines) == whole != ""


def _text(line: str) -> str:
    data = line.removeprefix("data: ")
    if not data or data == "[DONE]":
        return ""
    return json.loads(data)["choices"][0]["delta"].get("content") or ""


async def test_attention_over_patches_is_that_of_transformers(
    client: httpx.AsyncClient, theirs: Any
) -> None:
    query = {"kind": "cross", "layers": [1], "heads": [0, 3]}
    request = await ask(client, user(image(data_url(photo(3)))), return_attention=[query])
    [result] = request.json()["choices"][0]["attention"]
    assert result["column_tokens"] == ["", *(f"{i},{j}" for i in range(5) for j in range(5))]
    assert len(result["row_tokens"]) == NUM_TOKENS
    words = [int(word.strip(" w")) for word in result["row_tokens"] if word]
    values = ViTImageProcessorPil(**PROCESSOR)(photo(3), return_tensors="pt").pixel_values
    theirs.decoder.set_attn_implementation("eager")
    ids = torch.tensor([[2, *words]])[:, :NUM_TOKENS]
    with torch.inference_mode():
        description = theirs(values, decoder_input_ids=ids, output_attentions=True).cross_attentions
    assert np.abs(np.array(result["weights"][0]) - description[1][0, [0, 3]].numpy()).max() < 1e-5


URL = data_url(photo(0))
TEXT = {"type": "text", "text": "What is this?"}
WIDE = data_url(Image.new("1", (MAX_PIXELS // 1000 + 1, 1000)))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([user(TEXT)], "reads one picture"),
        ([user(image(URL), image(URL))], "reads one picture"),
        ([user(image(URL), TEXT)], "a picture and no text"),
        ([{"role": "system", "content": "Be brief."}, user(image(URL))], "no text"),
        ([user(image("https://example.com/a.png"))], "other URLs are not read"),
        ([user(image("file:///etc/passwd"))], "other URLs are not read"),
        ([user(image("data:image/svg+xml;base64,AAAA"))], "image_url must be data:image/png"),
        ([user(image("data:image/png;base64,%%%"))], "is no base64"),
        ([user(image("data:image/png;base64,AAAA"))], "no picture in PNG, JPEG"),
        ([user(image(URL[: 22 + 80]))], "no picture in PNG, JPEG"),
        ([user(image(WIDE))], "pixels at most"),
        ([user({"type": "image_url", "image_url": URL})], 'an image_url, {"url": ...}'),
        ([user({"type": "input_audio"})], "input_audio"),
    ],
)
async def test_what_is_refused(client: httpx.AsyncClient, messages: Any, words: str) -> None:
    answer = await ask(client, *messages)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "messages")
    assert words in error["message"]


async def test_other_endpoints_refuse_the_model(client: httpx.AsyncClient) -> None:
    for path, body, words in (
        ("/v1/completions", {"prompt": "a"}, "send a chat"),
        ("/v1/embeddings", {"input": "a"}, "writes about pictures; it does not make embeddings"),
        ("/translate", {"q": "a", "source": "en", "target": "fr"}, "it does not translate"),
    ):
        answer = await client.post(path, json={"model": "theirs", **body})
        assert answer.status_code == 400 and words in answer.text


async def test_other_models_refuse_pictures(tmp_path: Path) -> None:
    for architecture in ("llama", "transformer"):
        async with client_over(tiny_bundle(architecture, tmp_path, Precision.FP32)) as client:
            answer = await ask(client, user(image(URL)))
            assert answer.status_code == 400
            assert "image_url" in answer.json()["error"]["message"]
            assert "pictures" in answer.json()["error"]["message"]


def input_image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, **more}


async def test_what_responses_refuse(client: httpx.AsyncClient) -> None:
    for part, words in (
        ({"type": "input_text", "text": "What?"}, "reads one picture"),
        (input_image("https://example.com/a.png"), "other URLs are not read"),
        (input_image(None, file_id="file-1"), "file_id is not supported"),
        (input_image({"url": URL}), "must have an image_url, a data URL"),
        (image(URL), "or an input_image"),
    ):
        body = {"model": "theirs", "input": [user(part)], "stream": True}
        error = (await client.post("/v1/responses", json=body)).json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", "input")
        assert words in error["message"]


def chat_of(url: str) -> Any:
    return {"messages": [user(image(url))], "max_tokens": NUM_TOKENS}


def response_of(url: str) -> Any:
    parts = [input_image(url, detail="high", file_id=None)]
    return {"input": [user(*parts)], "max_output_tokens": NUM_TOKENS}


@pytest.mark.parametrize(
    ("endpoint", "body_of", "text_of"),
    [
        ("/v1/chat/completions", chat_of, lambda body: body["choices"][0]["message"]["content"]),
        ("/v1/responses", response_of, lambda body: body["output"][0]["content"][0]["text"]),
    ],
)
async def test_a_batch_of_pictures(
    folder: Path,
    theirs: Any,
    tmp_path: Path,
    monkeypatch: Any,
    endpoint: Any,
    body_of: Any,
    text_of: Any,
) -> None:
    """Each line is answered once; a bad picture fails its line alone, a large file is refused."""
    monkeypatch.setattr(batches, "MAX_FILE_MIB", 1)
    urls = [WIDE, "https://example.com/a.png", *(data_url(photo(n)) for n in range(2, 20))]
    content = lines(*({"model": "theirs", **body_of(url)} for url in urls), url=endpoint)
    async with client_over(folder / "ours", state=open_state(tmp_path)) as http:
        client: Any = http
        api = openai.AsyncOpenAI(base_url="http://attendant/v1", api_key="x", http_client=client)
        with pytest.raises(openai.APIStatusError, match="is too large"):
            await api.files.create(file=("in.jsonl", content * 200), purpose="batch")
        file = await api.files.create(file=("in.jsonl", content), purpose="batch")
        asked: Any = {"input_file_id": file.id, "completion_window": "24h"}
        batch = await wait_until_ended(
            api, (await api.batches.create(endpoint=endpoint, **asked)).id
        )
        good = await results(api, batch.output_file_id)
        bad = await results(api, batch.error_file_id)
    texts = {line["custom_id"]: text_of(line["response"]["body"]) for line in good}
    assert texts == {f"{n}": expected(theirs, photo(n)) for n in range(2, 20)}
    errors = [line["response"]["body"]["error"]["message"] for line in bad]
    assert "pixels at most" in errors[0] and "other URLs" in errors[1] and len(errors) == 2
