"""Answers what every target asks of a server's configuration, and refuses what a target cannot do.

It knows the configuration alone: nothing here is Kubernetes', Docker's or Ray's.
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from serving.errors import ConfigError
from serving.server_config import ServerConfig, WorkerGroup

CONFIG_PATH = "/etc/attendant/server.yaml"
COMMAND = ["attendant", "serve", "--config", CONFIG_PATH]
USER = 1000  # the image's own, who is not root
HOME = "/home/attendant"
WRITABLE = ("/tmp", HOME)  # Ray's and HAProxy's files, and what was measured of models
SHARED_MEMORY_MIB = 256  # Ray's object store holds requests and answers only


def check_placement(config: ServerConfig) -> None:
    """Check what a container runs of it. Raises ConfigError.

    Who renders is not who serves: nothing can be left to what this machine has.
    """
    problems = [problem for group in config.groups for problem in _problems_of(group)]
    if config.tls:
        problems.append("tls: in containers it is for the proxy or the Ingress before them")
    if config.deploy.bundles_volume and not problems and bundles_folder(config) == "/":
        problems.append("deploy.bundles_volume: the bundles have no folder in common")
    _raise(problems)


def check_pods(config: ServerConfig) -> None:
    """Check what holds where whole pods are scaled, as on plain Kubernetes. Raises ConfigError."""
    refuse_operators(config, "each pod would be changed by itself")
    scaled = {(group.autoscaling, group.replicas) for group in config.groups}
    problems = []
    if len(scaled) > 1 and any(group.autoscaling for group in config.groups):
        problems.append(
            "groups: a pod holds all groups, so that autoscaling must be the same for each; "
            "a RayService scales groups one by one"
        )
    _raise(problems)


def refuse_operators(config: ServerConfig, reason: str) -> None:
    """Refuse to let models be loaded where what one server is told reaches no other."""
    if config.access.operators:
        _raise([f"access.operators: {reason}; change the configuration and apply it"])


def refuse_canary_groups(config: ServerConfig) -> None:
    """Refuse what the server's own HAProxy does where there is none."""
    if any(group.canary_percent is not None for group in config.groups):
        _raise(["groups: canary_percent: Ray Serve cannot route by weight"])


def refuse_canary(config: ServerConfig, target: str) -> None:
    if config.deploy.canary:
        _raise([f"deploy.canary: {target} cannot route by weight; kubernetes and helm can"])


def bundles_folder(config: ServerConfig) -> str:
    """Return the deepest folder with all bundles in it."""
    parents = [bundle.parent.parts for group in config.groups for bundle in group.bundles]
    common = []
    for parts in zip(*parents, strict=False):
        if len({*parts}) > 1:
            break
        common.append(parts[0])
    return str(PurePath(*common))


def in_a_container(config: ServerConfig) -> dict[str, Any]:
    """Return the configuration as the server reads it there: who may connect is said outside."""
    value: dict[str, Any] = config.model_dump(
        mode="json",
        exclude_unset=True,
        exclude={"deploy"},
        warnings="none",  # a Helm chart's configuration has marks in place of numbers
    )
    return {**value, "host": "0.0.0.0"}


def in_a_pod(config: ServerConfig) -> dict[str, Any]:
    """Return the same where pods are scaled: one replica of each group in each of them."""
    value = in_a_container(config)
    for group in value["groups"]:
        group.pop("autoscaling", None)
    return value


def cpus(config: ServerConfig, scaled: bool) -> int:
    """Count the CPUs of all replicas; of one of each group that is scaled by pods."""
    return sum((group.cpus_per_replica or 1) * _count(group, scaled) for group in config.groups)


def memory_mib(config: ServerConfig, scaled: bool) -> int:
    return config.deploy.memory_mib * sum(_count(group, scaled) for group in config.groups)


def gpus(config: ServerConfig, scaled: bool) -> int:
    """Count whole GPUs: replicas that share one are in the same container."""
    shares = [gpus_of(group) * _count(group, scaled) for group in config.groups]
    return -int(-sum(shares) // 1)


def gpus_of(group: WorkerGroup) -> float:
    """Return what one replica has of a GPU."""
    if group.gpus_per_replica is not None:
        return group.gpus_per_replica
    return 1 if group.device == "cuda" else 0


def _count(group: WorkerGroup, scaled: bool) -> int:
    return 1 if scaled and group.autoscaling else group.max_replicas


def _problems_of(group: WorkerGroup) -> Iterator[str]:
    if group.cpus_per_replica is None:
        yield f"group {group.name}: cpus_per_replica: must be said where others run it"
    if group.device == "auto":
        yield f"group {group.name}: device: must be cpu or cuda where others run it"
    for bundle in group.bundles:
        if not bundle.is_absolute():
            yield f"group {group.name}: bundles: {bundle}: must be the path in the container"


def _raise(problems: list[str]) -> None:
    if problems:
        raise ConfigError("the configuration", problems)
