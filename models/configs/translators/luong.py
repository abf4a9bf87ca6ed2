"""Options of Luong's encoder-decoder."""

from collections.abc import Iterator
from typing import Literal

from models.configs.attention import Global, SourceAttention
from models.configs.base import Misfit, Part, Size
from models.configs.recurrent import Cell, RecurrentConfig


class LuongImports(Part):
    """Options that are not in the paper, but in what OpenNMT-py trains.

    bidirectional: half of the encoder's hidden_dim reads the source backwards, in every layer.
    bridge: a layer between the encoder's last states and the decoder's first.
    biases: of the concat score's query and of the readout.
    readout: W_c [c_t; h_t] through tanh (equation 5), or as it is.
    """

    bidirectional: bool = False
    bridge: bool = False
    biases: bool = False
    readout: Literal["tanh", "linear"] = "tanh"


class LuongConfig(RecurrentConfig):
    """Stacked recurrent layers with multiplicative attention (Luong, Pham and Manning 2015).

    input_feeding: the attentional vector of a token is an input at the next.
    """

    architecture: Literal["luong"] = "luong"
    cell: Cell = "lstm"
    num_layers: Size = 2
    score: Literal["dot", "general", "concat"] = "general"
    attention: SourceAttention = Global()
    input_feeding: bool = True
    imported: LuongImports = LuongImports()

    @property
    def num_directions(self) -> int:
        return 2 if self.imported.bidirectional else 1

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.imported.bidirectional and self.hidden_dim % 2:
            message = f"hidden_dim {self.hidden_dim} must be even for two directions"
            yield Misfit(("hidden_dim", "imported"), message)
