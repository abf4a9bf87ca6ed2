"""A folder that appears under its name whole or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.bundle.manifest import MANIFEST_FILE
from serving.bundle.replacement import replace_bundle, restore_replaced_bundle


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Open a temporary folder beside ``folder`` that takes its place when the block succeeds.

    Only an earlier bundle is replaced. Raises FileExistsError where anything else is in the way.
    """
    restore_replaced_bundle(folder)
    if folder.exists() and not (folder / MANIFEST_FILE).is_file():
        raise FileExistsError(f"{folder} exists and is no bundle; it is left alone")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield temporary
        temporary.chmod(0o755)  # mkdtemp's is for its owner alone
        replace_bundle(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
