"""Which beam searches are in the batch, and which of their beams is in which row."""

from collections.abc import Sequence

from serving.engine.beam.group import Beam, BeamGroup
from serving.engine.beam.lexical import LexicalGroup
from serving.engine.generation import Generation


class Beams:
    """A follower of the rows."""

    def __init__(self, slots: int) -> None:
        self._groups: dict[Generation, BeamGroup] = {}
        self._beam_at: list[Beam | None] = [None] * slots

    @property
    def groups(self) -> Sequence[BeamGroup]:
        return list(self._groups.values())

    def place(self, group: BeamGroup, beams: list[Beam]) -> None:
        """The group goes on with these beams, each in its row."""
        group.beams = beams
        for beam in beams:
            self._beam_at[beam.row] = beam

    def admit(self, row: int, generation: Generation) -> None:
        if generation.request.beam is None:
            return
        new = LexicalGroup if generation.request.required else BeamGroup
        group = self._groups[generation] = new(generation, row)
        self.place(group, group.beams)

    def copy(self, source: int, target: int) -> None:
        """Nothing: `place` follows."""

    def move(self, source: int, target: int) -> None:
        beam = self._beam_at[target] = self._beam_at[source]
        if beam is not None:
            beam.row = target

    def forget(self, row: int) -> None:
        self._beam_at[row] = None

    def leave(self, generation: Generation) -> None:
        """It has ended, whyever; its rows are removed by whoever ended it."""
        self._groups.pop(generation, None)
