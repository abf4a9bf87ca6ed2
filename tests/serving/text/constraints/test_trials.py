"""Grammars that would take hours, all memory or the whole process are refused, soon and by name."""

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from serving.errors import EngineError, RequestError
from serving.text.constraints import grammar_compiler
from serving.text.constraints.grammar_compiler import MAX_FORCED_BYTES
from serving.text.constraints.grammars import Grammars
from serving.text.tokenizer import Tokenizer
from tests.serving.text.tokenizers_for_tests import write_byte_tokenizer

ROOT = Path(__file__).parents[4]
STOP = 2
BOMBS = """
def chained(name, count):
    rules = [f"{name}{i}: {name}{i + 1}" for i in range(count)]
    return "\\n".join([f"start: {name}0", *rules, f'{name}{count}: "x"'])

CHAINED = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(1200)} | {"d1200": {}}
LONG = {"type": "string", "pattern": "^(a{1000}){1000}$"}
BOMBS = {
    "regex": [
        "(a{1000}){1000}",
        "(((a{1000}){1000}){1000}){1000}",
    ],
    "json_schema": [
        LONG,
        {"type": "integer", "multipleOf": 99999989},
        {"type": "integer", "allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]},
        {"allOf": [{"type": "string", "pattern": ".*a.{%d}" % i} for i in range(30)]},
        {"type": "object", "properties": {"%04x" % i: {} for i in range(5000)}},
        {"$ref": "#/$defs/d0", "$defs": CHAINED},
    ],
    "lark": [
        "start: A\\nA: /(a{1000}){1000}/",
        'start: A\\nA: "x"{1000000}',
        'start: %json {"type": "integer", "multipleOf": 99999989}',
        chained("A", 4000),
        chained("a", 4000),
    ],
}
"""
MEASURE = """
import json, resource, sys
from pathlib import Path
from serving.errors import RequestError
from serving.text.constraints.grammars import Grammars
from serving.text.tokenizer import Tokenizer

grammars = Grammars(Tokenizer(Path(sys.argv[1])), (2,))
grammars.json_schema({"minItems": 10**6, "type": "array", "items": {"maxLength": 10**6}})
before, used = (resource.getrusage(resource.RUSAGE_SELF) for _ in "ab")
found = []
for kind, values in BOMBS.items():
    for value in values[:: int(sys.argv[2])]:
        try:
            getattr(grammars, kind)(value, field="guided")
        except RequestError as error:
            found.append([error.field, error.message])
        else:
            found.append(["accepted", repr(value)[:60]])
after = resource.getrusage(resource.RUSAGE_SELF)
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "found": found,
    "seconds": after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime,
    "seconds_of_trials": children.ru_utime + children.ru_stime,
    "kilobytes": after.ru_maxrss - before.ru_maxrss,
    "kilobytes_of_a_trial": children.ru_maxrss,
}))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ("the quick brown fox jumps over the lazy dog",) * 3
    return write_byte_tokenizer(tmp_path_factory.mktemp("t") / "tokenizer.json", texts, 290)


@pytest.mark.parametrize(
    "step", [pytest.param(5, id="few"), pytest.param(1, id="all", marks=pytest.mark.full)]
)
def test_no_grammar_takes_long_or_much_or_the_process(path: Path, step: int) -> None:
    command = [sys.executable, "-c", BOMBS + MEASURE, str(path), str(step)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    measured = json.loads(run.stdout)
    fields, messages = zip(*measured["found"], strict=True)
    assert {*fields} == {"guided"}, measured["found"]
    assert all(message.startswith("does not compile: ") for message in messages), messages
    # Of a processor's time, which does not depend on what else runs: half a second each, and as
    # much for another process to begin; one of these took 17 s, two had no end in sight.
    assert measured["seconds"] < 5
    assert measured["seconds_of_trials"] < 3 * len(messages)
    assert measured["kilobytes"] < 30_000
    assert measured["kilobytes_of_a_trial"] < 300_000


def test_after_one_that_was_refused_others_compile(path: Path) -> None:
    grammars = Grammars(Tokenizer(path), (STOP,))
    for _ in range(2):
        with pytest.raises(RequestError, match=r'nests too deep \(got "\(a\{1000'):
            grammars.regex("(a{1000}){1000}", field="guided_regex")
        grammars.regex("a{1000}")


def test_those_that_were_refused_leave_nothing_open(path: Path) -> None:
    grammars = Grammars(Tokenizer(path), (STOP,))
    grammars.regex("a")
    num_open = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(RequestError):
            grammars.regex("(a{1000}){1000}")
    assert len(os.listdir("/proc/self/fd")) <= num_open


def test_that_the_process_does_not_start_is_no_fault_of_the_grammar(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_compiler, "START", "raise SystemExit")
    with pytest.raises(EngineError, match="does not start"):
        Grammars(Tokenizer(path), (STOP,)).regex("a")


def test_what_a_grammar_forces_is_tokenized_as_far_as_it_is_needed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer(path)
    matcher = Grammars(tokenizer, (STOP,)).choices(["é" * 20_000]).start()
    texts: list[int] = []
    encode = tokenizer.encode_inside

    def count_texts(text: str) -> list[int]:
        texts.append(len(text.encode()))
        return encode(text)

    monkeypatch.setattr(tokenizer, "encode_inside", count_texts)
    mask = np.zeros(tokenizer.vocab_size, bool)
    matcher.fill_mask(mask)
    assert texts
    assert max(texts) <= MAX_FORCED_BYTES


def test_a_long_forced_text_has_the_tokens_of_the_tokenizer(path: Path) -> None:
    tokenizer = Tokenizer(path)
    text = "the lazy dog jumps over the quick brown é fox " * 60
    matcher = Grammars(tokenizer, (STOP,)).choices([text]).start()
    mask = np.zeros(tokenizer.vocab_size, bool)
    for expected in tokenizer.encode(text):
        matcher.fill_mask(mask)
        assert mask[expected]
        assert mask.sum() == 1 or expected == tokenizer.encode(text)[-1]
        matcher.accept(expected)


def test_the_process_ends_with_who_began_it(path: Path) -> None:
    grammars = Grammars(Tokenizer(path), (STOP,))
    grammars.regex("a")
    process = grammars._trials._process
    assert process is not None
    os.kill(process.pid, 0)
    del grammars
    gc.collect()
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.returncode is not None
