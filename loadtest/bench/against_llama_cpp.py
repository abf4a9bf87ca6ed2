"""Compares the engine with llama-cpp-python: one request at a time, by turns, on the same cores.

    python -m loadtest.bench.against_llama_cpp BUNDLE MODEL.gguf --python OTHER/bin/python

Each engine is a process with so many threads, and waits while the other has its turn. The same ids
go in, as many come out, greedily. Both speak token ids here, without text and without HTTP, which
is why requests are not made as the service makes them. On cores that others use too the best turn
says most.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.pipelines.loading import ModelParts
from serving.request import FailedEvent, GenerationRequest, TokenEvent

WORKER = Path(__file__).with_name("llama_cpp_worker.py")
TEXT = "The history of the city begins long before the first written records of it. "
SPARE = 16  # positions of llama.cpp's context beyond those that are used


@dataclass(frozen=True)
class Turn:
    """Holds the times of one request: seconds to the first token, and of the others."""

    first: float
    rest: float
    ids: list[int]


class Player:
    """Runs one engine in a process of its own."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.turns: list[Turn] = []
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def play(self, prompt: list[int], num_tokens: int) -> Turn:
        """Run one request. Raises RuntimeError where the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = json.dumps({"prompt": prompt, "tokens": num_tokens})
        print(order, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with code {self._process.wait()}")
        return Turn(**json.loads(line))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def summary(self, num_prompt: int) -> dict[str, Any]:
        num_rest = len(self.turns[0].ids) - 1
        decode = [num_rest / turn.rest for turn in self.turns]
        prefill = [num_prompt / turn.first for turn in self.turns]
        return {
            "name": self.name,
            "decode_tokens_per_second": {"best": max(decode), "median": median(decode)},
            "prefill_tokens_per_second": {"best": max(prefill), "median": median(prefill)},
        }


@click.command(context_settings={"show_default": True})
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("gguf", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--python", "interpreter", required=True, help="Of an environment with llama_cpp.")
@click.option("--threads", type=click.IntRange(1), default=2)
@click.option("--prompt-tokens", type=click.IntRange(1), default=128)
@click.option("--tokens", type=click.IntRange(2), default=128, help="Generated in each turn.")
@click.option("--turns", type=click.IntRange(1), default=8, help="Of each engine.")
def main(
    bundle: Path,
    gguf: Path,
    interpreter: str,
    threads: int,
    prompt_tokens: int,
    tokens: int,
    turns: int,
) -> None:
    """Compare BUNDLE with llama-cpp-python and the file GGUF: tokens a second, as JSON."""
    prompt = _prompt(bundle, prompt_tokens)
    context = str(prompt_tokens + tokens + SPARE)
    own = [sys.executable, "-m", "loadtest.bench.against_llama_cpp", "serve"]
    players = [
        Player("attendant", [*own, str(bundle), str(threads)]),
        Player("llama.cpp", [interpreter, str(WORKER), str(gguf), str(threads), context]),
    ]
    try:
        for player in players:
            player.play(prompt, tokens)  # warm
        for _ in range(turns):
            for player in players:
                player.turns.append(player.play(prompt, tokens))
    finally:
        for player in players:
            player.stop()
    click.echo(json.dumps(_report(players, prompt_tokens), indent=2))


def _report(players: list[Player], num_prompt: int) -> dict[str, Any]:
    """Report both and how many times as fast ours is: the median over neighbouring turns."""
    ours, theirs = (player.turns for player in players)
    pairs = list(zip(ours, theirs, strict=True))
    same = sum(a == b for a, b in zip(ours[0].ids, theirs[0].ids, strict=True))
    return {
        "players": [player.summary(num_prompt) for player in players],
        "decode_ratio": median(b.rest / a.rest for a, b in pairs),
        "prefill_ratio": median(b.first / a.first for a, b in pairs),
        "same_tokens": f"{same} of {len(ours[0].ids)}",
    }


def _prompt(bundle: Path, length: int) -> list[int]:
    ids = ModelParts.open(bundle).tokenizers.target.encode(TEXT)
    return (ids * (length // len(ids) + 1))[:length]


def _serve(bundle: str, threads: str) -> None:
    """Answer on our side by the bare engine, which keeps nothing of earlier prompts either."""
    config = EngineConfig(threads=int(threads), slots=1, prefix_cache_bytes=0)
    engine = ModelParts.open(Path(bundle)).engine(config)
    for number, line in enumerate(sys.stdin):
        order = json.loads(line)
        request = GenerationRequest(
            str(number),
            prompt_ids=tuple(order["prompt"]),
            max_new_tokens=order["tokens"],
            is_whole=True,
            ignore_eos=True,
        )
        print(json.dumps(_run(engine, request)), flush=True)


def _run(engine: Engine, request: GenerationRequest) -> dict[str, Any]:
    started = time.perf_counter()
    ids, times = [], []
    engine.submit(request)
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, FailedEvent):
                raise event.error
            if isinstance(event, TokenEvent):
                ids.append(event.token_id)
                times.append(time.perf_counter())
    return {"first": times[0] - started, "rest": times[-1] - times[0], "ids": ids}


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _serve(*sys.argv[2:])
    else:
        main()
