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
    """

    architecture: Literal["luong"] = "luong"
    cell: Cell = "lstm"
    num_layers: Size = 2
    score: Literal["dot", "general", "concat"] = "general"
    attention: Literal["global", "local-m", "local-p"] = "global"
    window: Size | None = None
    input_feeding: bool = True

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        fields = ("attention", "window")
        if self.attention == "global" and self.window is not None:
            yield Misfit(fields, f"window {self.window} is for local attention, not for global")
        if self.attention != "global" and self.window is None:
            yield Misfit(fields, f"attention {self.attention} needs a window")
