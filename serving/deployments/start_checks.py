"""Finds what would keep a configuration from being served, before Ray starts."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from serving.access.key_file import read_keys
from serving.bundle.opening import Bundle
from serving.deployments.devices import device_of
from serving.deployments.front.certificate import read_certificate
from serving.engine.runtime.session import check_device
from serving.errors import BundleError, ConfigError, DeviceError, StorageError
from serving.pipelines.loading import ModelParts
from serving.server_config import CONSOLE, Access, ServerConfig, Tls, WorkerGroup
from serving.storage.database import make_folder
from serving.tracing.exporting import problems_of_tracing


def problems_of(config: ServerConfig) -> list[str]:
    """Return a line for each problem, bundle by bundle."""
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
        if group.canary_percent is None:  # else its models are to have the names of others
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
    """Try a folder that was named: a server without state has no need of the usual one."""
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
