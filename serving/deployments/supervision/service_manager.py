"""Tells systemd, or whoever speaks its protocol, how the server is doing (sd_notify(3))."""

import os
import socket
from contextlib import suppress


class ServiceManager:
    """Is silent where nobody asked to be told. Processes started later are not asked either."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        microseconds = os.environ.pop("WATCHDOG_USEC", "")
        self.heartbeat_seconds = int(microseconds) / 2e6 if microseconds else None

    def tell(self, state: str) -> None:
        """Send a state, as READY=1. Whoever has stopped listening is not waited for."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door, suppress(OSError):
            door.setblocking(False)
            door.sendto(state.encode(), address)
