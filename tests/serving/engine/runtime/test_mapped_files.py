"""The pages of mapped files are released, unless the process has changed them."""

import mmap
from pathlib import Path

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.mapped_files import release_pages
from serving.engine.runtime.session import open_graphs
from tests.tiny import tiny_bundle

BYTES = 2**22


def resident_bytes(file: Path) -> int:
    """Return how much of a file is resident in this process."""
    mappings = Path("/proc/self/smaps").read_text(encoding="utf-8").split("VmFlags")
    sizes = [
        text.split("Rss:")[1].split()[0] for text in mappings if f" {file.resolve()}\n" in text
    ]
    return 1024 * sum(map(int, sizes))


def map_file(path: Path) -> mmap.mmap:
    """Map a file of BYTES bytes so that changes stay in this process, and read all of it."""
    path.write_bytes(b"a" * BYTES)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    assert mapped[:] == b"a" * BYTES
    return mapped


def test_pages_are_released_and_read_again(tmp_path: Path) -> None:
    path, other = tmp_path / "a file", tmp_path / "a file 2"
    mapped, others = map_file(path), map_file(other)
    assert resident_bytes(path) == BYTES
    release_pages(path)
    assert resident_bytes(path) == 0
    assert resident_bytes(other) == BYTES
    assert mapped[:] == others[:] == b"a" * BYTES


def test_a_mapping_that_was_changed_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    mapped = map_file(path)
    mapped[-1:] = b"b"
    release_pages(path)
    assert mapped[:] == b"a" * (BYTES - 1) + b"b"


def test_a_file_that_is_not_mapped_or_missing_is_no_error(tmp_path: Path) -> None:
    release_pages(tmp_path / "missing")


def test_the_weights_of_loaded_graphs_are_not_resident(tmp_path: Path) -> None:
    bundle = open_bundle(tiny_bundle("transformer", tmp_path, Precision.INT8))
    [weights] = bundle.weight_files
    graphs = open_graphs(bundle, EngineConfig(threads=1))
    assert f" {weights.resolve()}\n" in Path("/proc/self/smaps").read_text(encoding="utf-8")
    assert resident_bytes(weights) == 0
    del graphs
