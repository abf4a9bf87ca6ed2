"""What OpenAI's own client makes of answers of a real engine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.serving.api.openai.listening import listening
from tests.serving.api.openai.test_official_client import TALK
from tests.serving.api.openai.test_responses import Trip
from tests.serving.api.openai.test_tools import TEMPLATE
from tests.serving.api.real_models.applications import app_over
from tests.serving.imported import imported_bundle

TRIP = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "book", "parameters": TRIP, "strict": True}},
    {"type": "function", "function": {"name": "cancel"}},
]
REAL = "imported-llama"


@pytest.fixture(scope="module")
def real_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a tiny random model listens whose template shows tools."""
    manifest_fields = {
        "chat_template": TEMPLATE + "assistant: ",
        "generation": {"max_new_tokens": 100},
    }
    folder: Path = tmp_path_factory.mktemp("tools")
    bundle = imported_bundle("llama", folder, manifest_fields, context_length=512)
    with listening(lambda: app_over(bundle)) as url:
        yield f"{url}/v1"


def test_log_probabilities_of_a_real_engine(real_url: str) -> None:
    asked: dict[str, Any] = {"model": REAL, "messages": TALK, "temperature": 0, "max_tokens": 8}
    with openai.OpenAI(base_url=real_url, api_key="x") as client:
        whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3).choices[0]
        stream = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3, stream=True)
        chunks = [chunk.choices[0].logprobs for chunk in stream]

    assert whole.logprobs is not None and whole.logprobs.content is not None
    tokens = whole.logprobs.content
    written = b"".join(bytes(token.bytes or []) for token in tokens)
    assert written.decode(errors="replace") == whole.message.content
    assert all(token.logprob == token.top_logprobs[0].logprob for token in tokens)
    assert [item for chunk in chunks if chunk for item in chunk.content or []] == tokens


async def test_calls_of_a_real_engine_fit_their_schema(real_url: str) -> None:
    book: Any = {"type": "function", "function": {"name": "book"}}
    async with openai.AsyncOpenAI(base_url=real_url, api_key="x") as client:
        for seed in range(5):
            asked: dict[str, Any] = {"model": REAL, "messages": TALK, "tools": TOOLS, "seed": seed}
            whole = await client.chat.completions.create(**asked, tool_choice=book)
            async with client.chat.completions.stream(**asked, tool_choice=book) as stream:
                streamed = await stream.get_final_completion()

            [call] = whole.choices[0].message.tool_calls or []
            [other] = streamed.choices[0].message.tool_calls or []
            assert call.type == "function" and call.function.name == "book"
            assert other.type == "function" and other.function.name == "book"
            assert other.function.arguments == call.function.arguments
            arguments = json.loads(call.function.arguments)
            assert arguments["city"] in ("Paris", "Rome") and 1 <= arguments["days"] <= 9
            assert whole.choices[0].finish_reason == "tool_calls"


def test_answers_are_parsed_into_models(real_url: str) -> None:
    with openai.OpenAI(base_url=real_url, api_key="x") as client:
        answer = client.chat.completions.parse(
            model=REAL, messages=TALK, response_format=Trip, seed=1
        )

    assert isinstance(answer.choices[0].message.parsed, Trip)
