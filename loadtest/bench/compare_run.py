"""A comparison: start the engines, run each workload in turns, collect the results."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import isclose
from pathlib import Path
from typing import Any

import click

from loadtest.bench.compare_engines import (
    PEERS,
    EngineProcess,
    Order,
    Setup,
    SkippedPeer,
    Turn,
    in_words,
    own_orders,
    own_process,
)
from loadtest.bench.compare_http import (
    Body,
    Measure,
    compete_over_http,
    measure_streams,
    measure_sustained_rate,
)
from loadtest.bench.compare_inputs import ComparisonInputs
from loadtest.bench.compare_report import OutputAgreement, PeerEntry, Row
from loadtest.bench.compare_servers import SERVERS, attendant_server
from loadtest.bench.compare_workloads import Workload, WorkloadKind

_OWN_KINDS = {  # others take ids
    WorkloadKind.TEXTS: "texts",
    WorkloadKind.ENCODE: "vectors",
}
OVER_HTTP = (WorkloadKind.OPEN_LOOP, WorkloadKind.STREAMS)


@dataclass(frozen=True)
class ComparisonPlan:
    """The workloads of a comparison, and their duration.

    peers: models by the names of `PEERS`.
    references: of the file's sentences, if there are any.
    rates, seconds: requests per second of the open loop, one rate after another, and the duration
        of each.
    completions: of each user in one turn.
    """

    workloads: Sequence[Workload]
    peers: Mapping[str, Path]
    given: ComparisonInputs
    references: Sequence[str] | None
    num_rounds: int
    max_new_tokens: int
    rates: Sequence[float]
    seconds: float
    completions: int


@dataclass
class Race:
    """A comparison, its results, and the reasons why peers were skipped."""

    plan: ComparisonPlan
    setup: Setup
    rows: list[Row] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def hold(self) -> None:
        """Run all workloads, those over HTTP after the bare engines have ended."""
        self.plan.given.write(self.setup.inputs)
        self._race_engines([w for w in self.plan.workloads if w.kind not in OVER_HTTP])
        for workload in self.plan.workloads:
            if workload.kind in OVER_HTTP:
                self._race_servers(workload)

    def _race_engines(self, workloads: Sequence[Workload]) -> None:
        with ExitStack() as stack:
            peers = self._started_peers(workloads, stack)
            processes: dict[str, EngineProcess] = {}
            for workload in workloads:
                takers = {name: peers[name] for name in peers if workload.kind in PEERS[name].kinds}
                if not takers:
                    continue
                click.echo(f"{workload.says}: attendant, {', '.join(takers)}", err=True)
                kind = _OWN_KINDS.get(workload.kind, "ids")
                if kind not in processes:
                    processes[kind] = stack.enter_context(own_process(kind, self.setup))
                    self.versions["attendant"] = processes[kind].version()
                self.rows += self._compete_on(workload, processes[kind], takers)

    def _started_peers(
        self, workloads: Sequence[Workload], stack: ExitStack
    ) -> dict[str, list[EngineProcess]]:
        """Start the processes of the peers that are needed; those that are missing are named."""
        results = {}
        for name, model in self.plan.peers.items():
            if not any(workload.kind in PEERS[name].kinds for workload in workloads):
                continue
            processes = PEERS[name].processes(name, model, self.setup)
            for process in processes:
                stack.enter_context(process)
            try:
                self.versions[name] = {process.version() for process in processes}.pop()
                results[name] = processes
            except SkippedPeer as error:
                self._skip(name, error)
        return results

    def _compete_on(
        self,
        workload: Workload,
        ours: EngineProcess,
        takers: Mapping[str, Sequence[EngineProcess]],
    ) -> list[Row]:
        inputs = self.plan.given
        order = inputs.inputs(self.plan.max_new_tokens).order(workload)
        num_cores = len(self.setup.cores)
        candidates = [
            Contender(ours, settings) for settings in own_orders(workload, order, num_cores)
        ]
        theirs = [
            [
                Contender(process, settings)
                for process in processes
                for settings in PEERS[name].orders(workload, order)
            ]
            for name, processes in takers.items()
        ]
        references = self.plan.references if workload.batch is None else None
        scale = Scale.from_texts(workload, inputs.file, num_cores)
        checker = Checker(inputs.read, references)
        return compete(
            workload, scale, [candidates, *theirs], self.plan.num_rounds, checker, _say_below
        )

    def _race_servers(self, workload: Workload) -> None:
        takers = [name for name in self.plan.peers if workload.kind in PEERS[name].kinds]
        for name in takers:
            click.echo(f"{workload.says}: attendant, {name}", err=True)
            try:
                row = compete_over_http(
                    workload,
                    *self._measure(workload),
                    attendant_server(self.setup),
                    SERVERS[name](self.plan.peers[name], self.setup, workload),
                    self.plan.num_rounds,
                    set(self.setup.cores),
                )
                self.rows.append(row)
            except SkippedPeer as error:
                self._skip(name, error)

    def _measure(self, workload: Workload) -> tuple[str, Measure]:
        plan, inputs = self.plan, self.plan.given
        if workload.kind is WorkloadKind.OPEN_LOOP:
            source = inputs.card.source_languages[0]
            target = inputs.card.targets_of(source)[0]
            body: Body = {"source": source, "target": target}
            body["max_new_tokens"] = plan.max_new_tokens
            measure = measure_sustained_rate(inputs.even, body, plan.rates, plan.seconds)
            return "sentences/s, p95 within 1 s", measure
        assert workload.batch is not None
        body = {"model": inputs.card.name, "max_tokens": plan.max_new_tokens, "temperature": 0}
        body["ignore_eos"] = True
        measure = measure_streams(inputs.prompts, body, workload.batch, plan.completions)
        return "tokens/s", measure

    def _skip(self, name: str, error: SkippedPeer) -> None:
        self.missing[name] = str(error)
        click.echo(f"{name} is skipped: {error}", err=True)


def _say_below(line: str) -> None:
    click.echo(f"  {line}", err=True)


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
class Contender:
    """Pairs a process with a way to ask it."""

    process: EngineProcess
    order: Order

    @property
    def setting(self) -> str:
        chosen = in_words({name: self.order[name] for name in SHOWN if name in self.order})
        return ", ".join(filter(None, (self.process.setting, chosen)))

    def run(self) -> Turn:
        return self.process.run(self.order)

    def with_fewer_inputs(self) -> "Contender":
        start, stop = self.order["inputs"]
        inputs = [start, min(stop, start + SEARCHED_INPUTS)]
        return replace(self, order={**self.order, "inputs": inputs})


@dataclass(frozen=True)
class Scale:
    """The unit of a workload's speed, and how much of it a turn has done."""

    unit: str
    done: int | None = None

    @classmethod
    def from_texts(cls, workload: Workload, texts: Sequence[str], num_cores: int) -> "Scale":
        if workload.kind is WorkloadKind.TEXTS:
            words = sum(len(text.split()) for text in texts)
            return cls("words of the source/s/core", words // num_cores)
        if workload.kind is WorkloadKind.ENCODE:
            return cls("texts/s", len(texts))
        return cls("tokens/s")

    def amount(self, turn: Turn) -> float:
        return self.done or sum(map(len, turn.outputs))


@dataclass(frozen=True)
class Checker:
    """Converts outputs to text and compares them with references.

    references: in the order of the workload's inputs; None if there are none.
    """

    read: Callable[[list[int]], str]
    references: Sequence[str] | None = None

    def check(self, ours: Turn, theirs: Turn) -> OutputAgreement:
        pairs = [
            (self.read(a), "".join(b)) if _are_texts_of_tokens(b) else (a, b)
            for a, b in zip(ours.outputs, theirs.outputs, strict=True)
        ]
        difference = None
        if self.references is not None:
            difference = self._bleu(ours.outputs) - self._bleu(theirs.outputs)
        return OutputAgreement(sum(_are_alike(a, b) for a, b in pairs), len(pairs), difference)

    def _bleu(self, outputs: Sequence[Any]) -> float:
        from sacrebleu import corpus_bleu

        assert self.references is not None
        texts = [output if isinstance(output, str) else self.read(output) for output in outputs]
        score: float = corpus_bleu(texts, [list(self.references)]).score
        return score


def _are_texts_of_tokens(output: Any) -> bool:
    """Return whether an output is a list with the text of each token."""
    return isinstance(output, list) and bool(output) and isinstance(output[0], str)


def _are_alike(ours: Any, theirs: Any) -> bool:
    """Compare outputs: tokens and texts are equal, numbers of a vector are as good as equal."""
    if ours and isinstance(ours[0], float):
        return all(isclose(a, b, abs_tol=_MOST_OFF) for a, b in zip(ours, theirs, strict=True))
    return bool(ours == theirs)


def compete(
    workload: Workload,
    scale: Scale,
    players: Sequence[Sequence[Contender]],
    num_rounds: int,
    checker: Checker,
    say: Say,
) -> list[Row]:
    """Race the best candidates of all players, ours first, in turns; return a row for each peer."""
    field = [fastest(candidates) for candidates in players]
    settings = (f"{candidate.process.name} {candidate.setting}" for candidate in field)
    say(f"best settings: {'; '.join(settings)}")
    rounds = []
    for number in range(num_rounds):
        say(f"round {number + 1} of {num_rounds}")
        rounds.append([candidate.run() for candidate in field])
    turns = [list(runs) for runs in zip(*rounds, strict=True)]
    entries = [_entry(candidate, runs, scale) for candidate, runs in zip(field, turns, strict=True)]
    return [
        Row(workload, scale.unit, entries[0], entry, checker.check(turns[0][0], of[0]))
        for entry, of in zip(entries[1:], turns[1:], strict=True)
    ]


def fastest(candidates: Sequence[Contender]) -> Contender:
    """Return each a turn to warm up and, where there is a choice, one that counts."""

    def seconds(candidate: Contender) -> float:
        shorter = candidate.with_fewer_inputs()
        turns = [shorter.run() for _ in range(min(len(candidates), 2))]
        return turns[-1].seconds

    return min(candidates, key=seconds)


def _entry(candidate: Contender, turns: Sequence[Turn], scale: Scale) -> PeerEntry:
    amounts = [scale.amount(turn) for turn in turns]
    return PeerEntry(
        candidate.process.name,
        candidate.setting,
        [amount / turn.seconds for amount, turn in zip(amounts, turns, strict=True)],
        [amount / turn.cpu_seconds for amount, turn in zip(amounts, turns, strict=True)],
        [turn.first_seconds for turn in turns if turn.first_seconds is not None],
        raw=[{"seconds": turn.seconds, "cpu_seconds": turn.cpu_seconds} for turn in turns],
    )
