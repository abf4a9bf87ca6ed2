"""The password of a database stays in the configuration: no log, answer, metric or command line of
a real server has it, whether the database answers or not.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.deployments.process_tree import descendants
from tests.postgresql import NEEDS_POSTGRESQL, running_postgresql
from tests.served import int8_bundle, served_with_console

pytestmark = [pytest.mark.full, NEEDS_POSTGRESQL]
PASSWORD = "hunter2-xyzzy"
DOCUMENT: dict[str, Any] = {
    "files": {"file": ("a.txt", b"A dog runs.")},
    "data": {"target_lang": "FR"},
}


@pytest.fixture
def temporary_folder() -> Iterator[Path]:
    """A folder with a short path, for Ray's sockets and logs."""
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def test_nothing_that_a_server_writes_has_the_password(
    tmp_path: Path, temporary_folder: Path
) -> None:
    bundle = int8_bundle("translator", "transformer", tmp_path)
    environment = {**os.environ, "TMPDIR": str(temporary_folder)}
    pids: list[int] = []
    with running_postgresql() as database:
        config = {
            "groups": [{"bundles": [bundle], "cpus_per_replica": 1}],
            "access": {"log": "access.log"},
            "state": database.url(password=PASSWORD),
        }
        server = served_with_console(config, tmp_path, pids, environment=environment)
        with server as (url, lines), httpx.Client(base_url=url, timeout=60) as client:
            accepted = client.post("/v2/document", **DOCUMENT)
            assert accepted.status_code == 200
            database.stop()
            refused = client.post("/v2/document", **DOCUMENT)
            assert refused.status_code == 503
            metrics = client.get("/metrics")
            texts = {
                "answers": accepted.text + refused.text + metrics.text,
                "command lines": "".join(map(command_line, [*pids, *descendants(pids[0])])),
                "access log": (tmp_path / "access.log").read_text(),
            }
            files = written_files(temporary_folder)
    texts["console"] = "".join(lines)
    assert any(name.endswith((".log", ".err")) for name in files)
    assert [name for name, text in {**texts, **files}.items() if PASSWORD in text] == []


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def written_files(folder: Path) -> dict[str, str]:
    return {
        str(path): path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()
    }
