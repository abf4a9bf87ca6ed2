"""The server starts in places that are unlike a developer's machine, or says why it cannot.

A start of the real one takes long, so one shows all of it.
"""

import ctypes
import os
import resource
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from serving.bundle.manifest import Precision
from tests.served import attendant, served
from tests.serving.deployments.test_listening import has_ipv6
from tests.tiny import tiny_bundle

pytestmark = pytest.mark.servers

_DROP_FROM_BOUNDING_SET = 24
_CAP_SYS_RESOURCE = 24


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle("bahdanau", tmp_path_factory.mktemp("bundle"), Precision.INT8)


def allow_files(count: int) -> None:
    """From here on, for good, and for a root that may not raise it again: as in a container."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, _CAP_SYS_RESOURCE, 0, 0, 0)
    os.umask(0)


def folder_of_run(port: str) -> Path:
    """That of the server that listens on this port: others may run beside it."""
    [path] = [
        path for path in Path("/tmp").glob("attendant-*/haproxy.cfg") if port in listeners(path)
    ]
    return path.parent


def listeners(haproxy_configuration: Path) -> str:
    lines = haproxy_configuration.read_text().splitlines()
    return "\n".join(line.split()[1] for line in lines if line.split()[:1] == ["bind"])


def test_a_start_in_odd_surroundings(bundle: Path, tmp_path: Path) -> None:
    """Everything at once that used to keep it from starting, and more."""
    long = tmp_path / ("a" * (240 - len(str(tmp_path))))
    long.mkdir()
    nowhere = "127.0.0.1:9"
    odd = {
        "HOME": "/dev/null/home",
        "TMPDIR": str(long),
        "RAY_ADDRESS": nowhere,
        "RAY_JOB_CONFIG_JSON_ENV_VAR": '{"runtime_env": {"env_vars": {"A": "1"}}}',
        "RAY_RUNTIME_ENV_HOOK": "nobody.hook",
        "http_proxy": f"http://{nowhere}",
        "https_proxy": f"http://{nowhere}",
    }
    host = "::" if has_ipv6() else "0.0.0.0"
    config = {"host": host, "port": 0, "groups": [{"bundles": [bundle]}]}

    with served(
        config, tmp_path, environment={**os.environ, **odd}, preexec_fn=lambda: allow_files(1024)
    ) as url:
        port = url.rpartition(":")[2]
        own = folder_of_run(f":{port}")
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            body = {"q": "A dog runs.", "source": "en", "target": "fr"}
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: client.post("/translate", json=body), range(50)))
        answers.append(httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False))
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert stat.S_IMODE((own / "token").stat().st_mode) == 0o600
        open_to_others = listeners(own / "haproxy.cfg").split()

    assert f"[::]:{port}" in open_to_others or f"0.0.0.0:{port}" in open_to_others
    assert {answer.status_code for answer in answers} == {200}
    assert not own.exists()
    assert list(long.iterdir()) == []


def test_too_few_open_files(bundle: Path) -> None:
    process = attendant("serve", str(bundle), "--port", "0", preexec_fn=lambda: allow_files(256))
    _, told = process.communicate(timeout=60)
    assert process.returncode == 2
    [line] = told.splitlines()
    assert line.startswith("attendant: a process may open no more than 256 files")
