"""Tests of the cache of checkpoints and bundles."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from export.bundling import writer
from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from tests import cache
from tests.cache import copy_cached, export_cached
from tests.tiny import tiny_checkpoint


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(cache, "CACHE", tmp_path / "cache")
    cache._entries.cache_clear()
    yield tmp_path / "cache"
    cache._entries.cache_clear()


@pytest.fixture
def write() -> Callable[[Path], None]:
    numbers = iter(range(10))

    def write(output: Path) -> None:
        output.mkdir()
        (output / "number").write_text(str(next(numbers)))

    return write


def test_what_is_cached_is_written_once_for_a_key(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    for name, key in {"a": "one", "b": "one", "c": "another"}.items():
        copy_cached(key, tmp_path / name, write)
    numbers = [(tmp_path / name / "number").read_text() for name in "abc"]
    assert numbers == ["0", "0", "1"]


def test_a_changed_copy_leaves_the_cache_as_it_is(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    copy_cached("one", tmp_path / "a", write)
    (tmp_path / "a" / "number").write_text("changed")
    copy_cached("one", tmp_path / "b", write)
    assert (tmp_path / "b" / "number").read_text() == "0"


def test_what_could_not_be_written_is_not_cached(
    tmp_path: Path, empty_cache: Path, write: Callable[[Path], None]
) -> None:
    def fail(output: Path) -> None:
        write(output)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        copy_cached("one", tmp_path / "a", fail)
    [entries] = empty_cache.iterdir()
    assert list(entries.iterdir()) == []


def test_a_worker_that_is_slower_takes_what_the_other_wrote(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    def overtaken(output: Path) -> None:
        copy_cached("one", tmp_path / "a", write)
        write(output)

    copy_cached("one", tmp_path / "b", overtaken)
    assert (tmp_path / "b" / "number").read_text() == "0"


def test_what_other_sources_made_is_removed_once_no_run_uses_it(
    tmp_path: Path, empty_cache: Path, write: Callable[[Path], None]
) -> None:
    for name, hours in {"recent": 0.5, "old": 2}.items():
        (empty_cache / name).mkdir(parents=True)
        os.utime(empty_cache / name, times=(time.time() - hours * 3600,) * 2)
    copy_cached("one", tmp_path / "a", write)
    names = {path.name for path in empty_cache.iterdir()}
    assert "recent" in names and "old" not in names and len(names) == 2


def test_changed_sources_are_other_entries(
    tmp_path: Path, write: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_cached("one", tmp_path / "a", write)
    monkeypatch.setattr(cache, "SOURCES", cache.SOURCES[1:])
    cache._entries.cache_clear()
    copy_cached("one", tmp_path / "b", write)
    assert (tmp_path / "b" / "number").read_text() == "1"


def test_a_bundle_is_exported_once_for_a_checkpoint_with_its_weights_and_conventions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = Mock(wraps=writer.export_checkpoint)
    monkeypatch.setattr(writer, "export_checkpoint", export)
    checkpoint = tiny_checkpoint("cho", tmp_path / "cho")
    weights = {name: 2 * array for name, array in checkpoint.weights.items()}
    conventions = replace(checkpoint.conventions, stop=(7,))
    changed = [
        checkpoint,
        replace(checkpoint, weights=weights),
        replace(checkpoint, conventions=conventions),
        replace(checkpoint, files={**checkpoint.files, "README.md": b"# One"}),
    ]
    for copy in range(2):
        for i, source in enumerate(changed):
            export_cached(source, tmp_path / f"{copy}-{i}", Precision.FP32)
    assert export.call_count == len(changed)
    assert open_bundle(tmp_path / "1-2").manifest.tokens.stop == (7,)
    export_cached(checkpoint, tmp_path / "int8", Precision.INT8)
    export_cached(checkpoint, tmp_path / "named", Precision.INT8, "another")
    assert export.call_count == len(changed) + 2
