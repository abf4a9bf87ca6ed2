"""The Compose project, under the schema of the Compose specification."""

import json
import re
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import yaml

from serving.server_config import read_config
from tests.deploy.rendered import ROOT

FOLDER = ROOT / "deploy"


@pytest.fixture
def project() -> Any:
    """Return the project as Compose reads it without variables of its own."""
    text = (FOLDER / "compose.yaml").read_text()
    return yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def test_compose_accepts_it_and_nothing_else(project: Any) -> None:
    path = "builtin_schemas/vendor/compose-spec.json"
    schema = json.loads(files("check_jsonschema").joinpath(path).read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(project)
    project["services"]["attendant"]["imagee"] = "x"
    assert not validator.is_valid(project)


def test_every_file_it_mounts_is_there(project: Any) -> None:
    volumes = [v for service in project["services"].values() for v in service["volumes"]]
    sources = [volume.split(":")[0] for volume in volumes]
    mounted = [FOLDER / source for source in sources if source not in project["volumes"]]
    assert len(mounted) == 6
    assert [path for path in mounted if not path.is_file()] == []


def test_what_survives_a_restart_is_in_a_volume(project: Any) -> None:
    service = project["services"]["attendant"]
    assert "state:/home/attendant" in service["volumes"] and "state" in project["volumes"]
    assert not any(place.startswith("/home") for place in service["tmpfs"])


def test_the_container_serves_and_is_scraped_at_the_port(project: Any) -> None:
    service = project["services"]["attendant"]
    inside = read_config(FOLDER / service["volumes"][0].split(":")[0])
    assert (inside.host, inside.port) == ("0.0.0.0", 8000)
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["read_only"] is True
    scraping = yaml.safe_load((FOLDER / "prometheus/prometheus.yml").read_text())
    assert scraping["scrape_configs"][0]["static_configs"] == [{"targets": ["attendant:8000"]}]
