"""The parts of a run: what each shows, where it is, and how long it may take."""

from dataclasses import dataclass
from pathlib import Path

from serving.engine.config import Device


@dataclass(frozen=True)
class Place:
    """Where a part runs. folder: its own, for what it makes and nobody keeps."""

    device: Device
    folder: Path

    @property
    def is_tiny(self) -> bool:
        """On a CPU sizes are such that seconds show whether the part works at all."""
        return self.device == "cpu"


@dataclass(frozen=True)
class Part:
    """module: of `tests.gpu`; its function `find` yields the findings of a place.

    takes_time: its findings say how fast something is, so that aims are for GPUs alone.
    """

    name: str
    module: str
    title: str
    takes_time: bool = False
    seconds: float = 120


PARTS = {
    part.name: part
    for part in (
        Part("placement", "placement", "Graphs of all families, node by node on the device"),
        Part("parity", "parity", "Half precision on the device against fp32 on the CPU"),
        Part("company", "company", "Same request, same bytes, whoever shares a batch of one size"),
        Part("engine", "engine", "The engine's own tests, over device memory"),
        Part("translators", "figures.translators", "Greedy translation against `generate`", True),
        Part("language-models", "figures.language_models", "Language models: bandwidth reached", True),
        Part("recurrent", "figures.recurrent", "Recurrent decoders against torch, CUDA graphs", True),
        Part("http", "figures.http", "HTTP against the bare engine", True),
    )
}
