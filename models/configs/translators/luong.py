"""Options of Luong's encoder-decoder."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Size
from models.configs.recurrent import Cell, RecurrentConfig


class LuongConfig(RecurrentConfig):
    """Stacked recurrent layers with multiplicative attention (Luong, Pham and Manning 2015).

    attention: "global", or within `window` source positions to both sides (D in the paper, 10
    there) of where the decoder is ("local-m") or of where it predicts to look ("local-p").
    input_feeding: the attentional vector of a token is an input at the next.
    reversed_source: the encoder reads the source from its end to its beginning (4.1); attention
    sees it as it stands.

    Not in the paper, but in what others have trained:
    bidirectional: half of the encoder's hidden_dim reads the source backwards, in every layer.
    bridge: a layer between the encoder's last states and the decoder's first.
    biases: of the concat score's query and of the readout.
    readout: W_c [c_t; h_t] through tanh (equation 5), or as it is.
    """

    architecture: Literal["luong"] = "luong"
    cell: Cell = "lstm"
    num_layers: Size = 2
    score: Literal["dot", "general", "concat"] = "general"
    attention: Literal["global", "local-m", "local-p"] = "global"
    window: Size | None = None
    input_feeding: bool = True
    reversed_source: bool = False
    bidirectional: bool = False
    bridge: bool = False
    biases: bool = False
    readout: Literal["tanh", "linear"] = "tanh"

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        fields = ("attention", "window")
        if self.attention == "global" and self.window is not None:
            yield Misfit(fields, f"window {self.window} is for local attention, not for global")
        if self.attention != "global" and self.window is None:
            yield Misfit(fields, f"attention {self.attention} needs a window")
        if self.bidirectional and self.hidden_dim % 2:
            message = f"hidden_dim {self.hidden_dim} must be even for two directions"
            yield Misfit(("hidden_dim", "bidirectional"), message)
