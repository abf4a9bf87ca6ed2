"""Signals are remembered and waited for; no line of other code is interrupted by one."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from serving.deployments.process_tree import ProcessWatch
from serving.deployments.stop_signals import STOP_SIGNALS, Stopped, StopSignals


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield StopSignals()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_the_first_signal_counts_once_it_is_waited_for(
    signals: StopSignals, number: signal.Signals
) -> None:
    watch = ProcessWatch()
    watch.add_file(signals, signals.raise_stopped)
    signals.raise_stopped()
    for each in (number, *STOP_SIGNALS):
        os.kill(os.getpid(), each)  # nothing is raised here
    with pytest.raises(Stopped) as stopped:
        watch.run(lambda: None, None)
    assert stopped.value.number == number


def test_a_signal_ends_the_wait_for_something_else(signals: StopSignals) -> None:
    watch = ProcessWatch()
    watch.add_file(signals, signals.raise_stopped)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(Stopped):
        watch.run(lambda: None, None, until=Future())
    timer.join()


def test_without_a_signal_what_is_waited_for_ends_the_wait(signals: StopSignals) -> None:
    watch = ProcessWatch()
    watch.add_file(signals, signals.raise_stopped)
    future: Future[int] = Future()
    threading.Timer(0.1, future.set_result, (3,)).start()
    watch.run(lambda: None, None, until=future)
    watch.run(lambda: None, None, until=future)  # it may be done before
    assert future.result() == 3


def test_what_nohup_has_ignored_stays_ignored() -> None:
    code = (
        "import os, signal; from serving.deployments.stop_signals import StopSignals;"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); signals = StopSignals();"
        "os.kill(os.getpid(), signal.SIGHUP); assert signals.number is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
