"""A server that speaks the protocol of Mozilla's Remote Settings, with tiny models of Marian."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import zstandard

from tests.export.readers.marian.files import bergamot_folder

FILES = {
    "model": "model.enpt.intgemm.alphas.bin",
    "vocab": "vocab.enpt.spm",
    "lex": "lex.30.30.enpt.s2t.bin",
}
RECORDS = "/v1/buckets/main/collections/translations-models-v2/records"
OLD_RECORDS = "/v1/buckets/main/collections/translations-models/records"


@dataclass
class RemoteSettings:
    """Answers by path, and how attachments are sent. Of statuses the last one stays.

    requests: paths, with the range that was asked for after a blank.
    cut_at: attachments end after so many bytes, each once. stall_at: they stop there for ever.
    """

    url: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    cut_at: int | None = None
    stall_at: int | None = None
    ignores_ranges: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    def publish(self) -> None:
        """Answer with the records."""
        root = {"capabilities": {"attachments": {"base_url": f"{self.url}/attachments/"}}}
        self.bodies["/v1/"] = json.dumps(root).encode()
        self.bodies[RECORDS] = json.dumps({"data": self.records}).encode()

    def add_model(
        self,
        folder: Path,
        pair: tuple[str, str] = ("en", "pt"),
        version: str = "3.0",
        architecture: str = "base",
        **changes: Any,
    ) -> dict[str, bytes]:
        """Add a tiny model and return its files by their types. changes: of its records."""
        folder = folder / f"model-{len(self.records)}"
        bergamot_folder(folder)
        contents = {kind: (folder / name).read_bytes() for kind, name in FILES.items()}
        for kind, content in contents.items():
            compressed = zstandard.compress(content)
            location = f"main/translations-models-v2/{len(self.records)}.zst"
            self.bodies[f"/attachments/{location}"] = compressed
            self.records.append(
                {
                    "id": str(len(self.records)),
                    "schema": 1749570042331,
                    "last_modified": 1749570511392,
                    "name": FILES[kind],
                    "sourceLanguage": pair[0],
                    "targetLanguage": pair[1],
                    "architecture": architecture,
                    "version": version,
                    "fileType": kind,
                    "filter_expression": "",
                    "decompressedSize": len(content),
                    "decompressedHash": hashlib.sha256(content).hexdigest(),
                    "attachment": {
                        "filename": f"{FILES[kind]}.zst",
                        "location": location,
                        "hash": hashlib.sha256(compressed).hexdigest(),
                        "mimetype": "application/zstd",
                        "size": len(compressed),
                    },
                    **changes,
                }
            )
        self.publish()
        return contents

    def requests_for_attachments(self) -> list[str]:
        return [request for request in self.requests if request.startswith("/attachments/")]


@contextmanager
def serve_remote_settings() -> Iterator[RemoteSettings]:
    settings = RemoteSettings()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            settings.requests.append(f"{self.path} {wanted}".rstrip())
            statuses = settings.statuses.get(self.path, [200])
            status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
            if status != 200:
                self.send_error(status)
                return
            body = settings.bodies.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self._send(body, int(wanted[len("bytes=") : -1]) if wanted else 0)

        def _send(self, body: bytes, offset: int) -> None:
            offset = 0 if settings.ignores_ranges else offset
            self.send_response(206 if offset else 200)
            if offset:
                self.send_header("Content-Range", f"bytes {offset}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - offset))
            self.end_headers()
            is_attachment = self.path.startswith("/attachments/")
            if is_attachment and settings.stall_at is not None:
                self.wfile.write(body[offset : settings.stall_at])
                settings.ended.wait(60)
            elif is_attachment and settings.cut_at is not None and not offset:
                self.wfile.write(body[: settings.cut_at])
            else:
                self.wfile.write(body[offset:])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    settings.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield settings
    finally:
        settings.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()


def wait_for(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
