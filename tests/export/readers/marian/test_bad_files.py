"""Tests that what is wrong with a Marian folder is said by name, all of it in one error."""

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from tests.export.readers.marian.files import (
    FLOAT32,
    INTGEMM8,
    NUM_PIECES,
    OPTIONS,
    bergamot_folder,
    binary,
    checksum,
    random_weights,
    shortlist,
    some_shortlist,
    vocabulary,
    write_binary,
    write_npz,
)

MODEL, VOCABULARY = "model.enpt.intgemm.alphas.bin", "vocab.enpt.spm"
LEX, CONFIG = "lex.30.30.enpt.s2t.bin", "config.intgemm8bitalpha.yml"


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_model(folder)
    return caught.value.problems


def changed(folder: Path, name: str, change: Callable[[bytes], bytes]) -> list[str]:
    """The problems of a Bergamot folder with one file changed."""
    bergamot_folder(folder)
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    return problems_of(folder)


def number_at(offset: int, value: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        return data[:offset] + struct.pack("<Q", value) + data[offset + 8 :]

    return change


FIRST_HEADER = 16  # of the binary format: name, type, axes, bytes


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (MODEL, lambda data: data[: len(data) // 2], "is cut short or damaged: the data of"),
        (MODEL, lambda data: data[:40], "the headers of the items would need"),
        (MODEL, lambda data: data + b"\0" * 9, "has 9 bytes after its last item"),
        (MODEL, number_at(8, 2**60), "the headers of the items would need"),
        (MODEL, number_at(FIRST_HEADER, 2**60), "a name would need"),
        (MODEL, number_at(FIRST_HEADER + 8, 0x1901), "Wemb is of type 0x1901, which is not supp"),
        (MODEL, number_at(FIRST_HEADER + 16, 900), "has an item Wemb of 900 axes"),
        (MODEL, number_at(FIRST_HEADER + 24, 2**50), "the data of Wemb would need"),
        (LEX, lambda data: data[:30], "has 30 bytes, its header alone has 48"),
        (LEX, lambda data: data[:-4], "its header tells of"),
        (LEX, lambda data: data[:-9] + b"!" + data[-8:], "is damaged: its checksum is another"),
        (LEX, number_at(0, 7), "is no binary shortlist: it begins with 0x7"),
        (LEX, number_at(32, 2**55), "its header tells of"),
        (VOCABULARY, lambda data: data[: len(data) // 2], "not a sentencepiece model"),
        (CONFIG, lambda data: data.replace(b"model.", b"other."), "bin is missing, which config"),
        (CONFIG, lambda data: data + b"beam-size: !!python/name:os.system\n", "cannot be read"),
        (CONFIG, lambda data: data + b"beam-size: -5\n", "beam-size"),
        (CONFIG, lambda data: data.replace(b"2.5", b"-1"), "max-length-factor -1 must be positive"),
        (CONFIG, lambda data: data.replace(b"2.5", b"x"), "max-length-factor 'x' must be"),
        (CONFIG, lambda data: data.replace(b"lex.", b"rex."), "rex.30.30.enpt.s2t.bin cannot be"),
    ],
)
def test_damaged_files(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], expected: str
) -> None:
    assert any(expected in problem for problem in changed(tmp_path / "x", name, change))


def test_a_file_that_only_claims_to_be_a_model(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(struct.pack("<Q", 1))
    assert problems_of(tmp_path / "model.bin") == [
        "one vocabulary (.spm) or two are wanted, found none",
        "model.bin is cut short or damaged: the number of items would need 8 bytes from byte 8 on,"
        " and 0 are left",
    ]


def test_a_missing_vocabulary(tmp_path: Path) -> None:
    bergamot_folder(tmp_path / "x", config=False)
    (tmp_path / "x" / VOCABULARY).unlink()
    assert problems_of(tmp_path / "x") == ["one vocabulary (.spm) or two are wanted, found none"]


def test_several_models(tmp_path: Path) -> None:
    bergamot_folder(tmp_path / "x", config=False)
    data = (tmp_path / "x" / MODEL).read_bytes()
    (tmp_path / "x" / "model.other.bin").write_bytes(data)
    (problem,) = problems_of(tmp_path / "x")
    assert problem == f"several models, of which one is wanted: {MODEL}, model.other.bin"


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ([[]] * 7, f"tells of 7 source tokens, expected {NUM_PIECES}"),
        ([[NUM_PIECES]] * NUM_PIECES, f"names token {NUM_PIECES} of a vocabulary of {NUM_PIECES}"),
    ],
)
def test_shortlists_of_other_vocabularies(
    tmp_path: Path, lists: list[list[int]], expected: str
) -> None:
    (problem,) = changed(tmp_path / "x", LEX, lambda _: shortlist(3, lists))
    assert problem == f"{LEX} {expected}"


def test_offsets_that_go_back(tmp_path: Path) -> None:
    lists = some_shortlist(NUM_PIECES, NUM_PIECES)
    good = shortlist(30, lists)
    body = number_at(48 - 16 + 8, 2**40)(good[16:])
    bad = good[:8] + struct.pack("<Q", checksum(body)) + body
    (problem,) = changed(tmp_path / "x", LEX, lambda _: bad)
    assert "offsets that do not ascend" in problem


def weights_folder(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> Path:
    arrays = random_weights(OPTIONS, NUM_PIECES, NUM_PIECES)
    change(arrays)
    write_npz(folder / "model.npz", arrays, OPTIONS)
    (folder / "vocab.spm").write_bytes(vocabulary())
    return folder


def test_weights_that_are_missing_misshapen_or_unknown(tmp_path: Path) -> None:
    def change(arrays: dict[str, np.ndarray]) -> None:
        del arrays["encoder_l1_self_Wq"], arrays["decoder_l2_rnn_bf"]
        arrays["encoder_l2_ffn_W1"] = np.zeros((32, 47), np.float32)
        arrays["decoder_l1_context_bo"] = np.zeros((1, 32), np.complex64)
        arrays["decoder_l1_rnn_Wo"] = np.zeros((32, 32), np.float32)

    assert sorted(problems_of(weights_folder(tmp_path, change))) == [
        "decoder_l1_context_bo holds complex64, which is not supported",
        "decoder_l1_rnn_Wo is not expected",
        "decoder_l2_rnn_bf is missing",
        "encoder_l1_self_Wq is missing",
        "encoder_l2_ffn_W1 has shape [32, 47], expected [32, 48]",
    ]


def test_archives_that_are_damaged_or_want_to_be_unpickled(tmp_path: Path) -> None:
    path = weights_folder(tmp_path, lambda arrays: None) / "model.npz"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert any("cannot be read" in problem for problem in problems_of(tmp_path))
    half = len(data) // 2
    path.write_bytes(data[:half] + bytes(64) + data[half + 64 :])
    assert any("is damaged" in problem for problem in problems_of(tmp_path))

    def unpickled(arrays: dict[str, Any]) -> None:
        arrays["encoder_l1_self_Wq"] = np.array([Exploding()], object)

    (problem,) = problems_of(weights_folder(tmp_path, unpickled))
    assert problem == "encoder_l1_self_Wq holds object, which is not supported"


def test_archives_of_something_else(tmp_path: Path) -> None:
    weights_folder(tmp_path, lambda arrays: None)
    with zipfile.ZipFile(tmp_path / "model.npz", "a") as archive:
        archive.writestr("notes.txt", "not an array")
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("model.npz cannot be read")


class Exploding:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"type": "multi-s2s"}, "type 'multi-s2s' is not supported"),
        ({"transformer-decoder-autoreg": "average-attention"}, "autoreg 'average-attention' is"),
        ({"dec-cell": "gru"}, "dec-cell 'gru' is not supported"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth 3 is not supported"),
        ({"transformer-tied-layers": [1, 1]}, "transformer-tied-layers [1, 1] is not supported"),
        ({"lemma-dim-emb": 64}, "lemma-dim-emb 64 is not supported"),
        ({"transformer-postprocess": "dhn"}, "transformer-postprocess 'dhn' is not supported"),
        ({"transformer-postprocess-top": "a"}, "transformer-postprocess-top 'a' is not supported"),
        ({"dim-emb": "many"}, "dim-emb 'many' must be int"),
        ({"transformer-heads": 3}, "d_model 32 must be a multiple of num_heads 3"),
        ({"transformer-pool": True}, "transformer-pool True is not supported"),
    ],
)
def test_options_that_are_not_supported(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    arrays = random_weights(OPTIONS, NUM_PIECES, NUM_PIECES)
    write_binary(tmp_path / MODEL, arrays, OPTIONS | changes, {})
    (tmp_path / VOCABULARY).write_bytes(vocabulary())
    assert any(expected in problem for problem in problems_of(tmp_path))


def test_several_things_at_once(tmp_path: Path) -> None:
    options = OPTIONS | {"transformer-ffn-activation": "tanh", "ulr": True}
    write_binary(tmp_path / MODEL, random_weights(OPTIONS, 9, 9), options, {"none": 0.0})
    (tmp_path / VOCABULARY).write_bytes(b"nothing")
    (tmp_path / LEX).write_bytes(shortlist(2, [[]] * 5))
    found = problems_of(tmp_path)
    for part in ("activation 'tanh'", "ulr True", "not a sentencepiece", "tells of 5 source"):
        assert any(part in problem for problem in found), (part, found)


def test_multipliers_that_are_none(tmp_path: Path) -> None:
    bergamot_folder(tmp_path / "alpha", alphas=-1.0)
    assert "encoder_l1_self_Wq_QuantMultA is -1.0, which is no multiplier" in problems_of(
        tmp_path / "alpha"
    )

    def without(data: bytes) -> bytes:
        where = data.index(struct.pack("<Q", INTGEMM8))
        assert where == FIRST_HEADER + 8
        return number_at(where, FLOAT32)(data)

    assert any("has" in problem and "expected" in problem for problem in changed(
        tmp_path / "type", MODEL, without
    ))  # fmt: skip


def test_options_that_are_no_yaml(tmp_path: Path) -> None:
    items = [("special:model.yml", 0x101, (9,), b"a: [1, 2\0")]
    (tmp_path / MODEL).write_bytes(binary(items))
    (tmp_path / VOCABULARY).write_bytes(vocabulary())
    assert any("special:model.yml is no YAML" in problem for problem in problems_of(tmp_path))
    (tmp_path / MODEL).write_bytes(binary([("Wemb", FLOAT32, (1, 1), bytes(4))]))
    assert any("the model does not say what it is" in problem for problem in problems_of(tmp_path))
