"""Real servers that are stopped at chosen stages; `make stop-servers` has random ones."""

import signal
from pathlib import Path

import pytest

from tests.served import int8_bundle
from tests.serving.deployments.stopping import Stop, stopped

pytestmark = [pytest.mark.servers, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return [
        int8_bundle("writer", "llama", folder / "writer", context_length=8192),
        int8_bundle("tiny", "transformer", folder / "tiny"),
    ]


@pytest.mark.parametrize(
    "stop",
    [
        Stop("port open"),
        Stop("Ray starts", signal.SIGINT, to_group=True),
        Stop("loading", second=0.0),
        Stop("admitted"),
        Stop("announced", signal.SIGHUP, to_group=True),
        Stop("busy", signal.SIGINT, second=2.5, to_group=True),  # after the drain
    ],
    ids=lambda stop: stop.stage,
)
def test_whatever_is_accepted_ends_in_order(
    bundles: list[Path], tmp_path: Path, stop: Stop
) -> None:
    outcome = stopped(bundles, tmp_path, stop)
    assert outcome.faults == []
    if stop.stage == "busy":  # the others may come before any request: /ready admits, too
        ended = ("plain answer", "stream done", "stream ended by an error event")
        assert sum(outcome.counts[kind] for kind in ended)
