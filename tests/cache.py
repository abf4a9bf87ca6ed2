"""A cache on disk of checkpoints and bundles, so that workers and later runs share them.

It lies in ``build/test-cache``, in a folder named by the hash of everything that checkpoints and
bundles are made by; `make clean` removes it.
"""

import functools
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from models.checkpoint import Checkpoint
from serving.bundle.manifest import Precision

ROOT = Path(__file__).parent.parent
CACHE = ROOT / "build" / "test-cache"
SOURCES = ("export", "models", "serving", "tests/tiny.py", "tests/cache.py")
PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "tokenizers", "safetensors")
UNUSED_SECONDS = 3600  # after which what other sources made is removed: no run uses it any more


def export_cached(
    checkpoint: Checkpoint, folder: Path, precision: Precision, name: str | None = None
) -> None:
    """Write what ``export_checkpoint`` writes.

    A test that changes how bundles are written calls ``export_checkpoint`` itself.
    """

    def export(output: Path) -> None:
        from export.bundling.writer import export_checkpoint  # onnx_ir: slow to import

        export_checkpoint(checkpoint, output, precision, name or checkpoint.name)

    copy_cached((_digest(checkpoint), precision, name or checkpoint.name), folder, export)


def copy_cached(key: object, folder: Path, write: Callable[[Path], None]) -> None:
    """Copy to ``folder`` what ``write`` writes. It is called once for each ``repr`` of a key.

    A test may change its copy: copying takes 2 ms.
    """
    text = repr(key)
    assert " at 0x" not in text, f"the next run cannot know this key: {text}"
    entry = _entries() / hashlib.sha256(text.encode()).hexdigest()[:32]
    if not entry.exists():
        with TemporaryDirectory(dir=entry.parent) as temporary:
            write(Path(temporary) / "whole")
            with suppress(OSError):  # another worker was faster
                (Path(temporary) / "whole").rename(entry)
    shutil.copytree(entry, folder, dirs_exist_ok=True)


@functools.cache
def _entries() -> Path:
    """Return the folder of these sources and packages. Remove those of others."""
    digest = hashlib.sha256(repr([(name, version(name)) for name in PACKAGES]).encode())
    for path in sorted(path for source in SOURCES for path in _python_files(ROOT / source)):
        digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    folder = CACHE / digest.hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in CACHE.iterdir():
        if other.stat().st_mtime < time.time() - UNUSED_SECONDS:
            shutil.rmtree(other, ignore_errors=True)  # another worker may remove it, too
    return folder


def _python_files(source: Path) -> list[Path]:
    return [source] if source.is_file() else list(source.rglob("*.py"))


def _digest(checkpoint: Checkpoint) -> str:
    """Return a hash of everything that is exported of a checkpoint."""
    others = (checkpoint.conventions, checkpoint.quantised, checkpoint.notes, checkpoint.bits)
    digest = hashlib.sha256(f"{checkpoint.config.model_dump_json()} {others!r}".encode())
    for name, array in checkpoint.weights.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    for name, content in checkpoint.files.items():
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
