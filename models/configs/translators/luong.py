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

    score: of a source position: by its state h_s and the decoder's h_t; scaled-dot divides by
    sqrt(hidden_dim), as Vaswani et al. 2017; location scores positions by h_t alone (equation 8).
    hard_attention: once trained, it looks at the position of the largest weight alone.
    input_feeding: the attentional vector of a token is an input at the next.
    reversed_source: the encoder reads the source from its end to its beginning (4.1); attention
    sees it as it stands.
    """

    architecture: Literal["luong"] = "luong"
    cell: Cell = "lstm"
    num_layers: Size = 2
    score: Literal["dot", "scaled-dot", "general", "concat", "location"] = "general"
    attention: SourceAttention = Global()
    hard_attention: bool = False
    input_feeding: bool = True
    reversed_source: bool = False
    imported: LuongImports = LuongImports()

    @property
    def num_directions(self) -> int:
        return 2 if self.imported.bidirectional else 1

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        if self.imported.bidirectional and self.hidden_dim % 2:
            message = f"hidden_dim {self.hidden_dim} must be even for two directions"
            yield Misfit(("hidden_dim", "imported"), message)
