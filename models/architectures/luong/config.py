"""Options of Luong's encoder-decoder."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, Section, Size
from models.configs.recurrent import Cell, Global, RecurrentConfig, SourceAttention


class LuongImports(Section):
    """Options that are not in the paper, but in models that others trained.

    bidirectional: in every layer, half of the encoder's numbers read the source backwards.
    encoder_layers: None: as many as the decoder's. memory_dim: the encoder's size; None:
    hidden_dim.
    bridge: from the encoder's last states to the decoder's first: a layer with relu (OpenNMT-py) or
    without (fairseq, "linear"), a layer of the top layer's last output alone ("tanh"), that output
    itself ("top"), or "zeros" (JoeyNMT).
    biases: of the concat score's query and of the readout.
    readout: W_c [c_t; h_t] through tanh (equation 5), or as it is.
    """

    bidirectional: bool = False
    encoder_layers: Size | None = None
    memory_dim: Size | None = None
    bridge: Literal["none", "relu", "linear", "tanh", "top", "zeros"] = "none"
    biases: bool = False
    readout: Literal["tanh", "linear"] = "tanh"


class LuongConfig(RecurrentConfig):
    """Stacked recurrent layers with multiplicative attention (Luong, Pham and Manning 2015).

    score: how a source state h_s is scored by the decoder's h_t; scaled-dot divides by
    sqrt(hidden_dim), as Vaswani et al. 2017; location scores positions by h_t alone (equation 8).
    hard_attention: outside training all of the weight goes to the position that has most.
    input_feeding: the attentional vector of a token is an input at the next.
    reversed_source: the encoder reads the source from its end to its beginning (4.1). Attention has
    it in its own order.
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

    @property
    def encoder_dim(self) -> int:
        return self.imported.memory_dim or self.hidden_dim

    @property
    def layers_of_encoder(self) -> int:
        return self.imported.encoder_layers or self.num_layers

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        more, fields = self.imported, ("hidden_dim", "num_layers", "score", "imported")
        if more.bidirectional and self.encoder_dim % 2:
            name = "hidden_dim" if more.memory_dim is None else "imported.memory_dim"
            yield Conflict(fields, f"{name} {self.encoder_dim} must be even for two directions")
        is_alike = self.encoder_dim == self.hidden_dim
        has_keys = self.score in ("general", "concat")
        if not is_alike and (not has_keys or more.bridge in ("none", "relu")):
            message = f"imported.memory_dim {more.memory_dim} needs score general or concat"
            yield Conflict(fields, f"{message}, and a bridge that maps or drops states")
        by_layers = more.bridge in ("none", "relu", "linear")
        if by_layers and self.layers_of_encoder != self.num_layers:
            message = f"imported.encoder_layers {more.encoder_layers} needs a bridge from the top"
            yield Conflict(fields, message)
        if more.bridge == "top" and self.encoder_dim < self.hidden_dim:
            sizes = f"{self.encoder_dim} is less than hidden_dim {self.hidden_dim}"
            yield Conflict(fields, f"imported.memory_dim {sizes}")
