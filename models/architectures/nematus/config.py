"""Options of deep transition networks with attention between two transitions."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import Misfit, Size
from models.configs.recurrent import RecurrentConfig

EPSILONS = {"cell": 1e-9, "gates": 1e-5}


class NematusConfig(RecurrentConfig):
    """Deep transition networks as Nematus (Sennrich et al. 2017) and Marian have them.

    At each word a layer goes through several cells, its transitions (Miceli Barone et al. 2017).
    encoder: "bidirectional": a stack of layers for each direction; "alternating": so that each
    layer reads against the one below; "bidirectional-first": only the first layer has two.
    decoder_transitions: of the first layer, which attends after its first one.
    higher_transitions: of the layers above. skip: layers above the first are added to what they
    read. layer_norm: of a cell's gates together ("cell"), or of the reset and update gates apart
    from the new value ("gates").
    """

    architecture: Literal["nematus"] = "nematus"
    cell: Literal["gru", "lstm", "rnn"] = "gru"
    encoder: Literal["bidirectional", "alternating", "bidirectional-first"] = "bidirectional"
    encoder_layers: Size = 1
    encoder_transitions: Size = 1
    decoder_layers: Size = 1
    decoder_transitions: Annotated[int, Field(ge=2)] = 2
    higher_transitions: Size = 1
    skip: bool = False
    layer_norm: Literal["none", "cell", "gates"] = "none"

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.layer_norm == "gates" and self.cell != "gru":
            message = f"layer_norm 'gates' is of cell 'gru', found {self.cell!r}"
            yield Misfit(("layer_norm", "cell"), message)

    @property
    def epsilon(self) -> float | None:
        """Give what layer normalisation adds to a variance; None where there is none."""
        return EPSILONS.get(self.layer_norm)

    @property
    def layers_above(self) -> int:
        """Count the encoder's layers that read what two directions have found."""
        return self.encoder_layers - 1 if self.encoder == "bidirectional-first" else 0

    @property
    def layers_of_direction(self) -> int:
        return self.encoder_layers - self.layers_above

    @property
    def memory_dim(self) -> int:
        return self.hidden_dim if self.layers_above else 2 * self.hidden_dim

    def gate_sizes(self, num_gates: int) -> list[int]:
        """Cut a cell's gates into what is normalised together."""
        if self.layer_norm == "gates":
            return [2 * self.hidden_dim, self.hidden_dim]
        return [num_gates * self.hidden_dim]
