"""Files that are cut short, tampered with or not for us: one error that lists what is wrong."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFEndian, GGUFWriter

from export.readers.gguf.reader import read_checkpoint
from models.checkpoint import CheckpointError
from tests.export.readers.gguf.files import write_gguf
from tests.export.readers.hugging_face.language_models import random_model


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    return write_gguf(random_model("smollm2"), path).read_bytes()


def problems_of(path: Path, content: bytes | None = None) -> list[str]:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    assert caught.value.problems
    return caught.value.problems


def test_no_gguf(tmp_path: Path, content: bytes) -> None:
    assert "begins with" in problems_of(tmp_path / "a.gguf", b"GGML" + content[4:])[0]
    assert "cannot be read" in problems_of(tmp_path / "b.gguf", b"")[0]
    assert "version 1" in problems_of(tmp_path / "c.gguf", content[:4] + b"\1\0\0\0")[0]


def test_big_endian(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "llama", endianess=GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "big-endian" in problems_of(tmp_path / "model.gguf")[0]


def test_cut_short_anywhere(tmp_path: Path, content: bytes) -> None:
    for length in {*range(4, 200, 7), *np.linspace(200, len(content) - 1, 40).astype(int)}:
        assert problems_of(tmp_path / "model.gguf", content[:length])


def test_what_is_missing_of_the_data_is_named_once(tmp_path: Path, content: bytes) -> None:
    (problem,) = problems_of(tmp_path / "model.gguf", content[: len(content) // 2])
    assert "before the data of" in problem and "and" in problem and "more" in problem


@pytest.mark.parametrize("at", [8, 16])  # the counts of tensors and of keys
def test_absurd_counts(at: int, tmp_path: Path, content: bytes) -> None:
    changed = bytearray(content)
    changed[at : at + 8] = struct.pack("<Q", 2**63)
    told = f"tells of {2**63} tensors" if at == 8 else f"and {2**63} keys"
    assert told in problems_of(tmp_path / "model.gguf", bytes(changed))[0]


@pytest.mark.parametrize("count", [2**20, 2**40, 2**64 - 1])
def test_absurd_lengths_of_arrays(count: int, tmp_path: Path, content: bytes) -> None:
    key = b"tokenizer.ggml.token_type"
    at = content.index(key) + len(key) + 8
    changed = bytearray(content)
    changed[at : at + 8] = struct.pack("<Q", count)
    assert problems_of(tmp_path / "model.gguf", bytes(changed))


def test_flipped_bytes_never_do_worse(tmp_path: Path, content: bytes) -> None:
    """Expect what is read in spite of them to be a model of finite or infinite numbers; the export
    looks.
    """
    random = np.random.default_rng(0)
    header = content.index(b"blk.2.ffn_up") + 100
    for _ in range(150):
        changed = bytearray(content)
        for at in random.integers(4, header, 3):
            changed[at] = int(random.integers(256))
        (tmp_path / "model.gguf").write_bytes(bytes(changed))
        try:
            read_checkpoint(tmp_path / "model.gguf")
        except CheckpointError as error:
            assert error.problems


WRONG_KEYS: list[tuple[str, Any, str]] = [
    ("general__architecture", "rwkv6", "'rwkv6' is not supported"),
    ("llama__block_count", 2**31, "and 3 blocks have tensors"),
    ("llama__block_count", None, "llama.block_count is missing"),
    ("llama__context_length", 2**31, "context_length"),
    ("llama__embedding_length", 128, "token_embd.weight has shape [267, 64]"),
    ("llama__feed_forward_length", "wide", "must be int"),
    ("llama__attention__head_count", 0, "head"),
    ("llama__expert_shared_count", 8, "llama.expert_shared_count 8 is not supported"),
    ("llama__rope__scaling__type", "novel", "'novel' is not supported"),
    ("split__count", 3, "parts"),
    ("tokenizer__ggml__tokens", None, "tokens"),
    ("tokenizer__ggml__eos_token_id", 10**6, "eos_id"),
]


@pytest.mark.parametrize(("key", "value", "message"), WRONG_KEYS)
def test_wrong_keys(key: str, value: Any, message: str, tmp_path: Path) -> None:
    path = write_gguf(random_model("smollm2"), tmp_path / "model.gguf", **{key: value})
    assert any(message in problem for problem in problems_of(path)), problems_of(path)


def test_tensors_are_called_as_in_the_file(tmp_path: Path, content: bytes) -> None:
    changed = content.replace(b"blk.1.attn_q.weight", b"blk.1.attn_x.weight")
    problems = problems_of(tmp_path / "model.gguf", changed)
    assert "blk.1.attn_q.weight is missing" in problems
    assert "blk.1.attn_x.weight is not expected" in problems


def test_unknown_types_of_tensors(tmp_path: Path, content: bytes) -> None:
    changed = bytearray(content)
    for name, kind in ((b"blk.1.attn_q.weight", 250), (b"blk.2.attn_q.weight", 16)):
        at = content.index(name) + len(name) + 4 + 2 * 8
        changed[at : at + 4] = struct.pack("<I", kind)
    problems = problems_of(tmp_path / "model.gguf", bytes(changed))
    assert "blk.1.attn_q.weight: has the unknown tensor type 250" in problems
    assert "blk.2.attn_q.weight: tensors of type IQ2_XXS cannot be read" in problems
