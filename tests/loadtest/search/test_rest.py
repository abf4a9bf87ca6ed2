"""A search goes on when the server has nothing left to do, by its own word."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loadtest import capacity


@contextmanager
def serving(pages: list[str]) -> Iterator[str]:
    """A server whose metrics are one page after the other, and the last one for ever."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (pages.pop(0) if len(pages) > 1 else pages[0]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def gauges(waiting: int, rows: int) -> str:
    return (
        f'# TYPE attendant_waiting gauge\nattendant_waiting{{model="a"}} {waiting}\n'
        f'# TYPE attendant_rows gauge\nattendant_rows{{model="a"}} {rows}\n'
    )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(capacity, "BLIND_SECONDS", 0.01)
    monkeypatch.setattr(capacity, "MOST_SECONDS", 0.2)


def test_it_waits_until_nothing_is_left() -> None:
    pages = [gauges(3, 8), gauges(0, 2), gauges(0, 0)]
    with serving(pages) as url:
        assert capacity.wait_for_rest(url)
    assert pages == [gauges(0, 0)]


def test_a_server_that_never_rests_is_given_up() -> None:
    with serving([gauges(0, 1)]) as url:
        assert not capacity.wait_for_rest(url)


def test_a_server_without_metrics_gets_a_pause() -> None:
    with serving(["<html>"]) as url:
        assert capacity.wait_for_rest(url)
    assert capacity.wait_for_rest("http://127.0.0.1:1/")
