"""Holds a race: starts who takes part, has them compete at each workload, collects what came."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click

from loadtest.bench.race.contest import Candidate, Checker, Scale, compete
from loadtest.bench.race.inputs import Given
from loadtest.bench.race.over_http import Measure, compete_over_http, streamed, sustained
from loadtest.bench.race.players import Player, SkippedPeer
from loadtest.bench.race.results import Row
from loadtest.bench.race.roster import PEERS, Setup, own_orders, own_player
from loadtest.bench.race.senders import Body
from loadtest.bench.race.servers import SERVERS, attendant_server
from loadtest.bench.race.workloads import Kind, Workload

_OWN_KINDS = {Kind.TEXTS: "texts", Kind.ENCODE: "vectors"}  # of `own.py`; others take ids
OVER_HTTP = (Kind.OPEN_LOOP, Kind.STREAMS)


@dataclass(frozen=True)
class Plan:
    """Says what to race over and how long.

    peers: models by the names of `PEERS`. references: of the file's sentences, if there are any.
    rates, seconds: requests a second of an open loop, one after the other, and how long each.
    """

    workloads: Sequence[Workload]
    peers: Mapping[str, Path]
    given: Given
    references: Sequence[str] | None
    num_rounds: int
    max_new_tokens: int
    rates: Sequence[float]
    seconds: float


@dataclass
class Race:
    """Holds a race, and afterwards what it found, and why peers were skipped."""

    plan: Plan
    setup: Setup
    rows: list[Row] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def hold(self) -> None:
        """Run all workloads, those over HTTP after the bare engines have ended."""
        self.plan.given.write(self.setup.inputs)
        self._race_engines([each for each in self.plan.workloads if each.kind not in OVER_HTTP])
        for workload in self.plan.workloads:
            if workload.kind in OVER_HTTP:
                self._race_servers(workload)

    def _race_engines(self, workloads: Sequence[Workload]) -> None:
        with ExitStack() as stack:
            peers = self._started_peers(workloads, stack)
            own: dict[str, Player] = {}
            for workload in workloads:
                takers = {name: peers[name] for name in peers if PEERS[name].takes(workload)}
                if not takers:
                    continue
                click.echo(f"{workload.says}: attendant, {', '.join(takers)}", err=True)
                kind = _OWN_KINDS.get(workload.kind, "ids")
                if kind not in own:
                    own[kind] = stack.enter_context(own_player(kind, self.setup))
                    self.versions["attendant"] = own[kind].version()
                self.rows += self._competed(workload, own[kind], takers)

    def _started_peers(
        self, workloads: Sequence[Workload], stack: ExitStack
    ) -> dict[str, list[Player]]:
        """Start the processes of the peers that are needed; those that are missing are named."""
        found = {}
        for name, model in self.plan.peers.items():
            if not any(PEERS[name].takes(workload) for workload in workloads):
                continue
            players = PEERS[name].players(name, model, self.setup)
            for player in players:
                stack.enter_context(player)
            try:
                self.versions[name] = {player.version() for player in players}.pop()
                found[name] = players
            except SkippedPeer as error:
                self._skip(name, error)
        return found

    def _competed(
        self, workload: Workload, ours: Player, takers: Mapping[str, Sequence[Player]]
    ) -> list[Row]:
        given = self.plan.given
        order = given.inputs(self.plan.max_new_tokens).order(workload)
        num_cores = len(self.setup.cores)
        own = [Candidate(ours, each) for each in own_orders(workload, order, num_cores)]
        theirs = [
            [
                Candidate(player, each)
                for player in players
                for each in PEERS[name].orders(workload, order)
            ]
            for name, players in takers.items()
        ]
        references = self.plan.references if workload.batch is None else None
        scale = Scale.of(workload, given.file, num_cores)
        checker = Checker(given.read, references)
        return compete(workload, scale, [own, *theirs], self.plan.num_rounds, checker, _say_below)

    def _race_servers(self, workload: Workload) -> None:
        takers = [name for name in self.plan.peers if PEERS[name].takes(workload)]
        for name in takers:
            click.echo(f"{workload.says}: attendant, {name}", err=True)
            try:
                row = compete_over_http(
                    workload,
                    *self._measure(workload),
                    attendant_server(self.setup),
                    SERVERS[name](self.plan.peers[name], self.setup),
                    self.plan.num_rounds,
                    set(self.setup.cores),
                )
                self.rows.append(row)
            except SkippedPeer as error:
                self._skip(name, error)

    def _measure(self, workload: Workload) -> tuple[str, Measure]:
        plan, given = self.plan, self.plan.given
        if workload.kind is Kind.OPEN_LOOP:
            source = given.card.source_languages[0]
            target = given.card.targets_of(source)[0]
            body: Body = {"source": source, "target": target}
            body["max_new_tokens"] = plan.max_new_tokens
            measure = sustained(given.even, body, plan.rates, plan.seconds)
            return "sentences/s, p95 within 1 s", measure
        assert workload.batch is not None
        body = {"model": given.card.name, "max_tokens": plan.max_new_tokens, "temperature": 0}
        return "tokens/s", streamed(given.even, body, workload.batch)

    def _skip(self, name: str, error: SkippedPeer) -> None:
        self.missing[name] = str(error)
        click.echo(f"{name} is skipped: {error}", err=True)


def _say_below(line: str) -> None:
    click.echo(f"  {line}", err=True)
