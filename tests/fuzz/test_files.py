"""Files that come from elsewhere: whatever is in them, the error is the one that is documented."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from export.readers.ctranslate2.reader import read_checkpoint as read_ctranslate2
from export.readers.gguf.container import read_container
from models.checkpoint import CheckpointError
from models.safetensors import FLOATS, in_safetensors
from serving.access.key_file import hash_key, new_key_entry, read_keys, write_keys
from serving.bundle.opening import open_bundle, write_manifest
from serving.errors import BundleError, ConfigError, RequestError
from serving.server_config import read_config
from serving.text.chat_template import (
    Chat,
    ChatTemplate,
)
from serving.text.tokenizer import Tokenizer
from tests.export.readers.ctranslate2.packages import pack, write_package
from tests.fuzz.inputs import TEXTS, changed, damaged, fuzz
from tests.serving.bundle.test_bundle import manifest
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

CONFIG = {
    "host": "0.0.0.0",
    "port": 8000,
    "access": {"log": "-", "keys": "keys.json"},
    "groups": [{"name": "a", "bundles": ["b"], "replicas": 2, "limits": {"max_segments": 3}}],
}
TEMPLATE = (
    "{% for m in messages %}{{ m.role | upper }}: {{ m.content[:20] }}\n{% endfor %}"
    "{% set n = namespace(x=1) %}{% if add_generation_prompt %}{{ n.x * 3 }}{% endif %}"
)


def reads(
    path: Path, read: Callable[[Path], object], errors: type[Exception]
) -> Callable[[Any], None]:
    """A check that puts a file there and reads it."""

    def check(content: bytes | Any) -> None:
        is_bytes = isinstance(content, bytes)
        path.write_bytes(content if is_bytes else json.dumps(content).encode())
        try:
            read(path)
        except errors as error:
            assert str(error)

    return check


def both(path: Path, read: Callable[[Path], object], errors: type[Exception]) -> None:
    """Change values of a file of JSON, then its bytes."""
    content, check = path.read_bytes(), reads(path, read, errors)
    fuzz(changed(json.loads(content)), check)
    fuzz(damaged(content), check)


def test_bundles(tmp_path: Path) -> None:
    for name in ("encode.onnx", "step.onnx", "step_attention.onnx", "tokenizer.json", "README.md"):
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path, manifest())
    both(tmp_path / "bundle.json", lambda path: open_bundle(path.parent), BundleError)


def test_tokenizers(tmp_path: Path) -> None:
    def read(path: Path) -> None:
        tokenizer = Tokenizer(path)
        with suppress(RequestError):
            tokenizer.decode(tokenizer.encode("A dog."))

    both(write_byte_tokenizer(tmp_path / "tokenizer.json"), read, BundleError)


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_keys(path, (new_key_entry(name="a", sha256=hash_key("a"), requests_per_second=1),))
    both(path, read_keys, ConfigError)


def test_configurations(tmp_path: Path) -> None:
    both_ways = reads(tmp_path / "server.yaml", read_config, ConfigError)
    fuzz(changed(CONFIG), both_ways)
    fuzz(damaged(yaml.safe_dump(CONFIG).encode()), both_ways)


def test_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_token_list(["<s>", "a", "b"])
    writer.add_tensor("token_embd.weight", np.ones((3, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fuzz(damaged(path.read_bytes()), reads(path, read_container, CheckpointError))


def test_models_of_ctranslate2(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    model = package / "model" / "model.bin"
    head = model.read_bytes()[:4000]  # the names and shapes of some variables, and no weights
    fuzz(damaged(model.read_bytes()), reads(model, read_ctranslate2, CheckpointError))
    fuzz(damaged(head), reads(model, read_ctranslate2, CheckpointError))


def test_packages_of_argos_translate(tmp_path: Path) -> None:
    package = write_package(tmp_path)

    def read(path: Path) -> None:
        read_ctranslate2(package)

    for name in ("metadata.json", "model/config.json"):
        content = (package / name).read_bytes()
        both(package / name, read, CheckpointError)
        (package / name).write_bytes(content)
    archive = pack(package)
    fuzz(damaged(archive.read_bytes()), reads(archive, read_ctranslate2, CheckpointError))


def test_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.ones((2, 3), np.float32), "b": np.zeros(4, np.int8)}, path)

    def read(path: Path) -> None:
        problems: list[str] = []
        for stored in in_safetensors(path, problems).values():
            if stored.kind in FLOATS:  # nobody asks for others
                assert stored.read().size == math.prod(stored.shape)

    fuzz(damaged(path.read_bytes()), reads(path, read, CheckpointError))


@pytest.mark.parametrize("what", ["template", "chat"])
def test_chat_templates(tmp_path: Path, what: str) -> None:
    tokenizer = Tokenizer(write_byte_tokenizer(tmp_path / "tokenizer.json"))
    message = {"role": "user", "content": "Hello!"}

    def render(template: str, messages: Any) -> None:
        try:
            ChatTemplate(template, tokenizer, {"bos_token": 1}).prompt_ids(Chat(tuple(messages)))
        except RequestError as error:
            assert str(error)

    if what == "template":
        broken = damaged(TEMPLATE.encode())
        fuzz(broken.map(lambda b: b.decode(errors="replace")), lambda t: render(t, [message]))
    else:
        fuzz(TEXTS, lambda text: render(TEMPLATE, [{"role": text, "content": text}]))
