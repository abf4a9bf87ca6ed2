"""A server that answers what a test has written down, and remembers what it was asked."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Scripted:
    url: str = ""
    asked: list[tuple[str, str, Any, str | None]] = field(default_factory=list)


@contextmanager
def scripted(answers: Mapping[str, list[tuple[int, Any]]]) -> Iterator[Scripted]:
    """answers: of each `METHOD /path`, one after the other; the last one stays."""
    left = {place: list(each) for place, each in answers.items()}
    server = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            server.asked.append((self.command, self.path, body, self.headers["Authorization"]))
            known = left.get(f"{self.command} {self.path}", [(404, "nothing here")])
            status, value = known.pop(0) if len(known) > 1 else known[0]
            data = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = answer

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        try:
            yield server
        finally:
            http.shutdown()
