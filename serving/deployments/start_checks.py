"""Finds what would keep a configuration from being served, before Ray starts."""

from collections import Counter
from collections.abc import Iterator

from serving.bundle.opening import Bundle
from serving.deployments.devices import device_of
from serving.engine.graphs.session import check_device
from serving.errors import BundleError, DeviceError
from serving.pipelines.loading import ModelParts
from serving.server_config import ServerConfig, WorkerGroup


def problems_of(config: ServerConfig) -> list[str]:
    """Return a line for each problem, bundle by bundle."""
    problems: list[str] = []
    names: Counter[str] = Counter()
    for group in config.groups:
        bundles: list[Bundle] = []
        for path in group.bundles:
            try:
                bundles.append(ModelParts.open(path).bundle)
            except BundleError as error:
                problems += [f"{error.path}: {problem}" for problem in error.problems]
        names.update(bundle.manifest.name for bundle in bundles)
        problems += _device_problems(group, bundles)
    problems += [
        f"model {name}: served {count} times" for name, count in names.items() if count > 1
    ]
    return problems


def _device_problems(group: WorkerGroup, bundles: list[Bundle]) -> Iterator[str]:
    device = device_of(group, [bundle.manifest.precision for bundle in bundles])
    for bundle in bundles:
        try:
            check_device(device, bundle.manifest.precision)
        except DeviceError as error:
            yield f"{bundle.folder}: {error}"
