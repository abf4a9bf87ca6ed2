"""Keeps the beam searches that are in the batch."""

from collections.abc import Sequence

from serving.engine.beam.group import BeamGroup, start_group
from serving.engine.decision import Decision
from serving.engine.generation import Generation
from serving.engine.rows import Follower


class BeamGroups(Follower):
    """Follows the rows. A group goes when its generation ends, or when a row of it is forgotten."""

    def __init__(self) -> None:
        self._groups: dict[Generation, BeamGroup] = {}

    @property
    def groups(self) -> Sequence[BeamGroup]:
        return list(self._groups.values())

    def admit(self, row: int, generation: Generation) -> None:
        if generation.request.beam is not None:
            self._groups[generation] = start_group(generation, row)

    def move(self, source: int, target: int) -> None:
        if (group := self._of_row(source)) is not None:
            self._groups[group.generation] = group.moved(source, target)

    def forget(self, row: int) -> None:
        if (group := self._of_row(row)) is not None:
            del self._groups[group.generation]

    def advance(self, decision: Decision) -> None:
        for search in decision.searches:
            assert isinstance(search, BeamGroup)
            self._groups[search.generation] = search
        for generation, _ in decision.endings:
            self._groups.pop(generation, None)

    def _of_row(self, row: int) -> BeamGroup | None:
        groups = self._groups.values()
        return next((each for each in groups if any(b.row == row for b in each.beams)), None)
