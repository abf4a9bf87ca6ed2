"""Tries grammars in a process of their own before the server compiles them.

A grammar of a few hundred characters can keep llguidance busy for hours, make it take all memory
there is, or overflow its stack, which ends the process: its own limits hold none of that. The
operating system's do.
"""

import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from serving.errors import EngineError
from serving.text.guides.compiling import NotCompiled, Vocabulary, prepare, try_grammar

MAX_SECONDS = 0.5  # of a processor's time; JSON with 240 optional properties takes 0.02
MAX_BYTES = 64 * 2**20  # one choice of 65,000 characters takes 36
# Half of what the threads that compile have at the least: what passes here does not overflow there.
STACK_BYTES = 2**20
START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from serving.text.guides.trials import main
main()
"""
TOO_LONG = f"it takes too long, more than {MAX_SECONDS:g} s"
TOO_LARGE = f"it takes too much memory, more than {MAX_BYTES >> 20} MiB, or nests too deep"


class Trials:
    """Runs the process, which begins with the first trial, and anew after a limit has ended it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._end: Callable[[], object] = _nothing

    def check(self, grammar: str) -> None:
        """Try a grammar. Raises NotCompiled, also for what reaches a limit. Any thread may ask."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._end()
                self._process = self._start()
            answer = _asked(self._process, grammar)
            if not answer:
                is_late = self._process.wait() == -signal.SIGPROF
                self._end()
                raise NotCompiled(TOO_LONG if is_late else TOO_LARGE)
        if error := json.loads(answer):
            raise NotCompiled(error)

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Rust's account of how it ended
            text=True,
            start_new_session=True,  # signals to the server's group are not for it: its pipe ends
        )
        self._end = weakref.finalize(self, _end, process)
        tokens = [token.decode("latin-1") for token in self._vocabulary.table]
        if not _asked(process, {"tokens": tokens, "eos": self._vocabulary.eos_token_id}):
            raise EngineError("the process that tries grammars does not start")
        return process


def _asked(process: subprocess.Popen[str], message: object) -> str:
    """Return the answer, a line of JSON; nothing if the process ends over it."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    except BrokenPipeError:
        return ""


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with contextlib.suppress(BrokenPipeError), process:  # closes its pipes, and waits
        pass


def _nothing() -> None:
    """There is no process to end."""


def main() -> None:
    """Answer every grammar, a line of JSON, with what is wrong with it, or with an empty text."""
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=_answer_all)
    thread.start()
    thread.join()


def _answer_all() -> None:
    found = json.loads(sys.stdin.readline())
    vocabulary = [token.encode("latin-1") for token in found["tokens"]]
    tokens = prepare(Vocabulary(vocabulary, found["eos"]))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        _limit_memory()
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        error = ""
        try:
            try_grammar(tokens, json.loads(line))
        except NotCompiled as refusal:
            error = str(refusal)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(error), flush=True)


def _limit_memory() -> None:
    """Let this process have so much more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])  # of data and stacks
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + MAX_BYTES, hard))
