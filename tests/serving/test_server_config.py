"""The server's configuration: everything wrong with it is told at once."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from serving.errors import ConfigError
from serving.server_config import ServerConfig, WorkerGroup, read_config


def test_bundle_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("port: 9000\ngroups:\n- {bundles: [a, /b], replicas: 2, slots: 8}\n")

    config = read_config(path)

    [group] = config.groups
    assert (config.host, config.port) == ("127.0.0.1", 9000)
    assert group.bundles == (tmp_path / "a", Path("/b"))
    assert (group.name, group.replicas, group.slots, group.device) == ("default", 2, 8, "auto")


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("prot: 1\nport: x\ngroups:\n- {bundles: [], replicas: 0, nmae: a}\n")

    with pytest.raises(ConfigError) as caught:
        read_config(path)

    told = {problem.partition(":")[0] for problem in caught.value.problems}
    assert told == {"prot", "port", "groups.0.bundles", "groups.0.replicas", "groups.0.nmae"}


_CANARIES = ", ".join(f"{{name: {name}, bundles: [a], canary_percent: 60}}" for name in "bc")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not YAML"),
        ("[]", "the file"),
        ("groups: []", "at least one group"),
        ("groups: [{bundles: [a]}, {bundles: [b]}]", "names must differ"),
        ("groups: [{bundles: [a], replicas: 2, autoscaling: {max_replicas: 3}}]", "not both"),
        ("groups: [{bundles: [a], autoscaling: {min_replicas: 4, max_replicas: 3}}]", "more than"),
        ("groups: [{bundles: [a], autoscaling: {}}]", "max_replicas"),
        ("groups: [{bundles: [a]}]\nhots: b\nport: -1", "port.*hots"),
        ("groups: [{bundles: [a], canary_percent: 5}]", "the first group is the one"),
        (f"groups: [{{bundles: [a]}}, {_CANARIES}]", "more than 100 percent"),
        ("tls: {certificate: a}\ngroups: [{bundles: [a]}]", "tls.key"),
        (None, "No such file"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "server.yaml"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError, match=problem):
        read_config(path)


def test_files_beside_the_configuration_are_relative_to_it(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(
        "tls: {certificate: c.pem, key: /k.pem}\naccess: {operators: o.json}\n"
        "groups: [{bundles: [a]}]\n"
    )
    config = read_config(path)
    assert config.tls is not None
    assert (config.tls.certificate, config.tls.key) == (tmp_path / "c.pem", Path("/k.pem"))
    assert config.access.operators == tmp_path / "o.json"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("state: state\n", "{folder}/state"),
        ("state: /var/lib/attendant\n", "/var/lib/attendant"),
        ("state: postgresql://u:p@h/d\n", "postgresql://u:p@h/d"),
        ("", None),
    ],
)
def test_state_is_a_url_or_a_folder_relative_to_the_file(
    tmp_path: Path, text: str, place: str | None
) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(f"{text}groups: [{{bundles: [a]}}]\n")
    assert read_config(path).state == (place and place.format(folder=tmp_path))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("state_dir: a\ngroups: [{bundles: [a]}]", "state_dir is called state now"),
        ("groups: [{bundles: [a], state_dir: a}]", "groups.0: .*state_dir is called state now"),
        ("state: ''\ngroups: [{bundles: [a]}]", "state: String should have at least 1 character"),
        ("groups: [{bundles: [a], state: b}]", "state is the whole server's"),
    ],
)
def test_wrong_state_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_config(path)


SECRET = "postgresql://u:hunter2@h/d"


@pytest.mark.parametrize(
    "text",
    [
        f"state: {SECRET}\ngroups: [{{bundles: [a], replicas: 0}}]",
        f"state: {SECRET}: x\ngroups: [{{bundles: [a]}}]",
        f"state: [{SECRET}]\ngroups: [{{bundles: [a]}}]",
        f"state: {SECRET}\ngroups: 3",
        f"stat: {SECRET}\ngroups: [{{bundles: [a]}}]",
    ],
)
def test_problems_never_show_a_password(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert "hunter2" not in str(caught.value)


def test_neither_does_a_configuration_that_is_printed() -> None:
    config = ServerConfig(state=SECRET, groups=(WorkerGroup(bundles=(Path("a"),)),))
    group = WorkerGroup(bundles=(Path("a"),), state=SECRET)
    assert config.state == group.state == SECRET
    assert "hunter2" not in f"{config!r} {config} {group!r} {group}"
    with pytest.raises(ValidationError) as caught:
        WorkerGroup.model_validate({"state": SECRET, "bundles": []})
    assert "hunter2" not in str(caught.value)
