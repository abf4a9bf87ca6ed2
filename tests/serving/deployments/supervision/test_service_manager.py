"""systemd is told what it has asked for, and nobody else is."""

import os
import socket
from pathlib import Path

import pytest

from serving.deployments.supervision.service_manager import ServiceManager

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("is_abstract", [False, True])
def test_it_is_told(is_abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"attendant-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name if is_abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name if is_abstract else name)
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")

        manager = ServiceManager()
        manager.tell("READY=1")

        systemd.settimeout(5)
        assert systemd.recv(100) == b"READY=1"
        assert manager.heartbeat_seconds == 30
        assert "NOTIFY_SOCKET" not in os.environ  # or Ray's processes would speak for us


def test_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    manager = ServiceManager()
    manager.tell("READY=1")
    assert manager.heartbeat_seconds is None


def test_one_that_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    ServiceManager().tell("READY=1")
