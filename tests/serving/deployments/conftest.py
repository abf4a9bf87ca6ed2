"""Clients of the real server that all tests share."""

from collections.abc import Iterator

import httpx
import openai
import pytest


@pytest.fixture(scope="session")
def client(server_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def official(server_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server_url}/v1", api_key="none", max_retries=0) as client:
        yield client
