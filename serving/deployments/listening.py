"""The addresses at which the server listens, and their URLs."""

import os
import socket
from dataclasses import dataclass

from serving.errors import AttendantError

_EVERY_ADDRESS = {
    "0.0.0.0": ("127.0.0.1", "every IPv4 address of this machine"),
    "::": ("::1", "every address of this machine"),
}


@dataclass(frozen=True)
class Listening:
    """A port and a numeric address of this machine, or the one that stands for all addresses."""

    address: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Return the URL of the server on this machine."""
        address, _ = _EVERY_ADDRESS.get(self.address, (self.address, ""))
        return f"{self.scheme}://{join_address(address, self.port)}"

    def __str__(self) -> str:
        if self.address not in _EVERY_ADDRESS:
            return self.url
        _, everywhere = _EVERY_ADDRESS[self.address]
        return f"{self.url} and {everywhere} ({join_address(self.address, self.port)})"


def listening_at(host: str, port: int) -> Listening:
    """Return the address of a host and port; port 0 is any free one.

    Raises AttendantError if something listens there already: HAProxy would share the port.
    """
    try:
        family, address = _resolve(host)
        is_dual = address == "::" and socket.has_dualstack_ipv6()
        with socket.create_server((address, port), family=family, dualstack_ipv6=is_dual) as server:
            return Listening(address, server.getsockname()[1])
    except (OSError, ValueError) as error:
        place = join_address(_without_brackets(host), port)
        message = (
            f"cannot listen on {place}: {_reason(error)}; --port and --host give another place"
        )
        raise AttendantError(message) from None


def operations_at(host: str, port: int | None, public: Listening) -> Listening:
    """Return the address of the operations port: by default the one after the public port, or any
    free one if that is taken.
    """
    if port is not None:
        return listening_at(host, port)
    try:
        return listening_at(host, public.port + 1)
    except AttendantError:
        return listening_at(host, 0)


def join_address(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _resolve(host: str) -> tuple[socket.AddressFamily, str]:
    """Return one address of a host, IPv4 if it has one: every client can reach that."""
    addresses = socket.getaddrinfo(_without_brackets(host), None, type=socket.SOCK_STREAM)
    addresses.sort(key=lambda entry: entry[0] != socket.AF_INET)
    family, _, _, _, (address, *rest) = addresses[0]
    if rest[1:] and rest[2]:
        raise ValueError("HAProxy cannot listen on an address of one link only")
    return family, str(address)


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _reason(error: OSError | ValueError) -> str:
    """Return the system's message, without the address that Python adds."""
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)
