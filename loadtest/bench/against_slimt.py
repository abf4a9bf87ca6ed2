"""Compares Attendant with slimt on a model of Firefox Translations or Bergamot, by turns.

    python -m loadtest.bench.against_slimt BUNDLE FOLDER SENTENCES --python OTHER/bin/python

BUNDLE is what `attendant export FOLDER` made. Each engine is a process, and waits while the other
has its turn. Both get all sentences at once, so that each makes the batches it likes; slimt also
gets them one by one. What is counted is words of the source, as slimt 0.1.0 misses the ends of
sentences and says more.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

WORKER = Path(__file__).with_name("slimt_worker.py")


@dataclass(frozen=True)
class Measured:
    """Holds the seconds of one turn: on the clock, and of the processor."""

    seconds: float
    cpu_seconds: float


class Peer:
    """Runs an engine in a process that takes a turn for every line, and answers with its times."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.turns: list[Measured] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def take_turn(self) -> Measured:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            print(file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise click.ClickException(f"{self.name} has failed, see above")
        return Measured(**json.loads(answer))

    def close(self) -> None:
        self._process.communicate()


@click.command(context_settings={"show_default": True})
@click.argument("bundle", type=click.Path(path_type=Path, exists=True))
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("sentences", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--turns", type=click.IntRange(1), default=5, help="Of each, after one to warm up.")
@click.option("--slots", type=click.IntRange(1), default=128, help="Rows of Attendant's batch.")
@click.option("--cores", type=click.IntRange(1), default=1, help="Threads of each engine.")
@click.option(
    "--python", "interpreter", default=sys.executable, help="Of an environment with slimt."
)
def main(
    bundle: Path,
    folder: Path,
    sentences: Path,
    turns: int,
    slots: int,
    cores: int,
    interpreter: str,
) -> None:
    """Compare BUNDLE with slimt and the model in FOLDER: words a second and core."""
    num_words = len(sentences.read_text(encoding="utf-8").split())
    ours = [sys.executable, "-m", "loadtest.bench.texts", str(bundle), str(sentences)]
    theirs = [interpreter, str(WORKER), str(folder), str(sentences), str(cores)]
    peers = [
        Peer("attendant", [*ours, f"--threads={cores}", f"--slots={slots}"]),
        Peer("slimt", [*theirs, "all"]),
        Peer("slimt, one by one", [*theirs, "each"]),
    ]
    try:
        for turn in range(turns + 1):
            for peer in peers:
                measured = peer.take_turn()
                if turn:
                    peer.turns.append(measured)
    finally:
        for peer in peers:
            peer.close()
    click.echo(f"{num_words} words, {turns} turns, {cores} core(s); medians, then the best turn")
    for peer in peers:
        click.echo(_line(peer, peers[0], num_words / cores))


def _line(peer: Peer, ours: Peer, words_per_core: float) -> str:
    def rates(of: Callable[[Measured], float]) -> str:
        seconds = [of(turn) for turn in peer.turns]
        ratio = statistics.median(
            of(b) / of(a) for a, b in zip(ours.turns, peer.turns, strict=True)
        )
        middle, best = words_per_core / statistics.median(seconds), words_per_core / min(seconds)
        return f"{middle:7,.0f} {best:7,.0f} ({ratio:.2f} x)"

    clock, processor = rates(lambda turn: turn.seconds), rates(lambda turn: turn.cpu_seconds)
    return f"{peer.name:18} words/s per core {clock}; per second of processor {processor}"


if __name__ == "__main__":
    main()
