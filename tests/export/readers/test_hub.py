"""Models are fetched from a small hub of our own, over HTTP, by huggingface_hub."""

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import constants

from export import downloads
from export.downloads import PullError

COMMIT = "a" * 40
REPOSITORIES: dict[str, dict[str, bytes]] = {
    "owner/model": {
        "config.json": b"{}",
        "tokenizer.json": b"[]",
        "README.md": b"---\nlicense: mit\n---\n",
        "model.safetensors": b"weights" * 100,
        "pytorch_model.bin": b"the same again",
        "modeling_custom.py": b"raise SystemExit",
        "onnx/model.onnx": b"graph",
    },
    "owner/parts": {
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "modules.json": b"[]",
        "1_Pooling/config.json": b"{}",
        "2_Dense/model.safetensors": b"dense",
        "additional_chat_templates/tool_use.jinja": b"tools",
        "onnx/config.json": b"{}",
        "onnx/model.onnx": b"graph",
    },
    "owner/older": {"config.json": b"{}", "pytorch_model.bin": b"pickled"},
    "openai/whisper": {
        "added_tokens.json": b"{}",
        "config.json": b"{}",
        "generation_config.json": b"{}",
        "merges.txt": b"#version: 0.2",
        "model.safetensors": b"weights",
        "model.safetensors.index.fp32.json": b"{}",
        "model.fp32-00001-of-00002.safetensors": b"the same",
        "model.fp32-00002-of-00002.safetensors": b"with more bytes",
        "preprocessor_config.json": b"{}",
        "pytorch_model.bin": b"the same again",
        "flax_model.msgpack": b"and again",
        "tf_model.h5": b"and again",
        "tokenizer.json": b"{}",
    },
    "owner/faster-whisper": {
        "config.json": b"{}",
        "model.bin": b"weights of CTranslate2",
        "tokenizer.json": b"{}",
        "vocabulary.json": b"[]",
    },
    "owner/quantised": {"README.md": b"", "model.Q4_1.gguf": b"GGUF"},
    "owner/code": {"train.py": b""},
}


class Hub(BaseHTTPRequestHandler):
    requested: list[str] = []  # noqa: RUF012  (of one server, which a test starts)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        match self.path.partition("?")[0].strip("/").split("/"):
            case "api", "models", owner, model, kind, *_:
                self._send(self._info(f"{owner}/{model}", kind), "", has_body)
            case owner, model, "resolve", _, *file:
                content = REPOSITORIES.get(f"{owner}/{model}", {}).get("/".join(file))
                if has_body:
                    self.requested.append("/".join(file))
                self._send(content, hashlib.sha256(content or b"").hexdigest(), has_body)
            case _:
                self._send(None, "", has_body)

    def _info(self, name: str, kind: str) -> bytes | None:
        """Its commit ("revision"), or its files ("tree")."""
        if name not in REPOSITORIES:
            return None
        files = [
            {"type": "file", "path": path, "size": len(content), "oid": path}
            for path, content in REPOSITORIES[name].items()
        ]
        return json.dumps(files if kind == "tree" else {"id": name, "sha": COMMIT}).encode()

    def _send(self, content: bytes | None, etag: str, has_body: bool) -> None:
        self.send_response(200 if content is not None else 404)
        if content is None:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if has_body:
            self.wfile.write(content or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests' output is their own."""


def look_at(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what HF_ENDPOINT does before the library is loaded."""
    address = f"http://127.0.0.1:{port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(Hub, "requested", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    look_at(server.server_port, monkeypatch)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Hub
    server.shutdown()
    thread.join()
    server.server_close()


def problem_of(name: str, file: str | None = None) -> str:
    with pytest.raises(PullError) as caught:
        downloads.fetch_from_hub(name, file)
    [problem] = caught.value.problems
    return problem


def test_a_model_without_its_code_and_its_second_copy(server: type[Hub]) -> None:
    folder = downloads.fetch_from_hub("owner/model")
    wanted = {"config.json", "tokenizer.json", "README.md", "model.safetensors"}
    assert {path.name for path in folder.iterdir()} == wanted
    assert (folder / "model.safetensors").read_bytes() == b"weights" * 100
    assert set(server.requested) == wanted


def test_modules_and_templates_in_folders_of_their_own(server: type[Hub]) -> None:
    folder = downloads.fetch_from_hub("owner/parts")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {name for name in REPOSITORIES["owner/parts"] if not name.startswith("onnx")}


def test_what_is_there_is_not_fetched_again(server: type[Hub]) -> None:
    folder = downloads.fetch_from_hub("owner/model")
    server.requested.clear()
    assert downloads.fetch_from_hub("owner/model") == folder
    assert server.requested == []


def test_older_weights_where_there_are_no_others(server: type[Hub]) -> None:
    assert (
        downloads.fetch_from_hub("owner/older") / "pytorch_model.bin"
    ).read_bytes() == b"pickled"


def test_whisper_without_copies_of_its_weights(server: type[Hub]) -> None:
    folder = downloads.fetch_from_hub("openai/whisper")
    assert {path.name for path in folder.iterdir()} == {
        "added_tokens.json",
        "config.json",
        "generation_config.json",
        "merges.txt",
        "model.safetensors",
        "preprocessor_config.json",
        "tokenizer.json",
    }


def test_a_folder_of_ctranslate2(server: type[Hub]) -> None:
    folder = downloads.fetch_from_hub("owner/faster-whisper")
    assert {path.name for path in folder.iterdir()} == REPOSITORIES["owner/faster-whisper"].keys()


def test_a_file_by_its_name(server: type[Hub]) -> None:
    assert downloads.fetch_from_hub("owner/quantised", "model.Q4_1.gguf").read_bytes() == b"GGUF"
    assert server.requested == ["model.Q4_1.gguf"]
    assert problem_of("owner/quantised", "other") == "owner/quantised has no file 'other'"


def test_models_that_cannot_be_read(server: type[Hub]) -> None:
    for name in ("owner/quantised", "owner/code"):
        assert "has none of *.safetensors, pytorch_model*.bin, model.bin" in problem_of(name)


def test_unknown_names(server: type[Hub]) -> None:
    assert "the hub has no model 'owner/nothing'" in problem_of("owner/nothing")
    assert "cannot be fetched" in problem_of("owner/nothing/at/all")
    assert "cannot be fetched" in problem_of("../../etc")


def test_a_hub_that_cannot_be_reached(server: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = downloads.fetch_from_hub("owner/model")
    look_at(1, monkeypatch)
    assert downloads.fetch_from_hub("owner/model") == folder  # it is there
    assert "owner/older cannot be fetched from the hub" in problem_of("owner/older")
