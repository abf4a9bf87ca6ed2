"""Tests that a run of pytest has one server, which ends with the run."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.shared_server import SharedServer, request_url


def test_all_who_ask_get_one_server_which_stops_at_the_end() -> None:
    events = []

    @contextmanager
    def serve() -> Iterator[str]:
        events.append("started")
        yield "http://one"
        events.append("stopped")

    server = SharedServer(serve)
    assert events == []
    with ThreadPoolExecutor() as pool:
        urls = list(pool.map(request_url, [server.address] * 3))
    assert urls == ["http://one"] * 3 and events == ["started"]
    server.stop()
    assert events == ["started", "stopped"]


def test_a_server_that_does_not_start_fails_who_asks_and_the_run() -> None:
    def serve() -> AbstractContextManager[str]:
        raise AssertionError("port taken")

    server = SharedServer(serve)
    with pytest.raises(AssertionError, match="port taken"):
        request_url(server.address)
    with pytest.raises(AssertionError, match="port taken"):
        server.stop()


def test_a_server_that_nobody_asked_for_does_not_start() -> None:
    def serve() -> AbstractContextManager[str]:
        raise AssertionError("started")

    SharedServer(serve).stop()
