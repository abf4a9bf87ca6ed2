"""Decides where worker groups run that leave it open."""

from collections.abc import Iterable

from serving.bundle.manifest import Precision
from serving.bundle.opening import open_manifest
from serving.engine.config import Device
from serving.engine.runtime.session import check_device
from serving.errors import DeviceError
from serving.server_config import ServerConfig, WorkerGroup


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
