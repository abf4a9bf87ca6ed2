"""Records of replicas on the console, or where Ray Serve's own go."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.deployments.console import console, log_to_console
from serving.deployments.progress import StartProgress


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    ours = logging.getLogger("serving")
    before = [*ours.handlers]
    yield ours
    for handler in [handler for handler in ours.handlers if handler not in before]:
        ours.removeHandler(handler)
        handler.close()


def test_a_record_is_shown_whole(
    tmp_path: Path, logger: logging.Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    with console(tmp_path, StartProgress().write_line):
        log_to_console()
        try:
            raise ValueError("é" * 100_000 + " is the end")
        except ValueError:
            logger.exception("request %s failed", "r-1")
        # Not by the logger: a report that holds this could not be sent between pytest's processes.
        told = {"msg": "one \ud800 line", "levelname": "WARNING"}
        logger.handlers[-1].handle(logging.makeLogRecord(told))

    shown = capfd.readouterr().err
    assert shown.split("is the end")[0].endswith("é ")
    assert "WARNING one \\ud800 line\n" in shown


def test_nobody_waits_for_a_console_that_is_gone(
    tmp_path: Path, logger: logging.Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    with console(tmp_path, StartProgress().write_line):
        log_to_console()
    logging.raiseExceptions, raises = False, logging.raiseExceptions
    logger.error("nobody hears this")
    logging.raiseExceptions = raises

    assert capfd.readouterr().err == ""


def test_on_a_cluster_records_go_with_ray_serves(logger: logging.Logger) -> None:
    own = logging.NullHandler()
    logging.getLogger("ray.serve").addHandler(own)

    log_to_console()

    logging.getLogger("ray.serve").removeHandler(own)
    assert own in logger.handlers
