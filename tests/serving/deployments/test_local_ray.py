"""How Ray is started."""

import signal
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import utils

from serving.deployments import local_ray


def test_a_signal_while_ray_starts_is_handled_by_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray's handler ended the process with status 15 where another thread got the signal."""
    handlers = [signal.getsignal(signal.SIGTERM)]

    def init(**options: Any) -> None:
        utils.set_sigterm_handler(lambda number, frame: None)
        handlers.append(signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr(ray, "init", init)
    local_ray._init(SimpleNamespace(groups=[]))  # type: ignore[arg-type]

    assert handlers[0] == handlers[1] == signal.getsignal(signal.SIGTERM)
