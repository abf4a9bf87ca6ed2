"""Find what would keep a configuration from being served, before Ray starts."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_manifest
from serving.deployments.haproxy_config import read_certificate
from serving.engine.config import Device
from serving.engine.runtime.session import check_device
from serving.errors import BundleError, ConfigError, DeviceError, StorageError
from serving.keys import read_keys
from serving.pipelines.loading import ModelParts
from serving.server_config import CONSOLE, Access, ServerConfig, Tls, WorkerGroup
from serving.storage import make_folder
from serving.tracing import problems_of_tracing


def problems_of(config: ServerConfig) -> list[str]:
    """Return a line for each problem."""
    problems = [*_access_problems(config.access), *_tls_problems(config.tls)]
    problems += [*_state_problems(config.state_dir), *problems_of_tracing(os.environ)]
    names: Counter[str] = Counter()
    for group in config.groups:
        bundles: list[Bundle] = []
        for path in group.bundles:
            try:
                bundles.append(ModelParts.open(path).bundle)
            except BundleError as error:
                problems += [f"{error.path}: {problem}" for problem in error.problems]
        if group.canary_percent is None:  # a canary has the same model names
            names.update(bundle.manifest.name for bundle in bundles)
        problems += _device_problems(group, bundles)
    problems += [
        f"model {name}: served {count} times" for name, count in names.items() if count > 1
    ]
    return problems


def _access_problems(access: Access) -> Iterator[str]:
    for path in filter(None, (access.keys, access.operators)):
        try:
            read_keys(path)
        except ConfigError as error:
            yield from (f"{error.path}: {problem}" for problem in error.problems)
    if access.log not in (None, CONSOLE) and not access.log.parent.is_dir():
        yield f"{access.log}: there is no such folder"


def _tls_problems(tls: Tls | None) -> Iterator[str]:
    try:
        if tls is not None:
            read_certificate(tls)
    except ConfigError as error:
        yield from (f"{error.path}: {problem}" for problem in error.problems)


def _state_problems(folder: Path | None) -> Iterator[str]:
    """Check a folder that was given; the default one is only made when it is needed."""
    if folder is not None:
        try:
            make_folder(folder)
        except StorageError as error:
            yield str(error)


def _device_problems(group: WorkerGroup, bundles: list[Bundle]) -> Iterator[str]:
    device = device_of(group, [bundle.manifest.precision for bundle in bundles])
    for bundle in bundles:
        try:
            check_device(device, bundle.manifest.precision)
        except DeviceError as error:
            yield f"{bundle.folder}: {error}"


def device_of(group: WorkerGroup, precisions: Iterable[Precision]) -> Device:
    """Return the group's device; where it is open, a GPU that can run all of its bundles, else the
    CPU.
    """
    if group.device != "auto":
        return group.device
    try:
        for precision in precisions:
            check_device("cuda", precision)
    except DeviceError:
        return "cpu"
    return "cuda"


def with_devices(config: ServerConfig) -> ServerConfig:
    """Return the configuration without `device: auto`. Its bundles have been checked."""
    return config.model_copy(update={"groups": tuple(map(_with_device, config.groups))})


def _with_device(group: WorkerGroup) -> WorkerGroup:
    precisions = [open_manifest(folder).precision for folder in group.bundles]
    return group.model_copy(update={"device": device_of(group, precisions)})
