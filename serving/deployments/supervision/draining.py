"""Ends the service so that every request in progress is answered, one way or another."""

import time
from collections.abc import Callable

from serving.deployments.front.haproxy import HAProxy

_END_SECONDS = 5.0


def drain(proxy: HAProxy, seconds: float, end_requests: Callable[[float], None]) -> None:
    """Take no new requests, wait for those in progress, then end what is left in the shapes of our
    protocols.

    end_requests: has replicas do so, within so many seconds.
    """
    try:
        proxy.refuse()
        if not _has_become_idle(proxy, seconds):
            end_requests(_END_SECONDS)
            _has_become_idle(proxy, _END_SECONDS)
    except OSError:
        pass  # HAProxy is gone, and with it everyone who waited


def _has_become_idle(proxy: HAProxy, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while proxy.num_in_progress():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
