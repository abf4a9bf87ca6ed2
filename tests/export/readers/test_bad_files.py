"""Whatever happens to the files of a model of any format, `read_model` raises CheckpointError with
what is wrong, or gives a model that can be exported: no traceback, no half-written bundle.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from export.cli import export
from export.readers.reading import read_model
from models.checkpoint import CheckpointError
from tests.export.readers.samples import SAMPLES, write

LONGEST_PROBLEM = 6000  # characters; other libraries quote what they cannot read


@pytest.fixture(scope="module", params=SAMPLES)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model in a folder of its own; who changes a file puts it back."""
    return write(request.param, tmp_path_factory.mktemp("sample"))


def files_of(source: Path) -> list[Path]:
    folder = source if source.is_dir() else source.parent
    return sorted(path for path in folder.iterdir() if path.is_file())


def try_to_read(source: Path) -> None:
    """All of it: the weights too, which are read when they are asked for."""
    try:
        checkpoint = read_model(source)
        for name in checkpoint.weights:
            assert checkpoint.weights[name] is not None
    except CheckpointError as error:
        assert error.problems
        assert all(0 < len(problem) < LONGEST_PROBLEM for problem in error.problems)


def each_with(source: Path, change: Callable[[Path, bytes], Iterator[None]]) -> None:
    """Reads the model after every step of `change`, which is given each file and its content."""
    for path in files_of(source):
        content = path.read_bytes()
        for _ in change(path, content):
            try_to_read(source)
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def test_the_samples_are_sound(source: Path) -> None:
    checkpoint = read_model(source)
    assert checkpoint.weights
    assert json.loads(checkpoint.tokenizer)


def test_files_cut_short(source: Path) -> None:
    chance = random.Random(0)

    def cut(path: Path, content: bytes) -> Iterator[None]:
        for length in (0, 1, 8, len(content) - 1, *(chance.randrange(len(content)) for _ in "123")):
            path.write_bytes(content[:length])
            yield

    each_with(source, cut)


def test_changed_bytes(source: Path) -> None:
    chance = random.Random(0)

    def damage(path: Path, content: bytes) -> Iterator[None]:
        for number in range(12):
            changed = bytearray(content)
            end = len(content) if number % 3 else min(len(content), 3000)  # headers come first
            for _ in range(chance.choice((1, 3, 20))):
                changed[chance.randrange(end)] = chance.randrange(256)
            path.write_bytes(changed)
            yield

    each_with(source, damage)


BOMBS = [b"[" * 100_000, b'{"a":' * 100_000, b"[1, 2]", b'"text"', b"{}", bytes(range(256)) * 9]


def test_bombs_and_other_contents(source: Path) -> None:
    def replace(path: Path, content: bytes) -> Iterator[None]:
        for bomb in BOMBS:
            path.write_bytes(bomb)
            yield

    each_with(source, replace)


def test_what_is_no_file(source: Path) -> None:
    """Nothing, a folder, a link to itself, a device."""

    def replace(path: Path, content: bytes) -> Iterator[None]:
        path.unlink()
        yield
        path.mkdir()
        yield
        path.rmdir()
        for target in (path, Path("/dev/null"), path.parent):
            path.symlink_to(target)
            yield
            path.unlink()

    each_with(source, replace)


WRONG: list[Any] = [None, [], {}, -1, 0, 0.5, "x", True, 10**30, [None], {"a": [1]}, 2**31]


def test_wrong_values_in_json(source: Path) -> None:
    chance = random.Random(0)

    def replace(path: Path, content: bytes) -> Iterator[None]:
        if path.suffix != ".json":
            return
        for name, value in json.loads(content).items():
            for wrong in chance.sample(WRONG, 3) + [10**9] * isinstance(value, int):
                path.write_text(json.dumps({**json.loads(content), name: wrong}))
                yield

    each_with(source, replace)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "config.json is empty"),
        (b" \n", "config.json is empty"),
        (b'{"model_type": "llama", ', "config.json is not JSON: Expecting property name"),
        (b"model: llama", "config.json is not JSON: Expecting value"),
        (b"\xff\xfe{}", "config.json is not JSON: 'utf-8' codec can't decode"),
        (b"[1, 2]", "config.json: expected an object, found list"),
        (b"null", "config.json: expected an object, found NoneType"),
        (b"{}", "config.json names neither an `architecture`"),
        (b'{"model_type": null, "vocab_size": 3}', "config.json names neither an `architecture`"),
        (b'{"model_type": ["llama"]}', "config.json: model_type ['llama'] is none of albert"),
        (b'{"model_type": "led"}', "config.json: model_type 'led' is not supported: its first"),
        (b'{"model_type": "lama"}', "config.json: model_type 'lama' is none of albert"),
        (b"[" * 100_000, "config.json is not JSON: it nests too deep"),
    ],
)
@pytest.mark.parametrize("others", [(), ("model.safetensors", "tokenizer.json")])
def test_what_is_wrong_with_a_configuration_is_said(
    tmp_path: Path, content: bytes, problem: str, others: tuple[str, ...]
) -> None:
    (tmp_path / "config.json").write_bytes(content)
    for name in others:
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(CheckpointError) as found:
        read_model(tmp_path)
    assert any(each.startswith(problem) for each in found.value.problems), found.value.problems
    assert not any("none of the known formats" in each for each in found.value.problems)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("adapter_config.json", "it holds an adapter: export its base model, with --adapter"),
        ("Qwen3-0.6B-Q4_K_M.gguf", "it holds .gguf files: export one of them, not the folder"),
        ("snapshots/a1/config.json", "it is a cache of the hub: export a folder in its snapshots"),
    ],
)
def test_other_folders_of_the_hub_say_what_to_do(file: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("{}")
    with pytest.raises(CheckpointError) as found:
        read_model(tmp_path)
    assert found.value.problems == [problem]


def test_a_configuration_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(
        CheckpointError, match=r"config\.json cannot be read: it is no regular file"
    ):
        read_model(tmp_path)


def test_a_bad_model_leaves_no_bundle(source: Path, tmp_path: Path) -> None:
    path = max(files_of(source), key=lambda path: path.stat().st_size)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    arguments = [str(source), "-o", str(tmp_path / "bundle"), "--no-verify"]
    result = CliRunner().invoke(export, arguments)
    path.write_bytes(content)
    assert result.exit_code == 2
    assert "cannot be exported" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["nothing", "a folder", "a text", "/dev/null", "a loop"])
def test_what_is_no_model_at_all(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    match name:
        case "a folder":
            path.mkdir()
        case "a text":
            path.write_text("Bonjour.")
        case "a loop":
            path.symlink_to(path)
    with pytest.raises(CheckpointError):
        read_model(path)
