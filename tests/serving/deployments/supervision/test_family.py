"""No process outlives the run that has started it, whatever it does to be left alone."""

import subprocess
import sys

from tests.served import eventually
from tests.serving.deployments.parts import name_of

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
print(os.getpid(), flush=True)
time.sleep(60)
"""
RUN = f"""
import subprocess, sys
from serving.deployments.process_tree import family
with family():
    process = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
    print(process.stdout.readline().decode(), flush=True)
"""


def test_a_daemon_ends_with_the_run() -> None:
    run = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert eventually(lambda: not name_of(int(run.stdout)))
