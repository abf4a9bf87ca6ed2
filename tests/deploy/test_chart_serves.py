"""A real server with the files, arguments and probes of the chart's pod."""

import os
import shutil
import signal
import ssl
import threading
from pathlib import Path

import httpx
import pytest
import yaml
from click.testing import CliRunner

from serving.cli import main
from tests.certificates import write_certificate
from tests.deploy.chart_reference import CHART
from tests.deploy.go_templates import Chart
from tests.deploy.rendered import pod_specs
from tests.served import (
    STOP_TIMEOUT_SECONDS,
    attendant,
    eventually,
    free_port,
    int8_bundle,
    read_lines,
    url_of,
)

MOUNT_PATH = "/etc/attendant"

pytestmark = pytest.mark.full


def create_key(path: Path) -> str:
    return CliRunner().invoke(main, ["keys", "create", "a", "--file", str(path)]).output.strip()


def update_volume(volume: Path, version: str, files: dict[str, Path]) -> None:
    """Write files as a kubelet does: all at once, by a link to a folder of this version."""
    (volume / version).mkdir(parents=True)
    for name, source in files.items():
        shutil.copy(source, volume / version / name)
        if not (volume / name).is_symlink():
            (volume / name).symlink_to(f"..data/{name}")
    (volume / "..data_tmp").symlink_to(version)
    (volume / "..data_tmp").rename(volume / "..data")


def test_a_pod_of_the_chart_serves_and_takes_up_keys_that_change(tmp_path: Path) -> None:
    port, operations_port = free_port(), free_port()
    bundle = int8_bundle("near", "transformer", tmp_path)
    group = {"bundles": [str(bundle)], "cpus_per_replica": 1, "engines": 1, "threads": 1}
    server = {"port": port, "operations_port": operations_port, "groups": [group]}
    secrets = {"keys": {"existingSecret": "keys"}, "tls": {"existingSecret": "certificate"}}
    rendered = Chart(CHART).render({"server": yaml.safe_dump(server), **secrets})
    [pod] = pod_specs(yaml.safe_load(rendered["deployment.yaml"]))
    [container] = pod["containers"]
    volume = tmp_path / "volume"
    text = yaml.safe_load(rendered["configmap.yaml"])["data"]["server.yaml"]
    (tmp_path / "server.yaml").write_text(text.replace(MOUNT_PATH, str(volume)))
    certificate, certificate_key = write_certificate(tmp_path / "tls")
    files = {
        "server.yaml": tmp_path / "server.yaml",
        "tls.crt": certificate,
        "tls.key": certificate_key,
        "keys.json": tmp_path / "keys.json",
    }
    key = create_key(files["keys.json"])
    update_volume(volume, "..first", files)

    with attendant(*(word.replace(MOUNT_PATH, str(volume)) for word in container["args"][1:])) as (
        process
    ):
        url_of(process)
        reader = threading.Thread(target=read_lines, args=(process, []))
        reader.start()
        try:
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container[name]["httpGet"]
                assert probe["port"] == "operations"
                url = f"http://127.0.0.1:{operations_port}{probe['path']}"
                assert httpx.get(url).status_code == 200
            url = f"https://localhost:{port}/v1/models"
            with httpx.Client(verify=ssl.create_default_context(cafile=certificate)) as client:

                def status_with(key: str) -> int:
                    headers = {"Authorization": f"Bearer {key}"}
                    return client.get(url, headers=headers).status_code

                assert client.get(url).status_code == 401
                assert status_with(key) == 200
                files["keys.json"] = tmp_path / "other.json"
                other_key = create_key(files["keys.json"])
                update_volume(volume, "..second", files)
                assert eventually(lambda: status_with(other_key) == 200)
                assert status_with(key) == 401
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=STOP_TIMEOUT_SECONDS)
            reader.join()
    assert process.returncode == 0
