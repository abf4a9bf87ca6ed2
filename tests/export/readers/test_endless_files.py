"""Files that list millions of things, or grow a thousandfold, are refused before they are read.

Times are those of the processor, which other work does not add to. Each of these took 6 to 80 s.
"""

import io
import json
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from export.readers.common import unpickling
from export.readers.gguf.container import MOST_TEXTS
from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from models.files import MOST_DIRECTORY_BYTES, MOST_HEADER_BYTES

MANY = 1_000_000
MOST_SECONDS = 5
CONFIG = '{"model_type": "llama"}'


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content)) + content.encode()


def gguf(folder: Path, num_tensors: int, num_keys: int, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_keys) + content)
    return path


def keys_of_gguf(folder: Path) -> Path:
    keys = (text(f"key.{i}") + struct.pack("<II", 4, i) for i in range(MANY))
    return gguf(folder, 0, MANY, b"".join(keys))


def tensors_of_gguf(folder: Path) -> Path:
    architecture = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    tensors = (text(f"t.{i}") + struct.pack("<IQIQ", 1, 32, 0, 0) for i in range(MANY))
    return gguf(folder, MANY, 1, architecture + b"".join(tensors) + bytes(1024))


def texts_of_gguf(folder: Path) -> Path:
    head = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, MOST_TEXTS + 1)
    return gguf(folder, 0, 1, head + bytes(8 * (MOST_TEXTS + 1)))


def header_of_safetensors(folder: Path, config: str = CONFIG) -> Path:
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{i}": empty for i in range(MANY // 4)}).encode()
    assert len(header) > MOST_HEADER_BYTES
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (folder / "config.json").write_text(config)
    return folder


def own_header_of_safetensors(folder: Path) -> Path:
    return header_of_safetensors(folder, '{"architecture": "luong"}')


def shards(folder: Path) -> Path:
    weights = {f"t{i}": f"f{i}" for i in range(MANY // 10)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    (folder / "config.json").write_text(CONFIG)
    return folder


def keys_of_a_configuration(folder: Path) -> Path:
    keys = {f"k{i}": i for i in range(MANY)}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **keys}))
    return folder


def keys_of_our_configuration(folder: Path) -> Path:
    keys = {f"k{i}": i for i in range(MANY // 10)}
    (folder / "config.json").write_text(json.dumps({"architecture": "luong", **keys}))
    return folder


def members_of_an_archive(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "model.npz", "w") as archive:
        for number in range(1 + MOST_DIRECTORY_BYTES // 1000):
            archive.writestr(f"{number:01000}.npy", b"")
    return folder


def inflating_archive(folder: Path) -> Path:
    """A GB of zeros in a thousandth of it; the header tells of four."""
    header = io.BytesIO()
    content = {"descr": "<f4", "fortran_order": False, "shape": (2**30,)}
    np.lib.format.write_array_header_1_0(header, content)
    with (
        zipfile.ZipFile(folder / "model.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped,
        zipped.open("encoder_Wemb.npy", "w", force_zip64=True) as file,
    ):
        file.write(header.getvalue())
        for _ in range(64):
            file.write(bytes(2**24))
    return folder


def items_of_marian(folder: Path) -> Path:
    headers = np.tile(np.array([8, 0x404, 1, 0], "<u8"), (MANY, 1))
    names = b"".join(b"%07d\0" % i for i in range(MANY))
    content = headers.tobytes() + names + np.ones(MANY, "<i4").tobytes() + bytes(8)
    (folder / "model.bin").write_bytes(struct.pack("<QQ", 1, MANY) + content)
    return folder


def lines_of_a_configuration(folder: Path) -> Path:
    (folder / "model.npz").touch()
    lines = ["models: [model.npz]", *(f"k{i}: 1" for i in range(MANY // 10))]
    (folder / "config.yml").write_text("\n".join(lines))
    return folder


WRITERS: dict[Callable[[Path], Path], str] = {
    keys_of_gguf: "tells of 0 tensors and 1000000 keys",
    tensors_of_gguf: "tells of 1000000 tensors and 1 keys",
    texts_of_gguf: "lists of more than 2097152 texts",
    header_of_safetensors: "model.safetensors cannot be read: its header is larger than 8 MiB",
    own_header_of_safetensors: "model.safetensors cannot be read: its header is larger than 8 MiB",
    shards: "model.safetensors.index.json names 100000 files, more than 1000",
    keys_of_a_configuration: "config.json cannot be read: it is larger than 4 MiB",
    keys_of_our_configuration: "config.json: has 100001 options, more than 1000",
    members_of_an_archive: "model.npz cannot be read: it has too many members",
    inflating_archive: "model.npz cannot be read: its members have 1,073,741,952 bytes",
    lines_of_a_configuration: "config.yml cannot be read: [Errno 27] it is larger than 0.25 MiB",
    items_of_marian: "model.bin has 1000000 items, more than 20000",
}


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_it_is_refused_soon(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    source = write(tmp_path)
    started = time.process_time()
    with pytest.raises(CheckpointError) as found:
        read_model(source)
    seconds = time.process_time() - started
    assert any(WRITERS[write] in problem for problem in found.value.problems), found.value.problems
    assert len(found.value.problems) < 20
    assert seconds < MOST_SECONDS


def test_operations_of_a_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are allowed take 10 s, so fewer are allowed here."""
    monkeypatch.setattr(unpickling, "MOST_OPERATIONS", 10_000)
    torch.save({f"t{i}": 0 for i in range(10_000)}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="it has more than 10,000 operations"):
        read_model(tmp_path / "model.pt")
