"""Keeps Ray Serve's server for calls between replicas on the loopback address.

It listens at every address, whatever Ray was told.
tests/serving/deployments/servers/test_deaths.py sees whether anything does.
"""

from typing import Any

import ray
from ray.serve._private import replica

_LOOPBACK = "127.0.0.1"
_add_port = replica.add_port_to_grpc_server


def stay_on_loopback() -> None:
    """Do so in this process, if its Ray runs on this machine alone."""
    if ray.util.get_node_ip_address() == _LOOPBACK:
        replica.add_port_to_grpc_server = _add_loopback_port


def _add_loopback_port(server: Any, address: str) -> int:
    port: int = _add_port(server, address.replace("[::]", _LOOPBACK))
    return port
