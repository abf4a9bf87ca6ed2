"""Decides where worker groups run that leave it open."""

from serving.bundle.opening import open_manifest
from serving.engine.config import Device
from serving.engine.graphs.session import check_device
from serving.errors import DeviceError
from serving.server_config import ServerConfig, WorkerGroup


def with_devices(config: ServerConfig) -> ServerConfig:
    """Return the configuration without `device: auto`. Its bundles have been checked."""
    return config.model_copy(update={"groups": tuple(map(_with_device, config.groups))})


def _with_device(group: WorkerGroup) -> WorkerGroup:
    if group.device != "auto":
        return group
    device: Device = "cuda"
    try:
        for folder in group.bundles:
            check_device("cuda", open_manifest(folder).precision)
    except DeviceError:
        device = "cpu"
    return group.model_copy(update={"device": device})
