"""Has engines take turns at one workload: finds each one's best setting, measures rounds, and
compares what was said: the same tokens, or, against references, BLEU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

from loadtest.bench.race.players import Order, Player, Turn
from loadtest.bench.race.results import Agreement, Entry, Row
from loadtest.bench.race.roster import said
from loadtest.bench.race.workloads import Kind, Workload

SHOWN = (
    "max_batch_size",
    "is_sorted",
    "calls",
    "engines",
    "threads",
)  # what of an order is a choice
_MOST_OFF = 1e-4  # between the same number of two vectors
SEARCHED_INPUTS = 256  # of a file, at most, to find the best setting

Say = Callable[[str], None]


@dataclass(frozen=True)
class Candidate:
    """Pairs a process with a way to ask it."""

    player: Player
    order: Order

    @property
    def setting(self) -> str:
        chosen = said({name: self.order[name] for name in SHOWN if name in self.order})
        return ", ".join(filter(None, (self.player.setting, chosen)))

    def play(self) -> Turn:
        return self.player.play(self.order)

    def with_fewer_inputs(self) -> "Candidate":
        start, stop = self.order["inputs"]
        inputs = [start, min(stop, start + SEARCHED_INPUTS)]
        return replace(self, order={**self.order, "inputs": inputs})


@dataclass(frozen=True)
class Scale:
    """Says in which unit the speed of a workload is given, and how much a turn got done of it."""

    unit: str
    done: int | None = None

    @classmethod
    def of(cls, workload: Workload, texts: Sequence[str], num_cores: int) -> "Scale":
        if workload.kind is Kind.TEXTS:
            words = sum(len(text.split()) for text in texts)
            return cls("words of the source/s/core", words // num_cores)
        if workload.kind is Kind.ENCODE:
            return cls("texts/s", len(texts))
        return cls("tokens/s")

    def amount(self, turn: Turn) -> float:
        return self.done or sum(map(len, turn.outputs))


@dataclass(frozen=True)
class Checker:
    """Knows how outputs become text, and what they should have been.

    references: of the inputs of the workload, in their order; None where there are none.
    """

    read: Callable[[list[int]], str]
    references: Sequence[str] | None = None

    def check(self, ours: Turn, theirs: Turn) -> Agreement:
        pairs = list(zip(ours.outputs, theirs.outputs, strict=True))
        difference = None
        if self.references is not None:
            difference = self._bleu(ours.outputs) - self._bleu(theirs.outputs)
        return Agreement(sum(_are_alike(a, b) for a, b in pairs), len(pairs), difference)

    def _bleu(self, outputs: Sequence[Any]) -> float:
        from sacrebleu import corpus_bleu

        assert self.references is not None
        texts = [each if isinstance(each, str) else self.read(each) for each in outputs]
        score: float = corpus_bleu(texts, [list(self.references)]).score
        return score


def _are_alike(ours: Any, theirs: Any) -> bool:
    """Compare outputs: tokens and texts are equal, numbers of a vector are as good as equal."""
    if ours and isinstance(ours[0], float):
        return all(isclose(a, b, abs_tol=_MOST_OFF) for a, b in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


def compete(
    workload: Workload,
    scale: Scale,
    players: Sequence[Sequence[Candidate]],
    num_rounds: int,
    checker: Checker,
    say: Say,
) -> list[Row]:
    """Race the best candidates of all players, ours first, in turns; return a row for each peer."""
    field = [fastest(candidates) for candidates in players]
    say(f"best settings: {'; '.join(f'{each.player.name} {each.setting}' for each in field)}")
    rounds = []
    for number in range(num_rounds):
        say(f"round {number + 1} of {num_rounds}")
        rounds.append([each.play() for each in field])
    turns = [list(each) for each in zip(*rounds, strict=True)]
    entries = [_entry(each, of, scale) for each, of in zip(field, turns, strict=True)]
    return [
        Row(workload, scale.unit, entries[0], entry, checker.check(turns[0][0], of[0]))
        for entry, of in zip(entries[1:], turns[1:], strict=True)
    ]


def fastest(candidates: Sequence[Candidate]) -> Candidate:
    """Give each a turn to warm up and, where there is a choice, one that counts."""

    def seconds(candidate: Candidate) -> float:
        shorter = candidate.with_fewer_inputs()
        turns = [shorter.play() for _ in range(min(len(candidates), 2))]
        return turns[-1].seconds

    return min(candidates, key=seconds)


def _entry(candidate: Candidate, turns: Sequence[Turn], scale: Scale) -> Entry:
    amounts = [scale.amount(turn) for turn in turns]
    return Entry(
        candidate.player.name,
        candidate.setting,
        [amount / turn.seconds for amount, turn in zip(amounts, turns, strict=True)],
        [amount / turn.cpu_seconds for amount, turn in zip(amounts, turns, strict=True)],
        [turn.first_seconds for turn in turns if turn.first_seconds is not None],
        [{"seconds": turn.seconds, "cpu_seconds": turn.cpu_seconds} for turn in turns],
    )
