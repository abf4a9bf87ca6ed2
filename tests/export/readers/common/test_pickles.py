"""Checkpoints of torch are read as torch reads them, and nothing in them is ever run."""

import argparse
import collections
import io
import os
import pickle
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.readers.common.torch_files import LazyArray, is_torch_file, read_torch
from export.readers.common.unpickling import Record
from models.checkpoint import CheckpointError

FORMATS: list[dict[str, Any]] = [
    {},
    {"pickle_protocol": 4},
    {"pickle_protocol": 5},
    {"_use_new_zipfile_serialization": False},
]


def an_object() -> dict[str, Any]:
    return {
        "model": torch.nn.LSTM(3, 4, bidirectional=True).state_dict(),
        "parameter": torch.nn.Parameter(torch.randn(2, 3)),
        "opt": argparse.Namespace(layers=2, names=["a", "b"], rate=0.5, none=None),
        "tuple": (1, (2, "three")),
        "ordered": collections.OrderedDict(x=1),
        "size": torch.Size([2, 3]),
        "kind": torch.float16,
        "device": torch.device("cpu"),
        "large": 2**80,
    }


def saved(tmp_path: Path, value: Any, **options: Any) -> Path:
    path = tmp_path / "model.pt"
    torch.save(value, path, **options)
    return path


def problems_of(path: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_torch(path)
    return caught.value.problems


def test_an_archive_of_an_unknown_version(tmp_path: Path) -> None:
    path = saved(tmp_path, {"x": torch.zeros(2)})
    data = bytearray(path.read_bytes())
    needed = data.rindex(b"PK\x01\x02") + 6  # the version needed, in the archive's directory
    data[needed : needed + 2] = (99).to_bytes(2, "little")
    path.write_bytes(data)
    with pytest.raises(NotImplementedError):
        zipfile.ZipFile(path)
    assert problems_of(path) == ["the archive is damaged or cut short"]


@pytest.mark.parametrize("options", FORMATS)
def test_what_torch_wrote_is_read(tmp_path: Path, options: dict[str, Any]) -> None:
    wrote = an_object()
    path = saved(tmp_path, wrote, **options)
    assert is_torch_file(path)
    found = read_torch(path)
    assert isinstance(found["opt"], Record) and found["opt"].dotted == "argparse.Namespace"
    assert found["opt"].fields == vars(wrote["opt"])
    assert found["kind"].dotted == "torch.float16"
    for plain in ("tuple", "ordered", "size", "large"):
        assert found[plain] == wrote[plain]
    assert found["model"].keys() == wrote["model"].keys()
    for name, weight in wrote["model"].items():
        assert np.array_equal(found["model"][name].read(), weight.numpy())
    assert np.array_equal(found["parameter"].read(), wrote["parameter"].detach().numpy())


@pytest.mark.parametrize("options", FORMATS)
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
)
def test_every_kind_of_number(tmp_path: Path, dtype: str, options: dict[str, Any]) -> None:
    tensor = (torch.randn(3, 4) * 10).to(getattr(torch, dtype))
    found = read_torch(saved(tmp_path, [tensor], **options))[0].read()
    expected = tensor.float().numpy() if tensor.is_floating_point() else tensor.numpy()
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[2:, 1:3],
        lambda x: x[:, ::2],
        lambda x: x[0, 0],
        lambda x: x[:0],
        lambda x: x[0].expand(4, 4),
    ],
)
def test_views_of_one_storage(tmp_path: Path, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensor = torch.randn(5, 4)
    whole, part = read_torch(saved(tmp_path, [tensor, view(tensor)]))
    assert np.array_equal(whole.read(), tensor.numpy())
    assert np.array_equal(part.read(), view(tensor).numpy())


def test_an_array_that_was_read_can_be_written_and_leaves_the_file_alone(tmp_path: Path) -> None:
    path = saved(tmp_path, torch.ones(3))
    before = path.read_bytes()
    lazy = read_torch(path)
    lazy.read()[:] = 7
    assert lazy.read().tolist() == [1, 1, 1]
    assert path.read_bytes() == before


# Pickles that want to run code


class Calls:
    """Pickles to a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.made_of = function, arguments

    def __reduce__(self) -> Any:
        return self.made_of


def pickled_into_zip(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "evil.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
    return path


def test_all_forbidden_names_are_listed_and_nothing_runs(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    evil = [
        Calls(os.system, f"touch {touched}"),
        {"deep": (Calls(eval, f"open({str(touched)!r}, 'w')"),)},
        Calls(getattr, Calls(__import__, "os"), "system"),
        torch.ones(2),
        Calls(os.makedirs, str(touched)),
    ]
    path = saved(tmp_path, evil)
    [problem] = problems_of(path)
    for name in ("posix.system", "__builtin__.eval", "__builtin__.getattr", "os.makedirs"):
        assert name in problem
    assert "__builtin__.__import__" in problem
    assert not touched.exists()


GADGETS = {
    "a text of the first protocol": b"cos\nsystem\n(S'touch {0}'\ntR.",
    "an instance": b"(S'touch {0}'\nios\nsystem\n.",
    "an object": b"(cos\nsystem\nS'touch {0}'\no.",
    "names on the stack": b"\x80\x04\x8c\x05posix\x8c\x06system\x93Vtouch {0}\n\x85R.",
    "names in the memo": b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94h\x00h\x01\x93)R.",
    "a hidden call": b"\x80\x02cos\nsystem\n(S'touch {0}'\ntR0K\x01.",
    "torch.load": b"\x80\x02ctorch\nload\n(S'{0}'\ntR.",
    "a class's constructor": b"\x80\x02csubprocess\nPopen\n(S'touch {0}'\nt\x81.",
    "an attribute of an allowed name": b"\x80\x02cargparse\nNamespace.__init__.__globals__\n.",
    "a reconstructor": b"ccopy_reg\n_reconstructor\n(cos\n_wrap_close\nc__builtin__\nobject\nNtR.",
    "numpy": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85tR.",
    "an extension": b"\x80\x02\x82\x01)R.",
    "an allowed call of something forbidden": b"\x80\x02ctorch\nSize\ncos\nsystem\n\x85R.",
    "the state of something forbidden": b"\x80\x02cos\nsystem\n}b.",
    "an item of something forbidden": b"\x80\x02cos\nsystem\nK\x01K\x02s.",
}


@pytest.mark.parametrize("gadget", GADGETS, ids=str)
def test_gadgets(tmp_path: Path, gadget: str) -> None:
    touched = tmp_path / "touched"
    data = GADGETS[gadget].replace(b"{0}", str(touched).encode())
    [problem, *_] = problems_of(pickled_into_zip(tmp_path, data))
    assert "what is not allowed" in problem
    assert not touched.exists()


SIZE = b"ctorch\nSize\n"
TENSOR = (  # of one element, over a storage of one
    b"ctorch._utils\n_rebuild_tensor\n"
    b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
    b"K\x00K\x01\x85K\x01\x85tR"
)
SHAPE = b"X\x05\x00\x00\x00shapeK\x64\x85"


@pytest.mark.parametrize(
    "state",
    [
        SIZE + b"}X\x0c\x00\x00\x00__defaults__K\x01\x85sb",  # of a function of ours
        SIZE + b"N}X\x0c\x00\x00\x00__defaults__K\x01\x85s\x86b",
        TENSOR + b"}" + SHAPE + b"sb",  # beyond its storage
        TENSOR + b"N}" + SHAPE + b"s\x86b",
        b"cargparse\nNamespace\n}X\x06\x00\x00\x00fieldsK\x01sb",
        b"]}X\x01\x00\x00\x00aK\x01sb",
    ],
)
def test_attributes_of_what_is_made_cannot_be_set(tmp_path: Path, state: bytes) -> None:
    path = pickled_into_zip(tmp_path, b"\x80\x02" + state + b".")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/data/0", bytes(4))
    [problem] = problems_of(path)
    assert problem.startswith("the pickle is damaged: ")


@pytest.mark.parametrize("put", [b"r\xff\xff\xff\x7f", b"p2147483647\n"])
def test_a_memo_has_no_more_places_than_there_are_values(tmp_path: Path, put: bytes) -> None:
    """The unpickler would allocate 32 GB."""
    [problem] = problems_of(pickled_into_zip(tmp_path, b"\x80\x02N" + put + b"."))
    assert problem == "the pickle is damaged: it puts a value at place 2147483647 of its memo"


def test_attributes_of_an_ordered_dict_say_nothing(tmp_path: Path) -> None:
    ordered = collections.OrderedDict(x=1)
    ordered.note = "as torch's `_metadata`"  # type: ignore[attr-defined]
    assert read_torch(saved(tmp_path, ordered)) == {"x": 1}


def test_attributes_of_classes_cannot_be_set(tmp_path: Path) -> None:
    data = b"\x80\x02cargparse\nNamespace\nN}(X\x06\x00\x00\x00__eq__K\x01u\x86b."
    assert problems_of(pickled_into_zip(tmp_path, data))
    assert argparse.Namespace(a=1) == argparse.Namespace(a=1)


DAMAGED = {
    "nothing": b"",
    "no end": b"\x80\x02]",
    "an empty stack": b"\x80\x02.",
    "no such memo": b"\x80\x02h\x05.",
    "a mark that is not there": b"\x80\x02t.",
    "something odd in a dictionary": b"\x80\x02}(K\x01u.",
    "a list as a key": b"\x80\x02}]K\x01s.",
    "a deep tuple as a key": b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
    "a tuple that deepens in the memo": b"\x80\x02})q\x00"
    + b"0h\x00\x85q\x00" * 200_000
    + b"K\x01s.",
    "a call of a number": b"\x80\x02K\x01)R.",
    "an unknown operation": b"\x80\x02\xff.",
    "no text": b"\x80\x02X\x04\x00\x00\x00\xff\xff\xff\xff.",
    "a text longer than the file": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x0fa.",
    "an unnamed persistent id": b"\x80\x02NQ.",
    "a persistent id of no storage": b"\x80\x02(K\x01K\x02K\x03K\x04K\x05tQ.",
    "a tensor without a storage": b"\x80\x02ctorch._utils\n_rebuild_tensor\n(K\x01K\x02))tR.",
    "a parameter without a tensor": b"\x80\x02ctorch._utils\n_rebuild_parameter\n(K\x01tR.",
    "too few arguments": b"\x80\x02ctorch._utils\n_rebuild_tensor\n)R.",
    "a set": b"\x80\x04\x8f.",
}


@pytest.mark.parametrize("damage", DAMAGED, ids=str)
def test_damaged_pickles(tmp_path: Path, damage: str) -> None:
    [problem] = problems_of(pickled_into_zip(tmp_path, DAMAGED[damage]))
    assert problem.startswith("the pickle is damaged: ")


# Tensors that lie


class Tensor:
    """Pickles to a tensor of any shape, over a storage of any size."""

    def __init__(self, numel: int, offset: Any, shape: Any, strides: Any) -> None:
        self.numel, self.view = numel, (offset, shape, strides)

    def __reduce__(self) -> Any:
        arguments: tuple[Any, ...] = (
            Storage(self.numel),
            *self.view,
            False,
            collections.OrderedDict(),
        )
        return torch._utils._rebuild_tensor_v2, arguments


class Storage:
    def __init__(self, numel: int) -> None:
        self.identity = ("storage", torch.FloatStorage, "0", "cpu", numel)


class Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.identity if isinstance(obj, Storage) else None


def with_tensor(tmp_path: Path, tensor: Tensor, num_bytes: int = 48) -> Path:
    data = io.BytesIO()
    Pickler(data, protocol=2).dump([tensor])
    path = pickled_into_zip(tmp_path, data.getvalue())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/data/0", bytes(num_bytes))
    return path


@pytest.mark.parametrize(
    ("numel", "offset", "shape", "strides"),
    [
        (12, 0, (3, 5), (5, 1)),
        (12, 1, (3, 4), (4, 1)),
        (12, 0, (2**40, 2**40), (0, 0)),
        (12, 0, (13,), (0,)),
        (12, -1, (2,), (1,)),
        (12, 5, (2,), (-1,)),
        (12, 0, (-3, -4), (4, 1)),
        (12, 0, (3, 4), (4,)),
        (12, 0, [3, 4], (4, 1)),
        (12, 0, (2.0,), (1,)),
        (12, True, (2,), (1,)),
        (12, 0, (1,) * 65, (1,) * 65),
        (12, 0, (2,), (2**70,)),
        (-1, 0, (1,), (1,)),
        (13, 0, (1,), (1,)),
        (2**62, 0, (1,), (1,)),
    ],
)
def test_tensors_beyond_their_storage(
    tmp_path: Path, numel: int, offset: Any, shape: Any, strides: Any
) -> None:
    path = with_tensor(tmp_path, Tensor(numel, offset, shape, strides))
    assert len(problems_of(path)) == 1


def test_a_tensor_that_fits_is_read(tmp_path: Path) -> None:
    [found] = read_torch(with_tensor(tmp_path, Tensor(12, 2, (2, 5), (5, 1))))
    assert isinstance(found, LazyArray)
    assert found.shape == found.read().shape == (2, 5)


def test_compressed_entries_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([0] * 1000))
    assert "compressed" in problems_of(path)[0]


def test_missing_storages_are_listed(tmp_path: Path) -> None:
    path = saved(tmp_path, [torch.ones(3), torch.ones(4)])
    with zipfile.ZipFile(path) as archive:
        pickled = archive.read("model/data.pkl")
    problems = problems_of(pickled_into_zip(tmp_path, pickled))
    assert problems == ["storage '0' is missing", "storage '1' is missing"]


def test_keys_of_storages_are_texts_in_the_older_format(tmp_path: Path) -> None:
    path = saved(tmp_path, torch.ones(3), _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    [key] = set(re.findall(rb"(\d{6,})q", data))
    texts, numbers = (pickle.dumps([kind(key)], protocol=2) for kind in (bytes.decode, int))
    assert data.count(texts) == 1
    path.write_bytes(data.replace(texts, numbers))
    assert problems_of(path) == ["the file does not say where its storages are"]


# Files cut short, and bytes changed


@pytest.mark.parametrize("options", [FORMATS[0], FORMATS[3]])
def test_files_cut_short(tmp_path: Path, options: dict[str, Any]) -> None:
    path = saved(tmp_path, an_object(), **options)
    data = path.read_bytes()
    for end in sorted({0, 1, 4, 20, *range(0, len(data) - 1, 97)}):
        path.write_bytes(data[:end])
        assert problems_of(path)


@pytest.mark.parametrize("options", FORMATS)
def test_changed_bytes(tmp_path: Path, options: dict[str, Any]) -> None:
    """Either it is refused, or what is read is plain data: nothing else may happen."""
    path = saved(tmp_path, an_object(), **options)
    data, chance = path.read_bytes(), random.Random(0)
    for _ in range(150):
        changed = bytearray(data)
        start = chance.randrange(len(data))
        for place in range(start, min(start + chance.choice((1, 1, 4, 30)), len(data))):
            changed[place] = chance.randrange(256)
        path.write_bytes(changed)
        try:
            found = read_torch(path)
        except CheckpointError as error:
            assert error.problems
        else:
            model = found.get("model") if isinstance(found, dict) else None
            for each in model.values() if isinstance(model, dict) else ():
                assert not isinstance(each, LazyArray) or each.read().nbytes < 10_000


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"PK\x03\x04" + bytes(100), bytes(50)])
def test_no_file_of_torch(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    assert len(problems_of(path)) == 1


def test_folders_devices_and_what_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero"), tmp_path / "none.pt"):
        assert problems_of(path) == ["there is no such file"]
        assert not is_torch_file(tmp_path)
