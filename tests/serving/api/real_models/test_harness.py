"""lm-evaluation-harness: its `local-completions` scores what transformers does with the weights.

Its requests are sent as it sends them; where it is installed, it sends them itself.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from transformers import PreTrainedModel

from tests.export.readers.hugging_face.language_models import BOS, EOS, log_probabilities
from tests.serving.api.openai.listening import listening
from tests.serving.api.real_models.applications import app_over
from tests.serving.api.real_models.random_llama import CONTEXT, NAME, VOCAB_SIZE, make_llama
from tests.tiny import byte_tokenizer

TOLERANCE = 1e-3  # nats, of a whole text


@dataclass(frozen=True)
class Sides:
    """A model in the library's hands, the folder it lies in, and where ours answers."""

    model: PreTrainedModel
    folder: Path
    url: str

    def complete(self, **fields: Any) -> list[dict[str, Any]]:
        body = {"model": NAME, "temperature": 0, "seed": 1234, **fields}
        response = httpx.post(f"{self.url}/v1/completions", json=body, timeout=60)
        assert response.status_code == 200, response.text
        choices: list[dict[str, Any]] = response.json()["choices"]
        return choices

    def continued(self, ids: list[int], count: int) -> list[int]:
        """The ids and the likeliest next ones, as transformers has them."""
        for _ in range(count):
            ids = [*ids, int(log_probabilities(self.model, ids)[-1].argmax())]
        return ids


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    model, theirs, bundle = make_llama(tmp_path_factory.mktemp("harness"))
    with listening(lambda: app_over(bundle)) as url:
        yield Sides(model, theirs, url)


def their_score(model: PreTrainedModel, ids: list[int], num_given: int) -> tuple[float, bool]:
    rows, chosen = log_probabilities(model, ids)[num_given - 1 : -1], ids[num_given:]
    total = float(rows[np.arange(len(chosen)), chosen].sum())
    return total, rows.argmax(-1).tolist() == chosen


def our_score(choice: dict[str, Any], num_given: int) -> tuple[float, bool]:
    """As the harness reads an answer: the last token is the one that it had to ask for."""
    logprobs = choice["logprobs"]
    values = logprobs["token_logprobs"][num_given:-1]
    top = logprobs["top_logprobs"][num_given:-1]
    return sum(values), all(
        value == max(others.values()) for value, others in zip(values, top, strict=True)
    )


@pytest.fixture(scope="module")
def scored(sides: Sides) -> list[tuple[list[int], int]]:
    """Ids, and how many of them are given: drawn ones and the likeliest, from short to all that
    fit, some with an end after them.
    """
    random = np.random.default_rng(0)
    drawn = [[BOS, *random.integers(3, VOCAB_SIZE, n).tolist()] for n in (1, 4, 20, CONTEXT - 2)]
    likely = [sides.continued(ids[:6], 5) for ids in drawn[:3]]
    long = [sides.continued([BOS, first], 30) for first in range(60, 75)]
    ending = [ids[: ids.index(EOS)] for ids in long if EOS in ids]
    result = [(ids, 1) for ids in drawn] + [(ids, len(ids) - 3) for ids in [*likely, *ending]]
    return [(ids, given) for ids, given in result if 0 < given < len(ids)]


@pytest.mark.parametrize("at_once", [1, 8])
def test_scores_of_token_ids_are_theirs(
    sides: Sides, scored: list[tuple[list[int], int]], at_once: int
) -> None:
    request = {"max_tokens": 1, "logprobs": 1, "echo": True}
    choices = []
    for start in range(0, len(scored), at_once):
        prompts = [ids for ids, _ in scored[start : start + at_once]]
        choices += sides.complete(prompt=prompts, **request)

    ours = [our_score(choice, given) for choice, (_, given) in zip(choices, scored, strict=True)]
    theirs = [their_score(sides.model, *item) for item in scored]
    assert [score for score, _ in ours] == pytest.approx([s for s, _ in theirs], abs=TOLERANCE)
    assert [likeliest for _, likeliest in ours] == [likeliest for _, likeliest in theirs]
    assert {likeliest for _, likeliest in ours} == {True, False}
    assert {choice["finish_reason"] for choice in choices} == {"length", "stop"}


def test_scores_of_texts_are_theirs(sides: Sides) -> None:
    """As with `tokenized_requests=False`: the start token is put there, and not told of."""
    text = "naïve – and “quoted”"
    ids = [BOS, *ids_of(text)]
    [choice] = sides.complete(prompt=text, max_tokens=1, logprobs=1, echo=True)

    total, likeliest = our_score(choice, 4)
    expected = their_score(sides.model, ids, 5)
    assert (total, likeliest) == (pytest.approx(expected[0], abs=TOLERANCE), expected[1])


def ids_of(text: str) -> list[int]:
    ids: list[int] = byte_tokenizer().encode(text).ids
    return ids


def test_it_stops_at_each_of_many_texts(sides: Sides) -> None:
    """Its tasks of code name five, and it adds the model's own end."""
    prompt = [BOS, *ids_of("A dog barks")]
    fields: dict[str, Any] = {"prompt": [prompt], "max_tokens": 24, "ignore_eos": True}
    [whole] = sides.complete(**fields)
    mark = next(item for item in whole["text"][1:] if item.isascii() and item.isprintable())
    until = ["\nclass", "\ndef", "\n#", "\nif", "\nprint", mark, "</s>"]
    [cut] = sides.complete(**fields, stop=until)

    assert cut["text"] == whole["text"].partition(mark)[0] and cut["finish_reason"] == "stop"


ANIMALS = ["dog", "cat", "horse", "owl", "frog", "whale", "ant", "bear"]
TASKS: dict[str, dict[str, Any]] = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "texts": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{question}}{{choices[answer]}}",
        "metric_list": [{"metric": "bits_per_byte"}, {"metric": "word_perplexity"}],
    },
    "answers": {
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{choices[answer]}}",
        "generation_kwargs": {"until": ["\n\n", "\nclass", "\ndef", "\n#", "\nif"]}
        | {"max_gen_toks": 16, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def write_tasks(folder: Path) -> None:
    rows = [
        {
            "question": f"Question {n}: the naïve {ANIMALS[n % 8]} and “its” friend, the",
            "choices": [f" {ANIMALS[(n * 3 + k * 5) % 8]}" for k in range(4)],
            "answer": n % 4,
        }
        for n in range(24)
    ]
    data = folder / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    source = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}}
    for name, task in TASKS.items():
        body = {"task": name, "test_split": "test", **source, **task}
        (folder / f"{name}.yaml").write_text(json.dumps(body))  # which is YAML too


def evaluated(folder: Path, model: str, arguments: str) -> dict[str, dict[str, float]]:
    """Return what the harness reports: task -> metric -> value."""
    output = folder / model
    command = [sys.executable, "-m", "lm_eval", "--model", model, "--model_args", arguments]
    command += ["--tasks", ",".join(TASKS), "--include_path", str(folder)]
    command += ["--output_path", str(output), "--log_samples", "--device", "cpu"]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    run = subprocess.run(command, env=offline, cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    [report] = output.glob("*/results_*.json")
    found: dict[str, dict[str, float]] = json.loads(report.read_text())["results"]
    return found


def generated_texts(folder: Path, model: str) -> list[Any]:
    [samples] = (folder / model).glob("*/samples_answers_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    return [row["resps"] for row in sorted(rows, key=lambda row: row["doc_id"])]


@pytest.mark.clients
@pytest.mark.timeout(900)
def test_the_harness_itself(sides: Sides, tmp_path: Path) -> None:
    if not (find_spec("lm_eval") and find_spec("accelerate")):
        pytest.skip("lm-evaluation-harness, or accelerate, is not installed")
    write_tasks(tmp_path)
    ours = evaluated(
        tmp_path,
        "local-completions",
        f"model={NAME},base_url={sides.url}/v1/completions,tokenizer={sides.folder}"
        f",max_length={CONTEXT},add_bos_token=True,num_concurrent=4",
    )
    theirs = evaluated(
        tmp_path, "hf", f"pretrained={sides.folder},dtype=float32,max_length={CONTEXT}"
    )

    for task, metric in (("choices", "acc,none"), ("choices", "acc_norm,none")):
        assert ours[task][metric] == theirs[task][metric]
    assert ours["texts"]["bits_per_byte,none"] == pytest.approx(
        theirs["texts"]["bits_per_byte,none"], abs=1e-4
    )
    assert math.isfinite(ours["texts"]["bits_per_byte,none"])
    assert generated_texts(tmp_path, "local-completions") == generated_texts(tmp_path, "hf")
