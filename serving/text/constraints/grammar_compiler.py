"""Compiles one grammar with llguidance, within limits of its own; knows no requests."""

import contextlib
import json
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from serving.errors import EngineError

# A step of the engine waits for the masks of all rows. Half of llguidance's own limits or less: the
# slowest mask that they let an ambiguous grammar ask for took 60 ms, against 570 ms. 240 optional
# properties of a JSON object fit. A lexer state takes up to 2 kB.
STEP_LIMITS = LLParserLimits(
    max_items_in_row=1000,
    step_max_items=10_000,
    step_lexer_fuel=100_000,
    max_lexer_states=50_000,
    verbose_errors=False,
)
# Of a text that a grammar forces llguidance asks the tokens at every step, to take the first one:
# all of 65,000 characters took 95 ms each time.
MAX_FORCED_BYTES = 1000
MAX_SECONDS = 0.5  # of a processor's time; JSON with 240 optional properties takes 0.02
MAX_BYTES = 64 * 2**20  # one choice of 65,000 characters takes 36
# Half of what the threads that compile have at the least: what passes here does not overflow there.
STACK_BYTES = 2**20
START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from serving.text.constraints.grammar_compiler import main
main()
"""
TOO_LONG = f"it takes too long, more than {MAX_SECONDS:g} s"
TOO_LARGE = f"it takes too much memory, more than {MAX_BYTES >> 20} MiB, or nests too deep"


class NotCompiled(ValueError):
    """What llguidance says of a grammar that does not compile."""


class GrammarVocabulary:
    """A tokenizer as llguidance calls it.

    tokens: their bytes; none of special ones.
    """

    def __init__(self, tokens: Sequence[bytes], eos: int) -> None:
        self.table = tokens
        self.eos_token_id = eos
        self.bos_token_id = None
        self.special_token_ids = [token_id for token_id, text in enumerate(tokens) if not text]
        self.tokens = [text or f"<{token_id}>".encode() for token_id, text in enumerate(tokens)]

    def __call__(self, text: bytes) -> list[int]:
        """Return tokens that a text of exactly these bytes begins with."""
        return self.longest(truncate_forced_text(text))

    def longest(self, text: bytes) -> list[int]:
        """Return the longest tokens of exactly these bytes, as far as there are any."""
        ids: list[int] = []
        start = 0
        while start < len(text):
            lengths = range(min(len(text) - start, self._max_bytes), 0, -1)
            length = next((n for n in lengths if text[start : start + n] in self._id_of), None)
            if length is None:  # no token can write what comes next
                break
            ids.append(self._id_of[text[start : start + length]])
            start += length
        return ids

    @cached_property
    def _id_of(self) -> dict[bytes, int]:
        return {text: token_id for token_id, text in enumerate(self.table) if text}

    @cached_property
    def _max_bytes(self) -> int:
        return max(map(len, self._id_of), default=0)


def truncate_forced_text(text: bytes) -> bytes:
    """Return as much of a forced text as is worth tokenizing, to the end of a character."""
    end = MAX_FORCED_BYTES
    while len(text) > end and text[end] & 0xC0 == 0x80:  # inside a character of UTF-8
        end -= 1
    return text[:end]


def build_tokenizer(vocabulary: GrammarVocabulary) -> LLTokenizer:
    """Return the tokenizer that grammars are compiled for."""
    return LLTokenizer(TokenizerWrapper(vocabulary), eos_token=vocabulary.eos_token_id)


def compile_grammar(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    """Compile a grammar and compute its first mask. Raises NotCompiled."""
    matcher = LLMatcher(tokens, grammar, log_level=0, limits=STEP_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # some limits are reached only here
    if matcher.is_error():
        raise NotCompiled(matcher.get_error())
    return matcher


def try_grammar(tokens: LLTokenizer, grammar: str) -> None:
    """Compile a grammar and take a step: that a text which it forces is too long for the limits is
    found only then. Raises NotCompiled.
    """
    matcher = compile_grammar(tokens, grammar)
    allowed = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    allowed[tokens.eos_token] = 0
    if not allowed.any():
        return
    matcher.consume_token(int(allowed.argmax()))
    matcher.compute_bitmask()
    if matcher.is_error():
        raise NotCompiled(matcher.get_error())


class GrammarTrials:
    """Tries grammars in a process of its own, which starts with the first trial, and again after a
    limit has ended it.
    """

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
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
            answer = _ask(self._process, grammar)
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
        if not _ask(process, {"tokens": tokens, "eos": self._vocabulary.eos_token_id}):
            raise EngineError("the process that tries grammars does not start")
        return process


def _ask(process: subprocess.Popen[str], message: object) -> str:
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
    """Do nothing: there is no process to end."""


def main() -> None:
    """Answer every grammar, a line of JSON, with what is wrong with it, or with an empty text."""
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=_answer_all)
    thread.start()
    thread.join()


def _answer_all() -> None:
    settings = json.loads(sys.stdin.readline())
    vocabulary = [token.encode("latin-1") for token in settings["tokens"]]
    tokens = build_tokenizer(GrammarVocabulary(vocabulary, settings["eos"]))
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
