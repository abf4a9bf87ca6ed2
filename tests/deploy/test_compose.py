"""The Compose project, under the schema of the Compose specification."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.rendering import compose
from deploy.rendering.files import write
from serving.server_config import read_config
from tests.deploy.rendered import GROUP, ON_GPUS, SCALED, config


@pytest.fixture(scope="module")
def schema() -> Any:
    path = "builtin_schemas/vendor/compose-spec.json"
    return json.loads(files("check_jsonschema").joinpath(path).read_text())


@pytest.mark.parametrize(
    "server",
    [config(), config(GROUP, ON_GPUS), config(SCALED, bundles_volume="models")],
    ids=["one group", "GPUs", "scaled"],
)
def test_compose_accepts_it(server: Any, schema: Any) -> None:
    project = yaml.safe_load(compose.render(server)["compose.yaml"])
    jsonschema.Draft202012Validator(schema).validate(project)


def test_a_wrong_project_is_found(schema: Any) -> None:
    project = yaml.safe_load(compose.render(config())["compose.yaml"])
    project["services"]["attendant"]["imagee"] = "x"
    assert not jsonschema.Draft202012Validator(schema).is_valid(project)


def test_every_file_it_mounts_is_rendered(tmp_path: Path) -> None:
    write(tmp_path, compose.render(config()))
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    mounted = [
        volume.split(":")[0]
        for service in services.values()
        for volume in service["volumes"]
        if volume.startswith("./")
    ]
    assert len(mounted) == 6
    assert [path for path in mounted if not (tmp_path / path).is_file()] == []


def test_the_container_serves_and_is_scraped_at_the_port(tmp_path: Path) -> None:
    server = config(SCALED, ON_GPUS, bundles_volume="models")
    write(tmp_path, compose.render(server))
    service = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]["attendant"]
    inside = read_config(tmp_path / "server.yaml")
    assert (inside.host, inside.port, inside.groups) == ("0.0.0.0", 8123, server.groups)
    assert service["ports"] == ["127.0.0.1:8123:8123"]
    assert service["read_only"] is True
    assert "models:/models:ro" in service["volumes"]
    amounts = service["deploy"]["resources"]
    assert amounts["limits"] == {"cpus": "21", "memory": "21000m"}
    assert amounts["reservations"]["devices"][0]["count"] == 1
    scraping = yaml.safe_load((tmp_path / "prometheus/prometheus.yml").read_text())
    assert scraping["scrape_configs"][0]["static_configs"] == [{"targets": ["attendant:8123"]}]
