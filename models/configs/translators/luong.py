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

    Not in the paper, but in what others have trained:
    bidirectional: half of the encoder's numbers read the source backwards, in every layer.
    encoder_layers: None: as many as the decoder's. memory_dim: of what the encoder makes of a word;
    None: hidden_dim.
    bridge: from the encoder's last states to the decoder's first: a layer through relu
    (OpenNMT-py) or none (fairseq, "linear"), one of the top layer's last output alone ("tanh"),
    that output as it is ("top"), or "zeros" (JoeyNMT).
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
    bidirectional: bool = False
    encoder_layers: Size | None = None
    memory_dim: Size | None = None
    bridge: Literal["none", "relu", "linear", "tanh", "top", "zeros"] = "none"
    biases: bool = False
    readout: Literal["tanh", "linear"] = "tanh"

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def encoder_dim(self) -> int:
        return self.memory_dim or self.hidden_dim

    @property
    def layers_of_encoder(self) -> int:
        return self.encoder_layers or self.num_layers

    def misfits(self) -> Iterator[Misfit]:
        yield from super().misfits()
        yield from self._misfits_of_encoder()
        fields = ("attention", "window")
        if self.attention == "global" and self.window is not None:
            yield Misfit(fields, f"window {self.window} is for local attention, not for global")
        if self.attention != "global" and self.window is None:
            yield Misfit(fields, f"attention {self.attention} needs a window")

    def _misfits_of_encoder(self) -> Iterator[Misfit]:
        if self.bidirectional and self.encoder_dim % 2:
            name = "hidden_dim" if self.memory_dim is None else "memory_dim"
            message = f"{name} {self.encoder_dim} must be even for two directions"
            yield Misfit((name, "bidirectional"), message)
        is_alike = self.encoder_dim == self.hidden_dim
        if not is_alike and (self.score == "dot" or self.bridge in ("none", "relu")):
            message = f"memory_dim {self.memory_dim} needs another score than dot, and a bridge"
            yield Misfit(("memory_dim", "hidden_dim", "score", "bridge"), message)
        by_layers = self.bridge in ("none", "relu", "linear")
        if by_layers and self.layers_of_encoder != self.num_layers:
            message = f"encoder_layers {self.encoder_layers} needs a bridge from the top layer"
            yield Misfit(("encoder_layers", "num_layers", "bridge"), message)
        if self.bridge == "top" and self.encoder_dim < self.hidden_dim:
            message = f"memory_dim {self.encoder_dim} is less than hidden_dim {self.hidden_dim}"
            yield Misfit(("memory_dim", "hidden_dim", "bridge"), message)
