"""Our own side of a race: what it times is what the engine and the service answer."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loadtest.bench.compare_engines import Setup, own_process
from loadtest.bench.compare_inputs import read_inputs
from loadtest.bench.compare_own import IdsWorker
from serving.bundle.manifest import Precision
from serving.commands.translate import translate
from serving.version import VERSION
from tests.tiny import tiny_bundle

ALONE = {"engines": 1, "threads": 1}
TEXT = "a dog\na cat sleeps\nthe dog barks at the cat\n"


def settings(bundle: Path, prompt_tokens: int = 5) -> dict[str, Any]:
    given = read_inputs(bundle, TEXT, None, prompt_tokens)
    inputs = {"texts": given.even + given.file, "ids": given.ids}
    return {"bundle": str(bundle), "inputs": inputs, "cores": 1}


def play(worker: IdsWorker, **order: Any) -> tuple[list[Any], int]:
    times: list[None] = []
    plain = {"batch": 2, "beam": 1, "max_new_tokens": 6, "inputs": [0, 3]} | ALONE
    raw = worker.prepare({**plain, **order})(lambda: times.append(None))
    return worker.outputs(raw), len(times)


@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_do_not_depend_on_the_batch(beam: int, tmp_path: Path) -> None:
    worker = IdsWorker(settings(tiny_bundle("transformer", tmp_path, Precision.INT8)))
    at_once, num_first = play(worker, batch=None, beam=beam)
    assert num_first == 1
    assert len(at_once) == 3
    assert all(0 < len(ids) <= 6 for ids in at_once)
    assert play(worker, batch=1, beam=beam)[0] == at_once
    assert play(worker, inputs=[1, 3], beam=beam)[0] == at_once[1:]
    assert play(worker, beam=beam, engines=2)[0] == at_once
    assert play(worker, batch=None, beam=beam, engines=2)[0] == at_once


def test_prompts_are_as_long_as_asked_and_go_on_past_the_end(tmp_path: Path) -> None:
    given = settings(tiny_bundle("llama", tmp_path, Precision.FP32))
    prompts = given["inputs"]["ids"]
    assert len(prompts) == 32
    assert {len(prompt) for prompt in prompts} == {5}
    assert len({*map(tuple, prompts)}) > 16
    outputs, _ = play(IdsWorker(given), batch=3)
    assert [len(ids) for ids in outputs] == [6, 6, 6]


def test_a_turn_translates_as_the_command_does(tmp_path: Path) -> None:
    bundle = tiny_bundle("transformer-ssru", tmp_path, Precision.INT8)
    sentences = tmp_path / "sentences.txt"
    sentences.write_text(TEXT)
    inputs = tmp_path / "inputs.json"
    inputs.write_text(json.dumps(settings(bundle)["inputs"]))
    with own_process(
        "texts", Setup(bundle, "int8", "", inputs, frozenset(os.sched_getaffinity(0)), 0)
    ) as process:
        assert process.version() == VERSION
        orders = [{"inputs": [3, 6], "threads": 1, "engines": number} for number in (1, 2)]
        turns = [process.run(order) for order in orders]
    assert turns[0].outputs == turns[1].outputs
    assert min(turn.cpu_seconds for turn in turns) > 0
    words = ["--no-protect", "--model", str(bundle), str(sentences)]
    command = CliRunner().invoke(translate, words)
    assert command.exit_code == 0, command.output
    assert "".join(f"{text}\n" for text in turns[0].outputs) == command.stdout
