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


def test_it_builds_its_image(project: Any) -> None:
    build = project["services"]["attendant"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT and (context / build["dockerfile"]).is_file()


def test_grafana_has_no_account_and_listens_on_this_machine_alone(project: Any) -> None:
    grafana = project["services"]["grafana"]
    assert grafana["ports"] == ["127.0.0.1:3000:3000"]
    environment = grafana["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert not any("PASSWORD" in name for name in environment)


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


def test_a_database_takes_the_place_of_the_volume_where_the_variable_names_one(
    project: Any,
) -> None:
    environment = project["services"]["attendant"]["environment"]
    assert environment["ATTENDANT_STATE"] is None  # Compose takes the value of its own environment


def test_the_container_serves_at_its_port_and_is_watched_at_the_one_after(project: Any) -> None:
    service = project["services"]["attendant"]
    inside = read_config(FOLDER / service["volumes"][0].split(":")[0])
    assert (inside.host, inside.port) == ("0.0.0.0", 8000)
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["read_only"] is True
    assert service["healthcheck"]["test"][-1] == "http://127.0.0.1:8001/ready"
    scraping = yaml.safe_load((FOLDER / "prometheus/prometheus.yml").read_text())
    assert scraping["scrape_configs"][0]["static_configs"] == [{"targets": ["attendant:8001"]}]
