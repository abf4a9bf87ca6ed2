"""Options of deep transition networks with attention between two transitions."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from models.configs.base import Conflict, Size
from models.configs.recurrent import RecurrentConfig

EPSILONS = {"cell": 1e-9, "gates": 1e-5}


class NematusConfig(RecurrentConfig):
    """Deep transition networks as in Nematus (Sennrich et al. 2017) and Marian.

    At each word a layer runs several cells, its transitions (Miceli Barone et al. 2017).
    encoder: "bidirectional": a stack of layers for each direction; "alternating": each layer reads
    in the opposite direction of the one below; "bidirectional-first": only the first layer has two
    directions.
    decoder_transitions: of the first layer, which attends after its first cell.
    higher_transitions: of the layers above. skip: layers above the first add their input to their
    output. layer_norm: of a cell's gates together ("cell"), or of the reset and update gates apart
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

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.layer_norm == "gates" and self.cell != "gru":
            message = f"layer_norm 'gates' is of cell 'gru', found {self.cell!r}"
            yield Conflict(("layer_norm", "cell"), message)

    @property
    def epsilon(self) -> float | None:
        """What layer normalisation adds to a variance; None without normalisation."""
        return EPSILONS.get(self.layer_norm)

    @property
    def layers_above(self) -> int:
        """The number of encoder layers that read both directions' outputs."""
        return self.encoder_layers - 1 if self.encoder == "bidirectional-first" else 0

    @property
    def layers_of_direction(self) -> int:
        return self.encoder_layers - self.layers_above

    @property
    def memory_dim(self) -> int:
        return self.hidden_dim if self.layers_above else 2 * self.hidden_dim

    def gate_sizes(self, num_gates: int) -> list[int]:
        """Return the sizes of the pieces of a cell's gates that are normalised together."""
        if self.layer_norm == "gates":
            return [2 * self.hidden_dim, self.hidden_dim]
        return [num_gates * self.hidden_dim]
