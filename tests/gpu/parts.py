"""The parts of a run: what each shows, where it is, and how long it may take."""

from dataclasses import dataclass
from pathlib import Path

from serving.engine.config import Device


@dataclass(frozen=True)
class Place:
    """Where a part runs, and over which shape of `tests.gpu.figures.shapes`, if it is of one.

    folder: its own, for what it makes and nobody keeps.
    """

    device: Device
    folder: Path
    shape: str = ""

    @property
    def is_tiny(self) -> bool:
        """On a CPU sizes are such that seconds show whether the part works at all."""
        return self.device == "cpu"


@dataclass(frozen=True)
class Part:
    """module: of `tests.gpu`; its function `find` yields the findings of a place.

    shape: of the models that it takes figures of; then its aims are for GPUs alone.
    """

    name: str
    module: str
    title: str
    shape: str = ""
    seconds: float = 120


PARTS = {
    part.name: part
    for part in (
        Part("placement", "placement", "Graphs of all families, node by node on the device"),
        Part("parity", "parity", "Half precision on the device against fp32 on the CPU"),
        Part("company", "company", "Same request, same bytes, whoever shares a batch of one size"),
        Part("engine", "engine", "The engine's own tests, over device memory"),
        Part("training", "training", "Training, as on the CPU and without waiting"),
        Part("base", "figures.translators", "Translation, against `generate`", "Transformer-base"),
        Part("bart", "figures.translators", "Translation, against `generate`", "BART-large"),
        Part("135m", "figures.language_models", "Language models, bandwidth", "Llama 135M"),
        Part("1.5b", "figures.language_models", "Language models, bandwidth", "Llama 1.5B"),
        Part("bahdanau", "figures.recurrent", "Recurrent decoders, against torch", "Bahdanau"),
        Part("luong", "figures.recurrent", "Recurrent decoders, against torch", "Luong"),
        Part("ssru", "figures.recurrent", "Recurrent decoders, against torch", "SSRU"),
        Part("http", "figures.http", "HTTP, against the bare engine", "Transformer-base"),
    )
}
